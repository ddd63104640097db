"""Gradients over Thalweg: a communication hook for DDP, and a wrapper that sends layer by layer.

Both average gradients over the ranks of a process group whose backend is "thalweg". With a loss bound they go over
DLCP, and up to that part of the packets of each transfer may be lost; what that means is in docs/collectives.md.
Parameters, buffers and everything else of the group stay exact.
"""
import dataclasses

import torch
import torch.distributed as dist

from thalweg.averaging import Gossip, LocalSGD  # noqa: F401
from thalweg.backend import NAME, backend_of
from thalweg.bound import profile_bound  # noqa: F401  how much of a model's gradients may be lost
from thalweg.dssync import DSSync  # noqa: F401
from thalweg.in_order import Hooked, resynchronize
from thalweg.members import Members  # noqa: F401
from thalweg.parameter_server import ParameterServer  # noqa: F401
from thalweg.record import record  # noqa: F401  a layer table of any model, for the simulator


QUEUES = 7  # of switches, for data: from 1, the most urgent


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
    # What an average lacks is made up for by the next gradient (docs/pytorch.md). Needs a loss bound.
    error_feedback: bool = False
    # By key: of a bucket of DDP, the ids of its parameters.
    _residuals: dict = dataclasses.field(default_factory=dict, init=False, repr=False)
    _buckets: int = dataclasses.field(default=0, init=False, repr=False)  # of DDP

    def __post_init__(self):
        _check_bound("loss_bound", self.loss_bound, 1)
        if self.error_feedback and self.loss_bound == 0:
            raise ValueError("error_feedback: True with a loss_bound of 0: nothing can be missing")
        if self.result_loss_bound is not None:
            _check_bound("result_loss_bound", self.result_loss_bound, self.loss_bound)

    def start(self, gradient, priority, key=None, layer=0, layers=1):
        """Starts to average a gradient in place; operations with a lower number go first. The work in flight.

        key: which gradient it is, for error feedback; the priority if left out. layer, of `layers`, from the front:
        over DLCP it is tagged for the switches' queues, as its packets are by magnitude if they may be lost.
        """
        if self.loss_bound > 0 and not gradient.dtype.is_floating_point:
            raise TypeError(f"loss_bound: {self.loss_bound} on a gradient of {gradient.dtype}; "
                            "only floating-point gradients may lose anything")
        result_bound = -1.0 if self.result_loss_bound is None else self.result_loss_bound
        return backend_of(self.group, gradient.device).reduce_gradient(
            gradient, mean=True, loss_bound=self.loss_bound, result_loss_bound=result_bound, dlcp=self.dlcp,
            priority=priority, queue=1 + layer * QUEUES // layers,
            residual=self._residual(gradient, priority if key is None else key))

    def _residual(self, gradient, key):
        if not self.error_feedback:
            return None
        if key not in self._residuals:
            self._residuals[key] = torch.zeros_like(gradient, memory_format=torch.contiguous_format)
        return self._residuals[key]

    def _bucket_key(self, bucket):
        """Of its residual. DDP lays buckets out anew after the first iteration: what the old ones lacked is forgotten."""
        key = tuple(map(id, bucket.parameters()))
        if key not in self._residuals:
            for old in [old for old in self._residuals if isinstance(old, tuple) and not set(old).isdisjoint(key)]:
                del self._residuals[old]
        return key


def reduce_hook(state, bucket):
    """For DistributedDataParallel.register_comm_hook(GradientState(…), thalweg.torch.reduce_hook).

    DDP's last buckets hold the first layers, which the next forward pass needs first: they overtake.
    """
    # All are known from the second iteration on; DDP may lay them out anew.
    state._buckets = bucket.index() + 1 if bucket.is_last() else max(state._buckets, bucket.index() + 1)
    work = state.start(bucket.buffer(), -bucket.index(), state._bucket_key(bucket) if state.error_feedback else None,
                       state._buckets - 1 - bucket.index(), state._buckets)
    return work.get_future().then(lambda done: done.value()[0])


class LayerWise(Hooked):
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
    """

    def __init__(self, model, make_optimizer, state=None, resynchronize_every=0, find_unused_parameters=False):
        if resynchronize_every < 0:
            raise ValueError(f"resynchronize_every: {resynchronize_every}; 0 (never) or more steps are allowed")
        self._state = state or GradientState()
        self._every = resynchronize_every
        self._steps = 0
        # Who used what is exchanged in a group of its own: in that of the gradients it would have its place in their
        # order, which differs where a rank has not used something. Only its members make it, and it moves tensors of
        # the CPU, whatever the default group is.
        self._usage = dist.new_group(dist.get_process_group_ranks(self._state.group or dist.group.WORLD), backend=NAME,
                                     use_local_synchronization=True) if find_unused_parameters else None
        resynchronize(model, self._state.group)
        self._optimizers = {}  # module: (optimizer, positions of its parameters)
        known = {}
        for module in model.modules():
            own = [p for p in module.parameters(recurse=False) if p.requires_grad and p not in known]
            known.update({p: len(known) + i for i, p in enumerate(own)})
            if own:
                self._optimizers[module] = (make_optimizer(own), [known[p] for p in own])
        self._owner = {position: module for module, (_, own) in self._optimizers.items() for position in own}
        super().__init__(model, list(known))
        self._attach()

    def _start(self, position):
        return self._state.start(self._parameters[position].grad, position, layer=position,
                                 layers=len(self._parameters))

    def step(self):
        """After backward, on every rank. Returns at once, but for find_unused_parameters."""
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
        """Positions that no rank has used; those of other ranks get zeros, and are ready."""
        self._order.ready.update(i for i, p in enumerate(self._parameters) if p.grad is not None)  # also within no_sync()
        missing = set(range(len(self._parameters))) - self._order.ready
        if self._usage is None:
            if missing:
                raise self._error(f"{self._name(min(missing))} has no gradient: with layers that are not always used, "
                                  "say find_unused_parameters=True")
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
        """Also updates the modules that own these gradients."""
        for module in {self._owner[position] for position in positions if position in self._order.works}:
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
        """Finishes, and takes the hooks off the model."""
        self.finish()
        self._detach()
