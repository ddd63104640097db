"""DS-Sync: workers average parameters in small groups that change each iteration (docs/ds-sync.md).

The schedule and the decision to change it are those of src/sync, which the simulator runs too.
"""
import logging
import time

import torch
import torch.distributed as dist
from torch.optim.swa_utils import update_bn

from thalweg._sync import Groups

logger = logging.getLogger(__name__)

DIGEST_HALF = 1 << 32  # a digest travels as two numbers that a float64 holds


def racks_of_sizes(sizes):
    """[4, 4]: ranks 0 to 3 are in the first rack, 4 to 7 in the second."""
    racks, first = [], 0
    for size in sizes:
        racks.append(list(range(first, first + size)))
        first += size
    return racks


class DSSync:
    """Trains a model by divide-and-shuffle synchronization.

        trainer = DSSync(model, lambda parameters: torch.optim.SGD(parameters, lr=0.1), racks=[[0, 1], [2, 3]])
        for batch in data:
            loss(model(batch)).backward()
            trainer.step()
        trainer.finish(batches)  # the model is now the average of all workers' weight averages

    When backward has made a parameter's gradient, the parameter is updated locally and its average over the group of
    this iteration starts; the next forward pass waits for it where the parameter is used. Every worker keeps an
    exponential average of its parameters (SWA). Every `window` iterations the workers exchange how long their averages
    took, and if a link has become slow or is so no longer, all go over to another schedule at the same iteration.

    The model is used as it is, and its gradients belong to the trainer: no zero_grad(). All ranks start from rank 0's
    parameters. A parameter without a gradient on this rank is averaged as it is.

    Invariant: averages start in one order, that of the parameters from last to first, so on all ranks alike.
    """

    def __init__(self, model, make_optimizer, racks, *, seed=1, window=32, adapt=True, swa_decay=0.99):
        if window < 1:
            raise ValueError(f"window: {window}; 1 or more iterations are allowed")
        if not 0 <= swa_decay < 1:
            raise ValueError(f"swa_decay: {swa_decay}; from 0 to below 1 is allowed")
        workers = sum(len(rack) for rack in racks)
        if workers != dist.get_world_size():
            raise ValueError(f"racks: {workers} workers; the world has {dist.get_world_size()}")
        self._groups = Groups([list(rack) for rack in racks], seed, window)
        self._racks, self._seed, self._window, self._adapt = racks, seed, window, adapt
        self._decay = swa_decay
        self._model = model
        self.iteration = 0
        self.changes = []  # (iteration, slow racks, slow workers), as the schedule changed
        self._process_groups = {}
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._optimizers = [make_optimizer([p]) for p in self._parameters]
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor.detach(), 0)
        self._swa = [p.detach().clone() for p in self._parameters]
        self._works = {}  # position: in flight
        self._ready = set()  # positions whose gradient is complete
        self._next = len(self._parameters) - 1  # the position that starts next
        self._first_window = 0
        self._seconds = [0.0] * window  # of the iterations of this window
        self._started = {}  # iteration: when its first average started
        self._use_schedule()
        position_of = {p: i for i, p in enumerate(self._parameters)}
        for module in model.modules():
            used = [position_of[p] for p in module.parameters(recurse=False) if p in position_of]
            if used:
                module.register_forward_pre_hook(lambda _m, _i, used=used: self._wait(used))
        for position, parameter in enumerate(self._parameters):
            parameter.register_post_accumulate_grad_hook(lambda _, position=position: self._on_gradient(position))

    @property
    def rho(self):
        """What one period leaves of a disagreement."""
        return self._groups.rho()

    def _use_schedule(self):
        """Makes the process groups of the schedule, which all ranks do together, and checks that it is theirs too."""
        digest = self._groups.digest()
        words = self._gathered([self.iteration, self._seed, digest // DIGEST_HALF, digest % DIGEST_HALF])
        for rank, word in enumerate(words):
            if word != words[0]:
                what = ["first iteration", "seed", "schedule", "schedule"]
                names = ", ".join(dict.fromkeys(n for n, a, b in zip(what, word, words[0], strict=True) if a != b))
                raise ValueError(f"DSSync: rank {rank} differs from rank 0 in: {names}")
        self._period = self._groups.period()
        for groups in self._period:
            for group in groups:
                members = tuple(group)
                if len(members) > 1 and members not in self._process_groups:
                    self._process_groups[members] = dist.new_group(list(members))

    @staticmethod
    def _gathered(numbers):
        mine = torch.tensor(numbers, dtype=torch.float64)
        lists = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(lists, mine)
        return [one.tolist() for one in lists]

    def _group(self, iteration):
        rank = dist.get_rank()
        groups = self._period[iteration % len(self._period)]
        return next(tuple(group) for group in groups if rank in group)

    def _on_gradient(self, position):
        self._ready.add(position)
        self._start_ready()

    @torch.no_grad()
    def _start_ready(self):
        while self._next >= 0 and self._next in self._ready:
            self._start(self._next)
            self._next -= 1

    def _start(self, position):
        parameter = self._parameters[position]
        self._optimizers[position].step()
        parameter.grad = None
        members = self._group(self.iteration)
        work = None
        if len(members) > 1:
            work = dist.all_reduce(parameter.data, group=self._process_groups[members], async_op=True)
            started, place = time.monotonic(), self.iteration - self._first_window
            first = self._started.setdefault(self.iteration, started)
            seconds = self._seconds  # a late call back must not meet the next window's
            work.get_future().add_done_callback(lambda _: self._note(seconds, place, first))
        self._works[position] = (work, len(members))

    def _note(self, seconds, place, first):
        """The last average of an iteration to end says how long all took."""
        seconds[place] = max(seconds[place], time.monotonic() - first)

    def step(self):
        """After backward, on every rank. Returns at once, but for the last iteration of a window."""
        self._ready.update(range(len(self._parameters)))
        self._start_ready()
        self._ready.clear()
        self._next = len(self._parameters) - 1
        self.iteration += 1
        if self.iteration - self._first_window == self._window:
            self._review()

    def _review(self):
        self.flush()
        first, self._first_window = self._first_window, self.iteration
        seconds, self._seconds = self._seconds, [0.0] * self._window
        self._started.clear()
        if not self._adapt:
            return
        found = self._groups.review(first, self._gathered(seconds))
        if found is None:
            return
        self._groups.adjust(*found)
        self.changes.append((self.iteration, *found))
        if dist.get_rank() == 0:
            logger.warning("iteration %d: slow racks %s, slow workers %s: schedule changed, period %d, rho %.3f",
                           self.iteration, *found, len(self._groups.period()), self._groups.rho())
        self._use_schedule()

    @torch.no_grad()
    def _wait(self, positions):
        for position in positions:
            entry = self._works.pop(position, None)
            if entry is None:
                continue
            work, members = entry
            parameter = self._parameters[position]
            if work is not None:
                work.wait()
                parameter.data.div_(members)
            self._swa[position].lerp_(parameter.data, 1 - self._decay)

    def flush(self):
        """Waits for all averages in flight: before evaluation or a checkpoint."""
        self._wait(range(len(self._parameters)))

    @torch.no_grad()
    def finish(self, batches=None):
        """Makes the model the exact average of all workers' weight averages, the same on all ranks, and recomputes
        the statistics of batch normalization from the batches, if any are given."""
        self.flush()
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
        return {"iteration": self.iteration, "seed": self._seed, "racks": self._racks,
                "swa": [average.clone() for average in self._swa],
                "optimizers": [optimizer.state_dict() for optimizer in self._optimizers]}

    def load_state_dict(self, state):
        """On all ranks together. Training goes on at the iteration of the checkpoint; what the network is like now is
        learnt anew."""
        for field, ours in (("seed", self._seed), ("racks", self._racks)):
            if state[field] != ours:
                raise ValueError(f"{field}: the checkpoint has {state[field]}, this job {ours}")
        self.iteration = self._first_window = state["iteration"]
        self._groups = Groups([list(rack) for rack in self._racks], self._seed, self._window)
        self._seconds = [0.0] * self._window
        for mine, saved in zip(self._swa, state["swa"], strict=True):
            mine.copy_(saved)
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self._use_schedule()
