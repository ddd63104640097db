"""Records a layer table from any PyTorch model: how large its layers are and how long they take.

A *layer* is a module and the trainable parameters that it owns. The recorder marks the moments of
an iteration that matter to communication:

- forward: the moment at which each layer is first called, when its parameters must be there. A
  layer's forward time lasts until the next layer is first called. Operations without parameters
  (activations, pooling, a tied output projection) therefore belong to the layer before them. What
  precedes the first layer belongs to the first layer, and the loss belongs to the last one.
- backward: the moment at which the gradient of each parameter is accumulated, when it can be sent.
  A layer is ready when the last of its tensors is. The simulator replays layers in reverse order,
  so a layer's backward time begins when all layers behind it are ready and ends when it is ready
  itself. It is 0 if autograd finished the layer before one behind it. What follows the last
  gradient belongs to the first layer.

The times add up to the whole iteration, without gaps or overlaps. Marks cost time themselves, so
the totals come from iterations without marks, and iterations with marks only give each layer's
share of the total. Both are medians.

On a GPU the marks are events on the stream. Each iteration is queued behind a kernel that spins, so
that the device never waits for the host. The times are therefore those of the device, not of
Python.
"""

import contextlib
import datetime
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from thalweg.layer_table import Layer, Table

WARMUP = 5
ITERATIONS = 20


def record(model: torch.nn.Module, batch, *, loss: Callable | None = None, name: str = "",
           sample: str = "", notes: str = "", warmup: int = WARMUP,
           iterations: int = ITERATIONS) -> Table:
    """Times training iterations of `model` on `batch` and returns its layer table.

    batch: a tensor, a tuple of positional arguments or a dict of keyword arguments of the model, on
    the model's device. The first dimension of its first tensor counts the samples.
    loss: makes a scalar of the model's output. If left out, it is the mean of all floating-point
    outputs.
    name, sample, notes: text for the table; `sample` describes one sample.
    warmup, iterations: how many iterations to run before timing, and how many to time.

    The model runs in its current mode, so call `model.train()` before. Its gradients, its buffers
    and the random state are restored afterwards.
    """
    if iterations < 1 or warmup < 1:
        raise ValueError(f"warmup is {warmup} and iterations {iterations}: both must be at least 1")
    args, kwargs = _arguments(batch)
    device = _device_of(model)
    clock = _CudaClock(device) if device.type == "cuda" else _HostClock()
    marked, plain = [], []
    step = _Step(model, args, kwargs, loss or mean_of_outputs, clock)
    with _unchanged(model, device), contextlib.closing(step):
        step.find_layers()
        for _ in range(warmup):
            _timed(step, clock, marked=True)
        clock.warmed_up()
        for _ in range(iterations):
            plain.append(_timed(step, clock, marked=False))
            marked.append(_timed(step, clock, marked=True))
    forward = _shares([times.forward for times in marked],
                      [sum(times.forward) for times in plain])
    backward = _shares([times.backward for times in marked],
                       [sum(times.backward) for times in plain])
    samples, described = _describe(args, kwargs)
    layers = tuple(Layer(*row) for row in zip(step.names, step.tensors, forward, backward))
    return Table(name=name or type(model).__name__.lower(), batch=samples,
                 sample=sample or described, device=_device_name(device), torch=torch.__version__,
                 notes=notes, date=datetime.date.today().isoformat(), dtype=_dtype_of(model),
                 layers=layers)


def mean_of_outputs(output) -> torch.Tensor:
    """A loss that depends on every floating-point tensor of an output."""
    tensors = [t for t in _tensors_in(output) if t.is_floating_point()]
    if not tensors:
        raise ValueError("the model's output holds no floating-point tensor: give record() a loss")
    return sum(t.float().mean() for t in tensors)


@dataclass
class _Times:
    """Microseconds of one iteration: one entry per layer, or a single one if it had no marks."""

    forward: list[float]
    backward: list[float]


class _Step:
    """One training iteration, with hooks that can mark its moments.

    find_layers() must be called first: it runs an iteration to find the layers, in the order of
    their first calls. A parameter belongs to the module that holds it. If that module is never
    called (as the parts of torch.nn.MultiheadAttention), the parameter belongs to the nearest
    enclosing module that is.
    """

    def __init__(self, model, args, kwargs, loss, clock):
        self._model, self._args, self._kwargs = model, args, kwargs
        self._loss, self._clock = loss, clock
        self._marking = False
        self._called: dict[torch.nn.Module, object] = {}  # module: mark of its first call
        self._ready: dict[int, object] = {}  # id of a parameter: mark of its gradient
        self._hooks = [module.register_forward_pre_hook(self._on_call)
                       for module in model.modules()]
        self._hooks += [p.register_post_accumulate_grad_hook(self._on_gradient)
                        for p in model.parameters() if p.requires_grad]

    def find_layers(self):
        self.run(marked=True)
        names = {module: name for name, module in self._model.named_modules()}
        modules = {name: module for module, name in names.items()}
        owned: dict[torch.nn.Module, list[torch.nn.Parameter]] = {}
        for name, parameter in self._model.named_parameters():
            if not parameter.requires_grad:
                continue
            if id(parameter) not in self._ready:
                raise ValueError(f"parameter '{name}' got no gradient: let the loss depend on it, "
                                 "or freeze it with requires_grad_(False)")
            path = name.rpartition(".")[0]
            while modules[path] not in self._called:
                path = path.rpartition(".")[0]
            owned.setdefault(modules[path], []).append(parameter)
        if not owned:
            raise ValueError("the model has no trainable parameter")
        self._layers = [module for module in self._called if module in owned]
        self._parameters = [[id(p) for p in owned[module]] for module in self._layers]
        self.tensors = [tuple(p.numel() for p in owned[module]) for module in self._layers]
        self.names = [names[module] or type(module).__name__.lower() for module in self._layers]
        for hook in self._hooks[:len(modules)]:
            hook.remove()
        self._hooks = self._hooks[len(modules):]
        self._hooks += [module.register_forward_pre_hook(self._on_call) for module in self._layers]

    def _on_call(self, module, _inputs):
        if self._marking and module not in self._called:
            self._called[module] = self._clock.mark()

    def _on_gradient(self, parameter):
        if self._marking:
            self._ready[id(parameter)] = self._clock.mark()

    def run(self, *, marked: bool):
        self._called.clear()
        self._ready.clear()
        self._model.zero_grad(set_to_none=True)
        self._marking = marked
        self._clock.prepare()
        self._start = self._clock.mark()
        loss = self._loss(self._model(*self._args, **self._kwargs))
        self._turn = self._clock.mark()
        loss.backward()
        self._end = self._clock.mark()
        self._clock.launched()
        self._marking = False

    def times(self, at: Callable[[object], float]) -> _Times:
        """Returns the times of the last run. `at` converts a mark to microseconds."""
        start, turn, end = at(self._start), at(self._turn), at(self._end)
        if not self._called:
            return _Times([turn - start], [end - turn])
        gradients = sum(map(len, self._parameters))
        if list(self._called) != self._layers or len(self._ready) != gradients:
            raise ValueError("the model does not use the same layers, in the same order, every "
                             "iteration")
        calls = [start, *(at(self._called[module]) for module in self._layers[1:]), turn]
        forward = [after - before for before, after in zip(calls, calls[1:])]
        backward = []
        latest = turn
        for parameters in reversed(self._parameters[1:]):
            ready = max(latest, *(at(self._ready[p]) for p in parameters))
            backward.append(ready - latest)
            latest = ready
        return _Times(forward, [*backward, end - latest][::-1])

    def close(self):
        for hook in self._hooks:
            hook.remove()


class _HostClock:
    """Marks moments by the host's clock. Use it where the host itself computes."""

    def prepare(self):
        pass

    def mark(self) -> float:
        return time.perf_counter()

    def launched(self):
        pass

    def warmed_up(self):
        pass

    def resolve(self) -> Callable[[float], float]:
        return lambda mark: mark * 1e6


class _CudaClock:
    """Marks moments of the current CUDA stream.

    After the warm-up a kernel spins on the stream while the host queues an iteration. It spins
    somewhat longer than the host needed for the last iteration of the warm-up. That length is not
    adapted later, because a host that has filled the stream's queue waits for the spin itself: its
    time would include the spin.
    """

    SPIN_CYCLES = 10_000_000  # some milliseconds, to measure how long a cycle takes
    HEAD_START = 1.5  # length of the spin, as a multiple of the time that the host needed
    MOST_LEAD_US = 200_000.0  # the longest spin

    def __init__(self, device: torch.device):
        self._device = device
        self._lead_us = 0.0
        torch.cuda.synchronize(device)
        for _ in range(2):  # the first spin also loads the kernel, so the second one counts
            before = self.mark()
            torch.cuda._sleep(self.SPIN_CYCLES)
            after = self.mark()
            torch.cuda.synchronize(device)
        self._cycles_per_us = self.SPIN_CYCLES / (before.elapsed_time(after) * 1e3)

    def prepare(self):
        torch.cuda._sleep(int(self._lead_us * self._cycles_per_us))
        self._began = time.perf_counter()

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def launched(self):
        self._launch_us = (time.perf_counter() - self._began) * 1e6

    def warmed_up(self):
        self._lead_us = min(self.HEAD_START * self._launch_us, self.MOST_LEAD_US)

    def resolve(self) -> Callable[[torch.cuda.Event], float]:
        origin = self.mark()
        torch.cuda.synchronize(self._device)
        return lambda event: -event.elapsed_time(origin) * 1e3


def _timed(step: _Step, clock, *, marked: bool) -> _Times:
    step.run(marked=marked)
    return step.times(clock.resolve())


def _shares(layers: list[list[float]], totals: list[float]) -> list[float]:
    """Returns the median time of each layer, scaled so that they add up to the median total."""
    medians = [statistics.median(times) for times in zip(*layers)]
    return [median * statistics.median(totals) / sum(medians) for median in medians]


@contextlib.contextmanager
def _unchanged(model: torch.nn.Module, device: torch.device):
    """Restores what iterations change: the model's gradients and buffers, and the random state."""
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            for buffer, value in buffers:
                buffer.copy_(value)


def _arguments(batch) -> tuple[tuple, dict]:
    if isinstance(batch, dict):
        return (), batch
    return (tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)), {}


def _tensors_in(value) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    items = value if isinstance(value, (tuple, list)) else ()
    return [tensor for item in items for tensor in _tensors_in(item)]


def _describe(args: tuple, kwargs: dict) -> tuple[int, str]:
    tensors = _tensors_in((args, kwargs))
    if not tensors or tensors[0].dim() == 0:
        raise ValueError("the batch holds no tensor whose first dimension counts the samples")
    shape = tensors[0].shape
    return shape[0], "x".join(map(str, shape[1:])) or "scalar"


def _device_of(model: torch.nn.Module) -> torch.device:
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) != 1:
        raise ValueError(f"the model's parameters are on {len(devices)} devices: one is needed")
    device = devices.pop()
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"the model is on '{device.type}': move it to cpu or cuda")
    return device


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _dtype_of(model: torch.nn.Module) -> str:
    types = {parameter.dtype for parameter in model.parameters() if parameter.requires_grad}
    if len(types) != 1:
        raise ValueError(f"the model mixes parameter types {sorted(map(str, types))}: one is "
                         "needed")
    return str(types.pop()).removeprefix("torch.")
