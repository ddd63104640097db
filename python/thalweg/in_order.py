"""Hooks on a model: what is done with each gradient starts in one order on all ranks, while backward still runs."""
import contextlib

import torch
import torch.distributed as dist


def resynchronize(model, group=None):
    """Gives all ranks rank 0's parameters and buffers, exactly."""
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


class InOrder:
    """Starts something for each parameter when backward has made its gradient, and waits for it when the next forward
    pass comes to a module that uses the parameter.

    A subclass says by _start(position) what, puts what is in flight into self._works, and waits for it in _wait(). Its
    step() ends with _end_round(). A round is all between two calls of step().

    Invariants:
    1. Parameters start in one order, that of `parameters` from last to first, so on all ranks alike.
    2. None starts that is in flight.
    """

    def __init__(self, model, parameters):
        self._model = model
        self._parameters = parameters
        self._works = {}  # position: in flight
        self._ready = set()  # positions whose gradient is complete
        self._next = len(parameters) - 1  # the position that starts next
        self._syncs = True
        self._hooks = []

    def _attach(self):
        position_of = {parameter: position for position, parameter in enumerate(self._parameters)}
        for module in self._model.modules():
            used = {position_of[p] for p in used_by(module) if p in position_of}
            if used:
                self._hooks.append(module.register_forward_pre_hook(lambda _m, _i, used=used: self._on_forward(used)))
        for position, parameter in enumerate(self._parameters):
            self._hooks.append(parameter.register_post_accumulate_grad_hook(
                lambda _, position=position: self._on_gradient(position)))

    def _detach(self):
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _start(self, position):
        """For a subclass: the parameter's gradient is complete, and so were those before it in the order."""
        raise NotImplementedError

    def _wait(self, positions):
        """For a subclass: until nothing of these positions is in flight."""
        raise NotImplementedError

    def _error(self, what):
        return RuntimeError(f"{type(self).__name__}: {what}")

    def _name(self, position):
        return next(name for name, one in self._model.named_parameters() if one is self._parameters[position])

    def _on_forward(self, positions):
        # Modules that this round's backward has not come to may run again: checkpoints of activations do.
        if not self._ready.isdisjoint(positions):
            raise self._error("a forward pass between backward() and step(): call step() first, or accumulate gradients "
                              "within no_sync()")
        self._wait(positions)

    def _on_gradient(self, position):
        if position in self._works:
            raise self._error(f"{self._name(position)} " + (
                "has a second gradient before step(): accumulate gradients within no_sync()" if position in self._ready
                else "was used without a call of its module's forward(), and so before it was waited for"))
        if self._syncs:
            self._ready.add(position)
            self._start_ready()

    @torch.no_grad()
    def _start_ready(self):
        while self._next >= 0 and self._next in self._ready:
            self._start(self._next)
            self._next -= 1

    def _wait_for_unused(self):
        """For step(): what is in flight from the last round, of modules that this one did not use."""
        self._wait({position for position in self._works if position <= self._next})

    def _end_round(self):
        self._ready.clear()
        self._next = len(self._parameters) - 1

    @contextlib.contextmanager
    def no_sync(self):
        """Backward passes within only accumulate gradients."""
        self._syncs = False
        try:
            yield
        finally:
            self._syncs = True
