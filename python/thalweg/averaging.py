"""Training in which every worker updates its own model and averages parameters with other workers.

`Averaging` has what all such strategies share. Its subclasses decide who averages with whom:
`DSSync` (thalweg.dssync), and `LocalSGD` and `Gossip` in this module.
"""
import itertools

import torch
import torch.distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.optim.swa_utils import update_bn

from thalweg.gradient_hooks import Hooked, resynchronize


class _ParameterOptimizers:
    """One optimizer for each parameter, so that each can step as soon as its gradient is there.

    `optimizer` is an optimizer of torch.optim over the model's parameters, or a function that makes
    one for a list of parameters. An optimizer that is given never steps itself; every step uses its
    current settings, so learning-rate schedulers work.
    """

    def __init__(self, optimizer, parameters):
        self._groups = None
        if not isinstance(optimizer, torch.optim.Optimizer):
            self._own = [optimizer([parameter]) for parameter in parameters]
            return
        group_of = {parameter: group for group in optimizer.param_groups
                    for parameter in group["params"]}
        missing = [tuple(parameter.shape) for parameter in parameters if parameter not in group_of]
        if missing:
            raise ValueError("optimizer: it has no parameter group for a parameter of shape "
                             f"{missing[0]}")
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


def decay_after(averaged, decay):
    """Returns the weight that a weight average keeps when the next model is added to it.

    `averaged` is how many models the average already has. The weight is that of a running mean
    until it reaches `decay`. So the first model replaces whatever the average began with, and
    every model in a short training counts alike.
    """
    return min(decay, averaged / (averaged + 1))


def recompute_statistics(model, batches):
    """Recomputes the statistics of batch normalization from the batches of all ranks together.

    All ranks call this. It returns False and changes nothing if no rank has a batch. Otherwise the
    statistics are those that update_bn() computes in one process from the batches of all ranks.
    """
    batches = iter(batches if batches is not None else ())
    first = list(itertools.islice(batches, 1))
    with_batches = torch.tensor(len(first), device=next(model.parameters()).device)
    dist.all_reduce(with_batches)
    if with_batches.item() == 0:
        return False
    update_bn(itertools.chain(first, batches), model)
    return True


def average_statistics(model, by_batches):
    """Makes the statistics of all normalization layers their mean over the ranks.

    If `by_batches`, a rank counts as often as its batch normalization has seen batches since
    update_bn(). Otherwise all ranks count alike.
    """
    for layer in model.modules():
        if not isinstance(layer, _NormBase) or layer.running_mean is None:
            continue
        mine, of_all = 1, dist.get_world_size()
        if by_batches and isinstance(layer, _BatchNorm):
            seen = layer.num_batches_tracked.clone()
            dist.all_reduce(layer.num_batches_tracked)
            if layer.num_batches_tracked.item() > 0:  # 0: the model has not used the layer
                mine, of_all = seen.item(), layer.num_batches_tracked.item()
        for statistic in (layer.running_mean, layer.running_var):
            # Half precision would round the sum of many ranks.
            total = mine * statistic.to(torch.promote_types(statistic.dtype, torch.float32))
            dist.all_reduce(total)
            statistic.copy_(total / of_all)


class Averaging(Hooked):
    """Trains a model, and averages it with the models of other workers each iteration.

    As soon as the backward pass has made a parameter's gradient, this worker updates the parameter
    and starts to average it with other workers. The next forward pass waits for the average where
    it uses the parameter. Every worker keeps an average of its parameters over the iterations
    (stochastic weight averaging, SWA). It is the mean of all iterations so far until that has a
    decay of `swa_decay`, and from then on an exponential average with that decay. The parameters
    that the training began with are no part of it. With a decay of 0 it equals the parameters.

    Call the model as usual, but do not call zero_grad(): the trainer manages the gradients. All
    ranks start from rank 0's parameters. Within no_sync() backward passes only accumulate
    gradients. A parameter without a gradient on this rank is averaged without an update. A
    parameter must be used by the forward() of its own module, or by that of the enclosing module if
    that has parameters of its own.

    Invariant: a parameter changes only when its average is complete, never in part.
    """

    def __init__(self, model, optimizer, *, swa_decay=0.0):
        if not 0 <= swa_decay < 1:
            raise ValueError(f"swa_decay: {swa_decay}; from 0 to below 1 is allowed")
        super().__init__(model, [p for p in model.parameters() if p.requires_grad])
        self._decay = swa_decay
        self.iteration = 0
        self._optimizers = _ParameterOptimizers(optimizer, self._parameters)
        # The sums in flight, apart from the parameters, so that a failure leaves those whole.
        self._sums = [torch.empty_like(p) for p in self._parameters]
        self._share_first()
        self._swa = [p.detach().clone() for p in self._parameters]
        self._averaged = [0] * len(self._parameters)  # how many models each of self._swa has
        self._attach()

    def _share_first(self):
        resynchronize(self._model)

    def _exchange(self, position):
        """Starts to add others' parameters to self._sums[position], which holds this worker's.

        Returns the works in flight, and how many models are in the sum when they are done. A
        subclass defines this.
        """
        raise NotImplementedError

    def _on_failure(self, error):
        """Handles an average that has failed; this worker keeps its own parameter.

        A subclass may override this.
        """
        raise error

    def _start(self, position):
        """Returns the works in flight, and how many models are in the sum when they are done."""
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
        """Ends an iteration. Every rank calls this after backward()."""
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
            kept = decay_after(self._averaged[position], self._decay)
            self._swa[position].lerp_(parameter.data, 1 - kept)
            self._averaged[position] += 1

    def flush(self):
        """Waits for all averages in flight. Call this before an evaluation or a checkpoint."""
        self._wait(range(len(self._parameters)))

    @torch.no_grad()
    def finish(self, batches=None):
        """Ends the training, and removes the hooks from the model.

        The parameters become the exact average of all workers' weight averages. If any rank gives
        `batches`, the statistics of batch normalization are recomputed from the batches of all
        ranks. Otherwise they become the mean of the workers' statistics; those describe the models
        that were trained, and only approximate their average. All other buffers become those of
        rank 0. All ranks then have the same model, bit for bit.
        """
        self.flush()
        self._detach()
        for parameter, average in zip(self._parameters, self._swa, strict=True):
            parameter.data.copy_(average)
            dist.all_reduce(parameter.data)
            parameter.data.div_(dist.get_world_size())
        average_statistics(self._model, recompute_statistics(self._model, batches))
        resynchronize(self._model)

    def state_dict(self):
        """Returns this rank's state of the training.

        Call this between step() and the next forward pass. It does not contain the model's own
        state, which must be saved after this call.
        """
        self.flush()
        return {"iteration": self.iteration, "swa": [average.clone() for average in self._swa],
                "averaged": list(self._averaged), "optimizers": self._optimizers.state_dict()}

    def load_state_dict(self, state):
        """Continues the training from a checkpoint. All ranks call this together.

        Averages in flight are waited for and dropped.
        """
        for works, _ in self._order.works.values():
            for work in works:
                work.wait()
        self._order.works.clear()
        self._order.end_round()
        self.iteration = state["iteration"]
        for mine, saved in zip(self._swa, state["swa"], strict=True):
            mine.copy_(saved)
        self._averaged = list(state["averaged"])
        self._optimizers.load_state_dict(state["optimizers"])


class LocalSGD(Averaging):
    """Every worker trains alone, and every `every` iterations all workers average their models."""

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
    """Gossip on the dynamic exponential graph (Assran et al., 2019).

    In iteration t, rank r of w sends its model to rank r + 2^(t mod ⌈log2 w⌉) only, and averages
    its own with the one that it receives.
    """

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
    """Looks like a work, so that a call can follow other works: wait() makes the call."""

    def __init__(self, wait):
        self.wait = wait
