"""Hooks on a model that start work for each gradient while the backward pass still runs.

The work starts in the same order on all ranks, whatever order the gradients are ready in.
"""
import contextlib

import torch
import torch.distributed as dist


def resynchronize(model, group=None):
    """Copies rank 0's parameters and buffers to all ranks, exactly."""
    tensors = [tensor.detach() for tensor in (*model.parameters(), *model.buffers())]
    first = dist.get_global_rank(group, 0) if group is not None else 0
    works = [dist.broadcast(tensor, first, group=group, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()


def used_by(module):
    """Returns the parameters that a module's own forward() may use.

    These are the module's own parameters, shared ones included. If it has any, its children's
    parameters count too, because forward() may use them without calling the children
    (nn.MultiheadAttention does).
    """
    own = list(module.parameters(recurse=False))
    if not own:
        return []
    return own + [p for child in module.children() for p in child.parameters(recurse=False)]


class InOrder:
    """Starts something for each of `count` positions, always from the last position to the first.

    Positions may become ready in any order, so a position waits until all behind it have started.
    That makes the order the same on all ranks. The work goes in rounds, each of all positions.

    `start(position)` returns the work that is then in flight. A position must not be added while
    its work from the last round is still in flight.
    """

    def __init__(self, count, start):
        self._count, self._start = count, start
        self.ready = set()  # positions that were added in this round
        self.works = {}  # position: its work in flight, until whoever waits for it removes it
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
    """Puts hooks on a model for a subclass that trains it.

    When the backward pass has made a parameter's gradient, the subclass starts work for it
    (_start). When the next forward pass reaches a module that uses the parameter, the subclass
    waits for that work (_wait). A round lasts from one call of the subclass's step() to the next.
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
                self._hooks.append(module.register_forward_pre_hook(
                    lambda _m, _i, used=used: self._on_forward(used)))
        for position, parameter in enumerate(self._parameters):
            self._hooks.append(parameter.register_post_accumulate_grad_hook(
                lambda _, position=position: self._on_gradient(position)))

    def _detach(self):
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _start(self, position):
        """Starts the work for a parameter whose gradient is complete, and returns that work.

        A subclass defines this.
        """
        raise NotImplementedError

    def _wait(self, positions):
        """Removes the works of these positions from self._order.works and waits for them.

        A subclass defines this.
        """
        raise NotImplementedError

    def _error(self, what):
        return RuntimeError(f"{type(self).__name__}: {what}")

    def _name(self, position):
        return next(name for name, one in self._model.named_parameters()
                    if one is self._parameters[position])

    def _on_forward(self, positions):
        # A module whose gradients this round has already made must not run again. Others may:
        # activation checkpointing runs them a second time during the backward pass.
        if not self._order.ready.isdisjoint(positions):
            raise self._error("a forward pass between backward() and step(): call step() first, "
                              "or accumulate gradients within no_sync()")
        self._wait(positions)

    def _on_gradient(self, position):
        if position in self._order.works:
            raise self._error(f"{self._name(position)} " + (
                "has a second gradient before step(): accumulate gradients within no_sync()"
                if position in self._order.ready
                else "was used without a call of its module's forward(), and so before it was "
                     "waited for"))
        if self._syncs:
            with torch.no_grad():
                self._order.add(position)

    def _wait_for_unused(self):
        """Waits for works of the last round whose modules this round did not use.

        step() calls this.
        """
        self._wait({position for position in self._order.works if position <= self._order.next})

    @contextlib.contextmanager
    def no_sync(self):
        """Makes backward passes within a `with` block only accumulate gradients."""
        self._syncs = False
        try:
            yield
        finally:
            self._syncs = True
