"""Averages gradients over Thalweg: a communication hook for DDP, and a layer-by-layer trainer.

Both average gradients over the ranks of a process group whose backend is "thalweg". With a loss
bound the gradients go over DLCP, which may then lose up to that fraction of the packets of each
transfer (docs/collectives.md). Parameters, buffers and all other calls of the group stay exact.
"""
import dataclasses

import torch
import torch.distributed as dist

from thalweg.averaging import Gossip, LocalSGD  # noqa: F401
from thalweg.backend import NAME, backend_of
from thalweg.dssync import DSSync  # noqa: F401
from thalweg.gradient_hooks import Hooked, resynchronize
from thalweg.loss_bound import profile_bound  # noqa: F401
from thalweg.members import Members  # noqa: F401
from thalweg.parameter_server import ParameterServer  # noqa: F401
from thalweg.record import record  # noqa: F401

QUEUES = 7  # queues of a switch port for data, numbered from 1, the most urgent


def _check_bound(name, value, most):
    if not 0 <= value <= most or value >= 1:
        raise ValueError(f"{name}: {value}; from 0 to {'below 1' if most == 1 else most} is "
                         "allowed")


@dataclasses.dataclass
class GradientState:
    """How gradients are averaged. All ranks must use the same settings."""

    group: dist.ProcessGroup | None = None  # None: the default process group
    # The fraction of a gradient's packets that may be lost, in [0, 1). 0: nothing may be lost.
    loss_bound: float = 0.0
    # The same for the packets that carry averages back, at most loss_bound. None: half of it.
    result_loss_bound: float | None = None
    dlcp: bool = False  # use DLCP even if the bound is 0
    # Adds what an average lacked to the next gradient (docs/pytorch.md). Needs a loss bound.
    error_feedback: bool = False
    # For reduce_hook: the buckets of front layers overtake those of back layers, and over DLCP have
    # more urgent queues of the switches. Off, all buckets have one priority and one queue, since
    # DDP's backward pass ends only when all of them are back. LayerWise and DistributedOptimizer
    # always go by layer.
    by_layer: bool = False
    # What error feedback adds next time, by key. The key of a DDP bucket is a tuple of the ids of
    # its parameters.
    _residuals: dict = dataclasses.field(default_factory=dict, init=False, repr=False)
    _buckets: int = dataclasses.field(default=0, init=False, repr=False)  # how many DDP has

    def __post_init__(self):
        _check_bound("loss_bound", self.loss_bound, 1)
        if self.error_feedback and self.loss_bound == 0:
            raise ValueError("error_feedback: True with a loss_bound of 0: nothing can be missing")
        if self.result_loss_bound is not None:
            _check_bound("result_loss_bound", self.result_loss_bound, self.loss_bound)

    def start(self, gradient, priority, key=None, layer=0, layers=1):
        """Starts to average a gradient in place, and returns the work in flight.

        priority: a gradient with a lower number overtakes those with higher ones. key: identifies
        the gradient from one iteration to the next, for error feedback; the priority if left out.
        layer, of `layers`, counted from the front: over DLCP it selects the switches' queue.
        """
        if self.loss_bound > 0 and not gradient.dtype.is_floating_point:
            raise TypeError(f"loss_bound: {self.loss_bound} on a gradient of {gradient.dtype}; "
                            "only floating-point gradients may lose anything")
        result_bound = -1.0 if self.result_loss_bound is None else self.result_loss_bound
        return backend_of(self.group, gradient.device).reduce_gradient(
            gradient, mean=True, loss_bound=self.loss_bound, result_loss_bound=result_bound,
            dlcp=self.dlcp, priority=priority, queue=1 + layer * QUEUES // layers,
            residual=self._residual(gradient, priority if key is None else key))

    def _residual(self, gradient, key):
        if not self.error_feedback:
            return None
        if key not in self._residuals:
            self._residuals[key] = torch.zeros_like(gradient,
                                                    memory_format=torch.contiguous_format)
        return self._residuals[key]

    def _bucket_key(self, bucket):
        """Returns the key of a DDP bucket's residual.

        DDP rearranges its buckets after the first iteration. The residuals of buckets that no
        longer exist are dropped.
        """
        key = tuple(map(id, bucket.parameters()))
        if key not in self._residuals:
            for old in [old for old in self._residuals
                        if isinstance(old, tuple) and not set(old).isdisjoint(key)]:
                del self._residuals[old]
        return key


def auto_choices(group=None, device="cpu"):
    """Says what the transport "auto" has chosen for the calls of a group.

    Parameters
    ----------
    group
        The process group. None: the default one.
    device
        The device whose calls are meant.

    Returns
    -------
    list of dict
        One for each kind of calls, with kind, decided (False: trials go on), chosen, why, calls,
        trials, trials_ms (the time of the trials on the slowest rank) and extra_ms (how much of it
        the fastest way would have saved).
    """
    return backend_of(group, device).auto_choices()


def reduce_hook(state, bucket):
    """The hook for DDP: model.register_comm_hook(GradientState(…), thalweg.torch.reduce_hook).

    DDP's last buckets hold the first layers. With GradientState(by_layer=True) they overtake earlier
    buckets.
    """
    # How many buckets there are is known from the second iteration on. DDP may rearrange them.
    state._buckets = (bucket.index() + 1 if bucket.is_last()
                      else max(state._buckets, bucket.index() + 1))
    key = state._bucket_key(bucket) if state.error_feedback else None
    if state.by_layer:
        work = state.start(bucket.buffer(), -bucket.index(), key,
                           state._buckets - 1 - bucket.index(), state._buckets)
    else:
        work = state.start(bucket.buffer(), 0, key)
    return work.get_future().then(lambda done: done.value()[0])


class LayerWise(Hooked):
    """Trains a model data-parallel, layer by layer.

    A gradient is sent as soon as the backward pass has made it. It is waited for only when the next
    forward pass reaches its layer, and that layer is updated then. Front layers overtake back ones.

        trainer = LayerWise(model, lambda parameters: torch.optim.SGD(parameters, lr=0.1))
        for batch in data:
            loss(model(batch)).backward()
            trainer.step()
        trainer.finish()  # before an evaluation or a checkpoint

    Call the model as usual, but do not call zero_grad(): the trainer manages the gradients. All
    ranks start from rank 0's parameters. Within no_sync() backward passes only accumulate
    gradients. `make_optimizer` is called once for each module that has parameters of its own, with
    the list of these. `resynchronize_every` copies rank 0's parameters to all ranks every so many
    steps; 0 never does.

    Every parameter must get a gradient in every step, unless find_unused_parameters is set. Then a
    parameter that no rank has used stays as it is, and one that only some ranks have used gets a
    gradient of zeros from the others. A parameter must be used by the forward() of its own module,
    or by that of the enclosing module if that has parameters of its own.
    """

    def __init__(self, model, make_optimizer, state=None, resynchronize_every=0,
                 find_unused_parameters=False):
        if resynchronize_every < 0:
            raise ValueError(f"resynchronize_every: {resynchronize_every}; 0 (never) or more steps "
                             "are allowed")
        self._state = state or GradientState()
        self._every = resynchronize_every
        self._steps = 0
        # Ranks exchange which parameters they have used in a process group of its own. In the
        # gradients' group this call would need a fixed place among the gradients, and that place
        # differs on a rank that has not used all parameters. The group always moves tensors of the
        # CPU, whatever the default group does, and only its members make it.
        self._usage = dist.new_group(
            dist.get_process_group_ranks(self._state.group or dist.group.WORLD), backend=NAME,
            use_local_synchronization=True) if find_unused_parameters else None
        resynchronize(model, self._state.group)
        self._optimizers = {}  # module: (its optimizer, positions of its parameters)
        known = {}
        for module in model.modules():
            own = [p for p in module.parameters(recurse=False)
                   if p.requires_grad and p not in known]
            known.update({p: len(known) + i for i, p in enumerate(own)})
            if own:
                self._optimizers[module] = (make_optimizer(own), [known[p] for p in own])
        self._owner = {position: module for module, (_, own) in self._optimizers.items()
                       for position in own}
        super().__init__(model, list(known))
        self._attach()

    def _start(self, position):
        return self._state.start(self._parameters[position].grad, position, layer=position,
                                 layers=len(self._parameters))

    def step(self):
        """Ends an iteration. Every rank calls this after backward().

        Returns without waiting for gradients; with find_unused_parameters it waits until the other
        ranks have said which parameters they used.
        """
        order = self._order
        self._wait_for_unused()
        unused = self._find_unused()
        while order.next >= 0:
            order.start()
            if order.next in unused:
                order.next -= 1
        order.end_round()
        self._steps += 1
        if self._every and self._steps % self._every == 0:
            self.finish()
            resynchronize(self._model, self._state.group)

    def _find_unused(self):
        """Returns the positions of parameters that no rank has used.

        A parameter that only other ranks have used gets a gradient of zeros and is marked ready.
        """
        # Gradients that were made within no_sync() count too.
        self._order.ready.update(i for i, p in enumerate(self._parameters) if p.grad is not None)
        missing = set(range(len(self._parameters))) - self._order.ready
        if self._usage is None:
            if missing:
                raise self._error(f"{self._name(min(missing))} has no gradient: set "
                                  "find_unused_parameters=True if a step may leave layers unused")
            return missing
        used = torch.ones(len(self._parameters), dtype=torch.uint8)
        used[list(missing)] = 0
        dist.all_reduce(used, dist.ReduceOp.MAX, group=self._usage)
        for position in missing.copy():
            if used[position]:
                self._parameters[position].grad = torch.zeros_like(self._parameters[position])
                self._order.ready.add(position)
                missing.remove(position)
        return missing

    def _wait(self, positions):
        """Waits for the gradients at these positions, and updates the modules that own them.

        A module is updated as a whole, so all of its gradients are waited for.
        """
        for module in {self._owner[position] for position in positions
                       if position in self._order.works}:
            optimizer, own = self._optimizers[module]
            for position in own:
                if position in self._order.works:
                    self._order.works.pop(position).wait()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def finish(self):
        """Waits for all gradients in flight, and updates the whole model."""
        self._on_forward(set(self._order.works))

    def detach(self):
        """Calls finish(), and removes the hooks from the model."""
        self.finish()
        self._detach()
