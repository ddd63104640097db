"""Gradients over Thalweg: a communication hook for DDP, and a wrapper that sends layer by layer.

Both average gradients over the ranks of a process group whose backend is "thalweg". With a loss bound they go over
DLCP, and up to that part of the packets of each transfer may be lost; what that means is in docs/collectives.md.
Parameters, buffers and everything else of the group stay exact.
"""
import contextlib
import dataclasses

import torch
import torch.distributed as dist

from thalweg.averaging import Gossip, LocalSGD  # noqa: F401
from thalweg.backend import NAME, backend_of
from thalweg.bound import profile_bound  # noqa: F401  how much of a model's gradients may be lost
from thalweg.dssync import DSSync  # noqa: F401
from thalweg.members import Members  # noqa: F401
from thalweg.parameter_server import ParameterServer  # noqa: F401
from thalweg.record import record  # noqa: F401  a layer table of any model, for the simulator


def _check_bound(name, value, most):
    if not 0 <= value <= most or value >= 1:
        raise ValueError(f"{name}: {value}; from 0 to {'below 1' if most == 1 else most} is allowed")


@dataclasses.dataclass
class GradientState:
    """How gradients go. The same on all ranks."""

    group: dist.ProcessGroup | None = None  # None: the default one
    loss_bound: float = 0.0  # in [0, 1); 0: exact
    result_loss_bound: float | None = None  # of results, at most loss_bound; None: half of it
    dlcp: bool = False  # over DLCP also if the bound is 0

    def __post_init__(self):
        _check_bound("loss_bound", self.loss_bound, 1)
        if self.result_loss_bound is not None:
            _check_bound("result_loss_bound", self.result_loss_bound, self.loss_bound)

    def start(self, gradient, priority):
        """Starts to average a gradient in place; operations with a lower number go first. The work in flight."""
        if self.loss_bound > 0 and not gradient.dtype.is_floating_point:
            raise TypeError(f"loss_bound: {self.loss_bound} on a gradient of {gradient.dtype}; "
                            "only floating-point gradients may lose anything")
        result_bound = -1.0 if self.result_loss_bound is None else self.result_loss_bound
        return backend_of(self.group, gradient.device).reduce_gradient(
            gradient, mean=True, loss_bound=self.loss_bound, result_loss_bound=result_bound, dlcp=self.dlcp,
            priority=priority)


def reduce_hook(state, bucket):
    """For DistributedDataParallel.register_comm_hook(GradientState(…), thalweg.torch.reduce_hook).

    DDP's last buckets hold the first layers, which the next forward pass needs first: they overtake.
    """
    work = state.start(bucket.buffer(), -bucket.index())
    return work.get_future().then(lambda done: done.value()[0])


def resynchronize(model, group=None):
    """Gives all ranks rank 0's parameters and buffers, exactly: after training with a loss bound, replicas differ."""
    tensors = [tensor.detach() for tensor in (*model.parameters(), *model.buffers())]
    first = dist.get_global_rank(group, 0) if group is not None else 0
    works = [dist.broadcast(tensor, first, group=group, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()


def used_by(module):
    """The parameters that a module's forward() may use: its own, also those that it shares with others, and, if it has
    any, those of its children, which it may use without calling them (nn.MultiheadAttention does)."""
    own = list(module.parameters(recurse=False))
    return own + [p for child in module.children() for p in child.parameters(recurse=False)] if own else []


class LayerWise:
    """Trains a model data-parallel, layer by layer: each gradient leaves as soon as backward has made it, and is
    waited for only when the next forward pass comes to its layer, which is updated then. Front layers go first.

        trainer = LayerWise(model, lambda parameters: torch.optim.SGD(parameters, lr=0.1))
        for batch in data:
            loss(model(batch)).backward()
            trainer.step()
        trainer.finish()  # before evaluation or a checkpoint

    The model is used as it is, and its gradients belong to the wrapper: no zero_grad(). All ranks start from rank 0's
    parameters. Within no_sync() gradients are only accumulated. `make_optimizer` is called once for each module that
    has parameters of its own. With find_unused_parameters, one that no rank has used is left as it is, and one that
    only this rank has not used counts as a gradient of zeros; without, every parameter must be used. A parameter is to
    be used by its module's forward(), or by that of the module around it if that has parameters of its own.

    Invariant: gradients start in one order, that of the parameters from last to first, so on all ranks alike.
    """

    def __init__(self, model, make_optimizer, state=None, resynchronize_every=0, find_unused_parameters=False):
        if resynchronize_every < 0:
            raise ValueError(f"resynchronize_every: {resynchronize_every}; 0 (never) or more steps are allowed")
        self._model = model
        self._state = state or GradientState()
        self._every = resynchronize_every
        self._steps = 0
        self._syncs = True
        # Who used what is exchanged in a group of its own: in that of the gradients it would have its place in their
        # order, which differs where a rank has not used something.
        # Only its members make it, and it moves tensors of the CPU, whatever the default group is.
        self._usage = dist.new_group(self._ranks(), backend=NAME, use_local_synchronization=True) \
            if find_unused_parameters else None
        self._hooks = []
        self._parameters = []  # in the order of the model
        self._ready = set()  # positions whose gradient is complete
        self._works = {}  # position: in flight
        self._optimizers = {}  # module: (optimizer, positions of its parameters)
        resynchronize(model, self._state.group)
        known = {}
        for module in model.modules():
            own = [p for p in module.parameters(recurse=False) if p.requires_grad and p not in known]
            for parameter in own:
                known[parameter] = len(self._parameters)
                self._parameters.append(parameter)
            if own:
                self._optimizers[module] = (make_optimizer(own), [known[p] for p in own])
        for module in model.modules():
            used = {known[p] for p in used_by(module) if p in known}
            if used:
                self._hooks.append(module.register_forward_pre_hook(lambda m, _, used=used: self._wait(used)))
        for position, parameter in enumerate(self._parameters):
            self._hooks.append(parameter.register_post_accumulate_grad_hook(
                lambda _, position=position: self._on_gradient(position)))
        self._next = len(self._parameters) - 1  # the position that starts next
        self._owner = {position: module for module, (_, own) in self._optimizers.items() for position in own}

    def _name(self, position):
        return next(name for name, one in self._model.named_parameters() if one is self._parameters[position])

    def _ranks(self):
        return dist.get_process_group_ranks(self._state.group or dist.group.WORLD)

    def _on_gradient(self, position):
        if position in self._works:
            raise RuntimeError(f"LayerWise: {self._name(position)} " + (
                "has a second gradient before step(): accumulate gradients within no_sync()" if position in self._ready
                else "was used without a call of its module's forward(), so its gradient was not waited for"))
        if self._syncs:
            self._ready.add(position)
            self._start_ready()

    def _start_ready(self):
        while self._next >= 0 and self._next in self._ready:
            gradient = self._parameters[self._next].grad
            self._works[self._next] = self._state.start(gradient, self._next)
            self._next -= 1

    def step(self):
        """After backward, on every rank. Returns at once, but for find_unused_parameters."""
        # Of modules that this round did not use.
        self._update({position for position in self._works if position <= self._next})
        unused = self._find_unused()
        while self._next >= 0:
            self._start_ready()
            if self._next >= 0 and self._next in unused:
                self._next -= 1
        self._ready.clear()
        self._next = len(self._parameters) - 1
        self._steps += 1
        if self._every and self._steps % self._every == 0:
            self.finish()
            resynchronize(self._model, self._state.group)

    def _find_unused(self):
        """Positions that no rank has used; those of other ranks get zeros, and are ready."""
        missing = set(range(len(self._parameters))) - self._ready
        if self._usage is None:
            if missing:
                raise RuntimeError(f"LayerWise: {self._name(min(missing))} has no gradient: with layers that are not "
                                   "always used, say find_unused_parameters=True")
            return missing
        used = torch.ones(len(self._parameters), dtype=torch.uint8)
        used[list(missing)] = 0
        dist.all_reduce(used, dist.ReduceOp.MAX, group=self._usage)
        for position in missing.copy():
            if used[position]:
                self._parameters[position].grad = torch.zeros_like(self._parameters[position])
                self._ready.add(position)
                missing.remove(position)
        return missing

    def _wait(self, positions):
        if self._next != len(self._parameters) - 1:
            raise RuntimeError("LayerWise: a forward pass between backward() and step(): call step() first, "
                               "or accumulate gradients within no_sync()")
        self._update(positions)

    def _update(self, positions):
        """Waits for gradients in flight, and updates the modules that own them."""
        for module in {self._owner[position] for position in positions if position in self._works}:
            optimizer, own = self._optimizers[module]
            for position in own:
                if position in self._works:
                    self._works.pop(position).wait()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def finish(self):
        """Waits for all gradients in flight, and updates the whole model."""
        self._wait(set(self._works))

    @contextlib.contextmanager
    def no_sync(self):
        """Backward passes within only accumulate gradients."""
        self._syncs = False
        try:
            yield
        finally:
            self._syncs = True

    def detach(self):
        """Finishes, and takes the hooks off the model."""
        self.finish()
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
