"""DS-Sync: workers average parameters in small groups that change each iteration (docs/ds-sync.md).

The schedule and the decision to change it are those of src/sync, which the simulator runs too.
"""
import atexit
import logging
import time
import weakref

import torch
import torch.distributed as dist

from thalweg._sync import Groups
from thalweg.averaging import Averaging
from thalweg.backend import backend_of
from thalweg.members import MOST_ATTEMPTS, NEWCOMER

logger = logging.getLogger(__name__)

_made = weakref.WeakSet()
MOST_GROUPS = 4096  # of a schedule, each a process group with connections of its own; 1,024 workers have some 1,100


@atexit.register
def _leave():
    """Groups whose threads call Python back must not outlive the interpreter."""
    for trainer in list(_made):
        trainer._order.works.clear()
        trainer._process_groups.clear()


def racks_of_sizes(sizes):
    """[4, 4]: ranks 0 to 3 are in the first rack, 4 to 7 in the second."""
    racks, first = [], 0
    for size in sizes:
        racks.append(list(range(first, first + size)))
        first += size
    return racks


class _Alone:
    """The schedule of the last worker."""

    def period(self):
        return [[[0]]]

    def group_of(self, _iteration, worker):
        return [worker]

    def word(self, from_iteration):
        return [1, 0, 0, from_iteration]

    def rho(self):
        return 0.0

    def review(self, _first, _seconds):
        return None


class DSSync(Averaging):
    """Trains a model by divide-and-shuffle synchronization.

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        trainer = DSSync(model, optimizer, racks=[[0, 1], [2, 3]])
        for batch in data:
            loss(model(batch)).backward()
            trainer.step()
        trainer.finish(batches)  # the model is now the average of all workers' weight averages

    Every `window` iterations the workers exchange how long their averages took, and if a link has become slow or is so
    no longer, all go over to another schedule at the same iteration. `on_review(first iteration, seconds[rank][iteration],
    period)` is told these times. Groups are of the default group's backend; `pg_options` are theirs.

    Instead of racks, `members` (thalweg.members.Members) says who trains. Then a worker that dies leaves the schedule:
    the others keep their models and go on, at the iteration of whoever is furthest; and a newcomer gets the state of
    one that is there and joins at the end of a window. The default process group is then DSSync's to make.
    """

    def __init__(self, model, optimizer, racks=None, *, members=None, seed=1, window=32, adapt=True, swa_decay=0.99,
                 pg_options=None, on_review=None):
        if window < 1:
            raise ValueError(f"window: {window}; 1 or more iterations are allowed")
        if (racks is None) == (members is None):
            raise ValueError("racks, members: one of the two must be given")
        if members is not None and getattr(pg_options, "transport", "") == "atp":
            raise ValueError("pg_options: transport 'atp' with members: a switch that refuses a group would pass for a dead "
                             "worker; 'auto' is allowed")
        self._members, self._seed, self._window, self._adapt = members, seed, window, adapt
        self._pg_options, self._on_review = pg_options, on_review
        self._failure = None
        self._process_groups = {}  # members: theirs
        self.changes = []  # (iteration, slow racks, slow workers), as the schedule changed
        if members is None:
            self._set_racks(racks)
        super().__init__(model, optimizer, swa_decay=swa_decay)
        _made.add(self)
        if members is None:
            self._begin()
        else:
            self._has_state = not members.newcomer
            self._form()
            self._begin_generation()

    @property
    def rho(self):
        """What one period leaves of a disagreement."""
        return self._groups.rho()

    @property
    def period(self):
        """The groups of ranks of each iteration."""
        return self._period

    def _set_racks(self, racks):
        workers = sum(len(rack) for rack in racks)
        if workers != dist.get_world_size():
            raise ValueError(f"racks: {workers} workers; the world has {dist.get_world_size()}")
        self._racks = [list(rack) for rack in racks]
        alone = self._members is not None and workers == 1
        self._groups = _Alone() if alone else Groups(self._racks, self._seed)

    def _begin(self):
        """From this iteration on, by the schedule of self._groups; the network is learnt anew."""
        self._first_window = self.iteration
        self._seconds = [0.0] * self._window  # of the iterations of this window
        self._started = {}  # iteration: when its first average started
        self._use_schedule()

    def _use_schedule(self):
        """Makes the process groups of the schedule, which all ranks do together, and checks that it is theirs too."""
        Groups.check_words(self._gathered(self._groups.word(self.iteration), torch.int64))
        self._group_now = (-1, ())  # an iteration, and this worker's group in it
        self._period = self._groups.period()
        # In the order of the period, the same on all ranks.
        needed = dict.fromkeys(tuple(group) for groups in self._period for group in groups if len(group) > 1)
        if len(needed) > MOST_GROUPS:
            raise ValueError(f"racks: their schedule has {len(needed)} groups of workers; at most {MOST_GROUPS} are allowed")
        # Nobody is still in one of them: all had waited for their averages before they gathered words.
        for members in self._process_groups.keys() - needed.keys():
            dist.destroy_process_group(self._process_groups.pop(members))
        for members in needed:
            if members not in self._process_groups:
                self._process_groups[members] = dist.new_group(list(members), pg_options=self._pg_options)
        self._warn_of_switches(needed)

    def _warn_of_switches(self, groups):
        """A switch has room for so many jobs, and every group is one."""
        if not getattr(self._pg_options, "by_switch", False):
            return
        mine = [group for group in groups if dist.get_rank() in group]
        device = self._parameters[0].device
        without = [group for group in mine if not backend_of(self._process_groups[group], device).has_switch]
        if without:
            logger.warning("iteration %d: %d of worker %d's %d groups have no switch: none is there, or it has no room for "
                           "more jobs (max_jobs); %s", self.iteration, len(without), dist.get_rank(), len(mine),
                           "they go over tcp" if self._pg_options.transport == "auto" else "their workers add up")

    def _gathered(self, numbers, dtype):
        """Of all ranks; by tensors of the model's device, since a backend may move no others."""
        mine = torch.tensor(numbers, dtype=dtype, device=self._parameters[0].device)
        lists = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(lists, mine)
        return [one.tolist() for one in lists]

    def _group(self, iteration):
        """This worker's, itself among them."""
        return tuple(self._groups.group_of(iteration, dist.get_rank()))

    def _exchange(self, position):
        if self._group_now[0] != self.iteration:
            self._group_now = (self.iteration, self._group(self.iteration))
        members = self._group_now[1]
        if len(members) == 1 or self._failure is not None:
            return (), 1
        work = dist.all_reduce(self._sums[position], group=self._process_groups[members], async_op=True)
        started, place = time.monotonic(), self.iteration - self._first_window
        first = self._started.setdefault(self.iteration, started)
        seconds = self._seconds  # a late call back must not meet the next window's
        work.get_future().add_done_callback(lambda _: self._note(seconds, place, first))
        return (work,), len(members)

    def _note(self, seconds, place, first):
        """The last average of an iteration to end says how long all took."""
        seconds[place] = max(seconds[place], time.monotonic() - first)

    def _on_failure(self, error):
        if self._members is None:
            raise error
        if self._failure is None:
            logger.warning("iteration %d: %s", self.iteration, error)
            self._failure = error
            self._members.announce_trouble()

    def step(self):
        """After backward, on every rank. Returns at once, but for the last iteration of a window and when a worker has
        died."""
        super().step()
        if self._members is not None and (self._failure is not None or self._members.in_trouble()):
            self._regroup()
        elif self.iteration - self._first_window == self._window:
            try:
                self._review()
            except RuntimeError as error:
                self._on_failure(error)
                self._regroup()

    def _review(self):
        self.flush()
        if self._failure is not None:
            raise self._failure
        first, self._first_window = self._first_window, self.iteration
        seconds, self._seconds = self._seconds, [0.0] * self._window
        self._started.clear()
        others_wait = self._members is not None and self._members.others_wait()
        rows = self._gathered([*seconds, float(others_wait)], torch.float64)
        all_seconds = [row[:-1] for row in rows]
        if self._on_review is not None:
            self._on_review(first, all_seconds, self._period)
        if any(row[-1] for row in rows):
            self._regroup()
            return
        found = self._groups.review(first, all_seconds) if self._adapt else None
        if found is None:
            return
        self._groups.adjust(*found)
        self.changes.append((self.iteration, *found))
        if dist.get_rank() == 0:
            logger.warning("iteration %d: slow racks %s, slow workers %s: schedule changed, period %d, rho %.3f",
                           self.iteration, *found, len(self._groups.period()), self._groups.rho())
        self._use_schedule()

    def _regroup(self):
        """The next generation of workers: of those who are alive, and of newcomers."""
        self.flush()
        self._form()
        self._begin_generation()

    def _form(self):
        self._members.form(self.iteration if self._has_state else NEWCOMER)

    def _begin_generation(self):
        for attempt in range(MOST_ATTEMPTS):
            if attempt > 0:
                self._form()
            self._failure = None
            self._process_groups = {}  # they went with the default group
            try:
                self._take_state()
                self._set_racks(self._members.racks)
                self._begin()
                return
            except RuntimeError as error:
                self._on_failure(error)
        raise RuntimeError(f"iteration {self.iteration}: {MOST_ATTEMPTS} generations of workers in a row fell apart before they "
                           "had begun") from self._failure

    @torch.no_grad()
    def _take_state(self):
        """All go on at one iteration, that of the worker that is furthest. Newcomers get its state, and at the very
        beginning all do."""
        members = self._members.members
        furthest = max(range(len(members)), key=lambda rank: members[rank].iteration)
        begins = members[furthest].iteration == 0
        takes = begins or not self._has_state
        if begins or any(member.iteration == NEWCOMER for member in members):
            for tensor in (*self._model.parameters(), *self._model.buffers(), *self._swa):
                dist.broadcast(tensor.detach() if takes or dist.get_rank() == furthest else tensor.clone(), furthest)
            box = [self._optimizers.state_dict()]
            dist.broadcast_object_list(box, furthest)
            if takes:
                self._optimizers.load_state_dict(box[0])
        self.iteration = members[furthest].iteration
        self._has_state = True

    def finish(self, batches=None):
        """As Averaging's. The groups go with the training: their threads, which note times in Python, must not meet the
        end of the interpreter, and a switch has room for others."""
        super().finish(batches)
        while self._process_groups:
            dist.destroy_process_group(self._process_groups.popitem()[1])

    def _share_first(self):
        if self._members is None:
            super()._share_first()

    def state_dict(self):
        return {**super().state_dict(), "seed": self._seed, "racks": self._racks}

    def load_state_dict(self, state):
        """On all ranks together. Training goes on at the iteration of the checkpoint; what the network is like now is
        learnt anew."""
        for field, ours in (("seed", self._seed), ("racks", self._racks)):
            if state[field] != ours:
                raise ValueError(f"{field}: the checkpoint has {state[field]}, this job {ours}")
        super().load_state_dict(state)
        self.changes.clear()
        self._set_racks(self._racks)
        self._begin()
