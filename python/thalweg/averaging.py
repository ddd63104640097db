"""Training in which every worker updates a model of its own and averages parameters with others each iteration.

`Averaging` has what all such strategies share; who averages with whom is said by a subclass: `DSSync` (thalweg.dssync),
`LocalSGD` and `Gossip` here.
"""
import torch
import torch.distributed as dist
from torch.optim.swa_utils import update_bn

from thalweg.in_order import Hooked, resynchronize


class _ParameterOptimizers:
    """One optimizer a parameter, so that each can step when its gradient is there.

    `optimizer` is one of torch.optim over the model's parameters, whose settings are followed as they change (so
    learning-rate schedulers work) but which itself never steps; or a function from a list of parameters to one.
    """

    def __init__(self, optimizer, parameters):
        self._groups = None
        if not isinstance(optimizer, torch.optim.Optimizer):
            self._own = [optimizer([parameter]) for parameter in parameters]
            return
        group_of = {parameter: group for group in optimizer.param_groups for parameter in group["params"]}
        missing = [tuple(parameter.shape) for parameter in parameters if parameter not in group_of]
        if missing:
            raise ValueError(f"optimizer: it has no parameter group for a parameter of shape {missing[0]}")
        self._groups = [group_of[parameter] for parameter in parameters]
        self._own = [type(optimizer)([{**self._settings(i), "params": [parameter]}])
                     for i, parameter in enumerate(parameters)]

    def _settings(self, position):
        return {key: value for key, value in self._groups[position].items() if key != "params"}

    def step(self, position):
        if self._groups is not None:
            self._own[position].param_groups[0].update(self._settings(position))
        self._own[position].step()

    def state_dict(self):
        return [one.state_dict() for one in self._own]

    def load_state_dict(self, states):
        for one, state in zip(self._own, states, strict=True):
            one.load_state_dict(state)


class Averaging(Hooked):
    """Trains a model that is averaged with those of other workers each iteration.

    When backward has made a parameter's gradient, the parameter is updated locally and its average with others starts;
    the next forward pass waits for it where the parameter is used. Every worker keeps an exponential average of its
    parameters (SWA); with a decay of 0 that is the parameters themselves.

    The model is used as it is, and its gradients belong to the trainer: no zero_grad(). All ranks start from rank 0's
    parameters. Within no_sync() gradients are only accumulated. A parameter without a gradient on this rank is averaged
    as it is. A parameter is to be used by its module's forward(), or by that of the module around it if that has
    parameters of its own.

    Invariant: a parameter changes when its average is complete, never in part.
    """

    def __init__(self, model, optimizer, *, swa_decay=0.0):
        if not 0 <= swa_decay < 1:
            raise ValueError(f"swa_decay: {swa_decay}; from 0 to below 1 is allowed")
        super().__init__(model, [p for p in model.parameters() if p.requires_grad])
        self._decay = swa_decay
        self.iteration = 0
        self._optimizers = _ParameterOptimizers(optimizer, self._parameters)
        self._sums = [torch.empty_like(p) for p in self._parameters]  # what others have a hand in
        self._share_first()
        self._swa = [p.detach().clone() for p in self._parameters]
        self._attach()

    def _share_first(self):
        resynchronize(self._model)

    def _exchange(self, position):
        """For a subclass: starts to add other workers' parameters to self._sums[position], which holds this worker's.
        Returns the works in flight and how many models are in the sum when they are done."""
        raise NotImplementedError

    def _on_failure(self, error):
        """For a subclass: an average has failed, and this worker keeps what it has."""
        raise error

    def _start(self, position):
        """In flight are works, and the number of models that are in the sum."""
        parameter = self._parameters[position]
        self._optimizers.step(position)
        parameter.grad = None
        self._sums[position].copy_(parameter.data)
        try:
            return self._exchange(position)
        except RuntimeError as error:
            self._on_failure(error)
            return (), 1

    @torch.no_grad()
    def step(self):
        """After backward, on every rank."""
        if not self._hooks:
            raise self._error("step() after finish(), which has ended the training")
        self._wait_for_unused()
        self._order.ready.update(range(len(self._parameters)))
        self._order.start()
        self._order.end_round()
        self.iteration += 1

    @torch.no_grad()
    def _wait(self, positions):
        for position in positions:
            works, models = self._order.works.pop(position, (None, 1))
            if works is None:
                continue
            parameter = self._parameters[position]
            try:
                for work in works:
                    work.wait()
                if works:
                    torch.div(self._sums[position], models, out=parameter.data)
            except RuntimeError as error:
                self._on_failure(error)
            self._swa[position].lerp_(parameter.data, 1 - self._decay)

    def flush(self):
        """Waits for all averages in flight: before evaluation or a checkpoint."""
        self._wait(range(len(self._parameters)))

    @torch.no_grad()
    def finish(self, batches=None):
        """Ends the training: makes the model the exact average of all workers' weight averages, the same on all ranks,
        and recomputes the statistics of batch normalization from the batches, if any are given. The model is then as
        any other, without hooks."""
        self.flush()
        self._detach()
        for parameter, average in zip(self._parameters, self._swa, strict=True):
            parameter.data.copy_(average)
            dist.all_reduce(parameter.data)
            parameter.data.div_(dist.get_world_size())
        if batches is not None:
            update_bn(batches, self._model)
            for buffer in self._model.buffers():
                if buffer.dtype.is_floating_point:
                    dist.all_reduce(buffer)
                    buffer.div_(dist.get_world_size())

    def state_dict(self):
        """Of this rank: between step() and the next forward pass. The model's own state is saved apart, after it."""
        self.flush()
        return {"iteration": self.iteration, "swa": [average.clone() for average in self._swa],
                "optimizers": self._optimizers.state_dict()}

    def load_state_dict(self, state):
        """On all ranks together. Training goes on at the iteration of the checkpoint; averages in flight are of no
        use to it."""
        for works, _ in self._order.works.values():
            for work in works:
                work.wait()
        self._order.works.clear()
        self._order.end_round()
        self.iteration = state["iteration"]
        for mine, saved in zip(self._swa, state["swa"], strict=True):
            mine.copy_(saved)
        self._optimizers.load_state_dict(state["optimizers"])


class LocalSGD(Averaging):
    """Every worker for itself, and each `every` iterations the average of all."""

    def __init__(self, model, optimizer, every, **options):
        if every < 1:
            raise ValueError(f"every: {every}; 1 or more iterations are allowed")
        super().__init__(model, optimizer, **options)
        self._every = every

    def _exchange(self, position):
        if (self.iteration + 1) % self._every:
            return (), 1
        return (dist.all_reduce(self._sums[position], async_op=True),), dist.get_world_size()


class Gossip(Averaging):
    """The dynamic exponential graph: at iteration t rank r sends to rank r + 2^(t mod ⌈log2 w⌉) only, and averages its
    model with the one that comes (Assran et al., 2019)."""

    def __init__(self, model, optimizer, **options):
        super().__init__(model, optimizer, **options)
        self._theirs = [torch.empty_like(p) for p in self._parameters]

    def _exchange(self, position):
        rank, size = dist.get_rank(), dist.get_world_size()
        distances = (size - 1).bit_length()
        if distances == 0:
            return (), 1
        distance = 1 << (self.iteration % distances)
        mine, theirs = self._sums[position], self._theirs[position]
        sent = dist.isend(mine, (rank + distance) % size, tag=position)
        received = dist.irecv(theirs, (rank - distance) % size, tag=position)
        return (sent, received, _Then(lambda: mine.add_(theirs))), 2


class _Then:
    """What is to be done when the works before it are over."""

    def __init__(self, wait):
        self.wait = wait
