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
    """Starts something for each of `count` positions, in one order whatever order they are ready in: from last to first,
    so on all ranks alike. Goes in rounds, each of all positions.

    `start(position)` returns what is then in flight. Nothing may be in flight of a position that is added.
    """

    def __init__(self, count, start):
        self._count, self._start = count, start
        self.ready = set()  # positions that were added in this round
        self.works = {}  # position: in flight, until whoever waits for it takes it out
        self.next = count - 1  # the position that starts next

    def add(self, position):
        self.ready.add(position)
        self.start()

    def start(self):
        while self.next >= 0 and self.next in self.ready:
            self.works[self.next] = self._start(self.next)
            self.next -= 1

    def end_round(self):
        self.ready.clear()
        self.next = self._count - 1


class Hooked:
    """Hooks on a model. When backward has made a parameter's gradient, something starts for it (_start, of a subclass);
    when the next forward pass comes to a module that uses the parameter, that is waited for (_wait).

    A round is all between two calls of step(), which is the subclass's.
    """

    def __init__(self, model, parameters):
        self._model = model
        self._parameters = parameters
        self._order = InOrder(len(parameters), self._start)
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
        """For a subclass: the parameter's gradient is complete. Returns what is in flight."""
        raise NotImplementedError

    def _wait(self, positions):
        """For a subclass: takes what is in flight of these positions out of self._order.works, and waits for it."""
        raise NotImplementedError

    def _error(self, what):
        return RuntimeError(f"{type(self).__name__}: {what}")

    def _name(self, position):
        return next(name for name, one in self._model.named_parameters() if one is self._parameters[position])

    def _on_forward(self, positions):
        # Modules that this round's backward has not come to may run again: checkpoints of activations do.
        if not self._order.ready.isdisjoint(positions):
            raise self._error("a forward pass between backward() and step(): call step() first, or accumulate gradients "
                              "within no_sync()")
        self._wait(positions)

    def _on_gradient(self, position):
        if position in self._order.works:
            raise self._error(f"{self._name(position)} " + (
                "has a second gradient before step(): accumulate gradients within no_sync()"
                if position in self._order.ready
                else "was used without a call of its module's forward(), and so before it was waited for"))
        if self._syncs:
            with torch.no_grad():
                self._order.add(position)

    def _wait_for_unused(self):
        """For step(): what is in flight from the last round, of modules that this one did not use."""
        self._wait({position for position in self._order.works if position <= self._order.next})

    @contextlib.contextmanager
    def no_sync(self):
        """Backward passes within only accumulate gradients."""
        self._syncs = False
        try:
            yield
        finally:
            self._syncs = True
