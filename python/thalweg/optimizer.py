"""DistributedOptimizer: data-parallel training by wrapping an optimizer, as with Horovod.

    optimizer = thalweg.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    thalweg.torch.resynchronize(model)         # all ranks start from rank 0's parameters
    loss(model(batch)).backward()              # sends each gradient as soon as it is made
    optimizer.step()                           # waits for the averages, and updates the parameters

Needs a process group whose backend is "thalweg".
"""
from thalweg.gradient_hooks import InOrder
from thalweg.torch import GradientState


def DistributedOptimizer(  # noqa: N802  as Horovod names it
        optimizer, state=None, backward_passes_per_step=1):
    """Makes the optimizer average gradients over the ranks before every step, and returns it.

    state: how gradients are averaged (thalweg.torch.GradientState). backward_passes_per_step: so
    many backward passes accumulate gradients before these are sent. A parameter without a gradient
    counts as if its gradient were zeros. `optimizer.synchronize()` waits for the averages without a
    step; call it to clip gradients, for example.
    """
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step: {backward_passes_per_step}; at least 1 is "
                         "allowed")
    parameters = [p for group in optimizer.param_groups for p in group["params"]
                  if p.requires_grad]
    if not parameters:
        raise ValueError("optimizer: it has no parameters that require a gradient")
    optimizer._thalweg = _Gradients(parameters, state or GradientState(), backward_passes_per_step)
    optimizer.synchronize = optimizer._thalweg.synchronize

    def before_step(_optimizer, arguments, named):
        # The first argument is the optimizer, and a second one is a closure.
        if any(one is not None for one in (*arguments[1:], named.get("closure"))):
            raise RuntimeError("DistributedOptimizer: step(closure) would use gradients of this "
                               "rank alone: call backward() before step()")
        optimizer._thalweg.before_step()

    optimizer.register_step_pre_hook(before_step)
    return optimizer


class _Gradients:
    """Averages the gradients of an optimizer's parameters, and waits for all of them together.

    An optimizer does not know its model, so no forward pass can wait for single layers.
    """

    def __init__(self, parameters, state, passes):
        self._parameters, self._passes = parameters, passes
        self._order = InOrder(len(parameters), lambda position: state.start(
            parameters[position].grad, position, layer=position, layers=len(parameters)))
        self._seen = [0] * len(parameters)
        self._synchronized = False
        for position, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(
                lambda _, position=position: self._on_gradient(position))

    def _on_gradient(self, position):
        self._seen[position] += 1
        if self._seen[position] > self._passes:
            raise RuntimeError(f"DistributedOptimizer: more than {self._passes} backward passes "
                               "before step(): set backward_passes_per_step")
        if self._seen[position] == self._passes:
            self._order.add(position)

    def synchronize(self):
        """Waits until every gradient is the average over the ranks."""
        if self._synchronized:
            return
        for position, parameter in enumerate(self._parameters):
            if parameter.grad is None:
                parameter.grad = parameter.new_zeros(parameter.shape)
            self._order.add(position)
        for work in self._order.works.values():
            work.wait()
        self._order.works.clear()
        self._order.end_round()
        self._synchronized = True

    def before_step(self):
        self.synchronize()
        self._seen = [0] * len(self._parameters)
        self._synchronized = False
