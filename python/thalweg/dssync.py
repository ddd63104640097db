"""DS-Sync: workers average parameters in small groups that change each iteration (docs/ds-sync.md).

src/sync makes the schedule and decides when to change it. The simulator uses the same code.
"""
import atexit
import logging
import threading
import time
import weakref

import torch
import torch.distributed as dist

from thalweg._sync import Groups
from thalweg.averaging import Averaging
from thalweg.backend import backend_of
from thalweg.members import MOST_ATTEMPTS, NEWCOMER

logger = logging.getLogger(__name__)

_made = weakref.WeakSet()  # all trainers, for _leave()
# The most groups that a schedule may have. Each is a process group with connections of its own;
# 1,024 workers have about 1,100.
MOST_GROUPS = 4096


@atexit.register
def _leave():
    """Drops all groups when the program exits: their threads call Python, which must still run."""
    for trainer in list(_made):
        trainer._order.works.clear()
        trainer._process_groups.clear()


def racks_of_sizes(sizes):
    """Returns the ranks of each rack, numbered in order: [4, 4] gives ranks 0 to 3 and 4 to 7."""
    racks, first = [], 0
    for size in sizes:
        racks.append(list(range(first, first + size)))
        first += size
    return racks


class _InFlight:
    """Adds up the time in which at least one average of an iteration is in flight.

    While the backward pass computes and nothing is in flight, the clock stands still. So a worker
    that computes longer is not mistaken for a slow link. Averages end on threads of the backend.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._count = 0  # averages in flight
        self._since = 0.0  # when the first of them began
        self._total = 0.0  # seconds before that

    def begin(self, now):
        with self._lock:
            if self._count == 0:
                self._since = now
            self._count += 1

    def end(self, now):
        with self._lock:
            self._count -= 1
            if self._count == 0:
                self._total += now - self._since

    def seconds(self, now):
        """Returns the time so far.

        An average that has ended may still be counted as in flight for a moment: its waiter can
        wake up before end() is called.
        """
        with self._lock:
            return self._total + (now - self._since if self._count > 0 else 0.0)


class _Alone:
    """The schedule of a worker that is the only one left. It has the methods of Groups."""

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
    """Trains a model by divide-and-shuffle synchronization (DS-Sync).

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        trainer = DSSync(model, optimizer, racks=[[0, 1], [2, 3]])
        for batch in data:
            loss(model(batch)).backward()
            trainer.step()
        trainer.finish(batches)  # the model is now the average of all workers' weight averages

    Every `window` iterations the workers exchange how long their averages were in flight. If that shows that
    a link has become slow, or is no longer slow, all workers change to another schedule at the same
    iteration, unless `adapt` is False. After each exchange `on_review(first iteration of the
    window, seconds[rank][iteration], period)` is called. The groups use the backend of the default
    process group, with `pg_options`.

    Instead of `racks`, `members` (thalweg.members.Members) may say who trains; workers may then die
    and join. DSSync makes the default process group itself in this case. When a worker dies, the
    others keep their models and continue without it, at the iteration of the most advanced worker.
    A newcomer joins at the end of a window and gets the state of a worker that already trains.
    """

    def __init__(self, model, optimizer, racks=None, *, members=None, seed=1, window=32, adapt=True,
                 swa_decay=0.99, pg_options=None, on_review=None):
        if window < 1:
            raise ValueError(f"window: {window}; 1 or more iterations are allowed")
        if (racks is None) == (members is None):
            raise ValueError("racks, members: one of the two must be given")
        if members is not None and getattr(pg_options, "transport", "") == "atp":
            raise ValueError("pg_options: transport 'atp' with members: a switch that refuses a "
                             "group would be mistaken for a dead worker; 'auto' is allowed")
        self._members, self._seed, self._window, self._adapt = members, seed, window, adapt
        self._pg_options, self._on_review = pg_options, on_review
        self._failure = None
        self._process_groups = {}  # ranks of a group: its process group
        self.changes = []  # (iteration, slow racks, slow workers) for each change of the schedule
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
        """The factor by which one period shrinks the differences between the workers' models."""
        return self._groups.rho()

    @property
    def period(self):
        """The groups of ranks in each iteration of a period."""
        return self._period

    def _set_racks(self, racks):
        workers = sum(len(rack) for rack in racks)
        if workers != dist.get_world_size():
            raise ValueError(f"racks: {workers} workers; the world has {dist.get_world_size()}")
        self._racks = [list(rack) for rack in racks]
        alone = self._members is not None and workers == 1
        self._groups = _Alone() if alone else Groups(self._racks, self._seed)

    def _begin(self):
        """Uses the schedule of self._groups from this iteration on, and begins a new window."""
        self._first_window = self.iteration  # the first iteration of this window
        self._clocks = self._new_clocks()
        self._use_schedule()

    def _new_clocks(self):
        return [_InFlight() for _ in range(self._window)]  # for each iteration of a window

    def _use_schedule(self):
        """Makes the process groups of the schedule.

        All ranks call this together. It checks that they have the same schedule.
        """
        Groups.check_words(self._gathered(self._groups.word(self.iteration), torch.int64))
        self._group_now = (-1, ())  # the current iteration, and this worker's group in it
        self._period = self._groups.period()
        # A dict keeps the order of the period, which is the same on all ranks.
        needed = dict.fromkeys(tuple(group) for groups in self._period for group in groups
                               if len(group) > 1)
        if len(needed) > MOST_GROUPS:
            raise ValueError(f"racks: their schedule has {len(needed)} groups of workers; at most "
                             f"{MOST_GROUPS} are allowed")
        # No rank still uses the groups that go: every rank had waited for its averages before it
        # took part in _gathered() above.
        for members in self._process_groups.keys() - needed.keys():
            dist.destroy_process_group(self._process_groups.pop(members))
        for members in needed:
            if members not in self._process_groups:
                self._process_groups[members] = dist.new_group(list(members),
                                                               pg_options=self._pg_options)
        self._warn_of_switches(needed)

    def _warn_of_switches(self, groups):
        """Logs a warning if groups have no switch, for which every group counts as a job."""
        if not getattr(self._pg_options, "by_switch", False):
            return
        mine = [group for group in groups if dist.get_rank() in group]
        device = self._parameters[0].device
        without = [group for group in mine
                   if not backend_of(self._process_groups[group], device).has_switch]
        if without:
            logger.warning("iteration %d: %d of worker %d's %d groups have no switch: none is "
                           "there, or it has no room for more jobs (max_jobs); %s", self.iteration,
                           len(without), dist.get_rank(), len(mine),
                           "they go over tcp" if self._pg_options.transport == "auto"
                           else "their workers add up")

    def _gathered(self, numbers, dtype):
        """Returns the numbers of all ranks.

        Moves them as a tensor on the model's device, because the backend may move no others.
        """
        mine = torch.tensor(numbers, dtype=dtype, device=self._parameters[0].device)
        lists = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(lists, mine)
        return [one.tolist() for one in lists]

    def _group(self, iteration):
        """Returns the group of this worker in an iteration, the worker included."""
        return tuple(self._groups.group_of(iteration, dist.get_rank()))

    def _exchange(self, position):
        if self._group_now[0] != self.iteration:
            self._group_now = (self.iteration, self._group(self.iteration))
        members = self._group_now[1]
        if len(members) == 1 or self._failure is not None:
            return (), 1
        work = dist.all_reduce(self._sums[position], group=self._process_groups[members],
                               async_op=True)
        clock = self._clocks[self.iteration - self._first_window]
        clock.begin(time.monotonic())
        work.get_future().add_done_callback(lambda _: clock.end(time.monotonic()))
        return (work,), len(members)

    def _seconds(self):
        """Returns how long the averages of each iteration of this window were in flight."""
        now = time.monotonic()
        return [clock.seconds(now) for clock in self._clocks]

    def _on_failure(self, error):
        if self._members is None:
            raise error
        if self._failure is None:
            logger.warning("iteration %d: %s", self.iteration, error)
            self._failure = error
            self._members.announce_trouble()

    def step(self):
        """Ends an iteration. Every rank calls this after backward().

        Returns at once, except in the last iteration of a window and after a worker has died.
        """
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
        """Ends a window: lets newcomers join, or changes the schedule if a link has changed."""
        self.flush()
        if self._failure is not None:
            raise self._failure
        seconds = self._seconds()
        first, self._first_window = self._first_window, self.iteration
        self._clocks = self._new_clocks()
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
            logger.warning("iteration %d: slow racks %s, slow workers %s: schedule changed, "
                           "period %d, rho %.3f", self.iteration, *found,
                           len(self._groups.period()), self._groups.rho())
        self._use_schedule()

    def _regroup(self):
        """Forms the next generation, of the living workers and of newcomers, and begins it."""
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
            self._process_groups = {}  # they were destroyed with the default process group
            try:
                self._take_state()
                self._set_racks(self._members.racks)
                self._begin()
                return
            except RuntimeError as error:
                self._on_failure(error)
        raise RuntimeError(f"iteration {self.iteration}: {MOST_ATTEMPTS} generations of workers in "
                           "a row fell apart before they had begun") from self._failure

    @torch.no_grad()
    def _take_state(self):
        """Makes all workers continue at one iteration, that of the most advanced worker.

        Newcomers take the state of that worker. At the very beginning all workers do.
        """
        members = self._members.members
        furthest = max(range(len(members)), key=lambda rank: members[rank].iteration)
        begins = members[furthest].iteration == 0
        takes = begins or not self._has_state
        if begins or any(member.iteration == NEWCOMER for member in members):
            for tensor in (*self._model.parameters(), *self._model.buffers(), *self._swa):
                keeps = not takes and dist.get_rank() != furthest
                dist.broadcast(tensor.clone() if keeps else tensor.detach(), furthest)
            box = [self._optimizers.state_dict(), self._averaged]
            dist.broadcast_object_list(box, furthest)
            if takes:
                self._optimizers.load_state_dict(box[0])
                self._averaged = box[1]
        self.iteration = members[furthest].iteration
        self._has_state = True

    def finish(self, batches=None):
        """Ends the training as Averaging.finish() does, and destroys the groups.

        Their threads note times in Python, so they must not outlive the interpreter. A switch gets
        room for other jobs.
        """
        super().finish(batches)
        while self._process_groups:
            dist.destroy_process_group(self._process_groups.popitem()[1])

    def _share_first(self):
        if self._members is None:
            super()._share_first()

    def state_dict(self):
        return {**super().state_dict(), "seed": self._seed, "racks": self._racks}

    def load_state_dict(self, state):
        """Continues the training from a checkpoint. All ranks call this together.

        The training starts from the first schedule and senses anew which links are slow.
        """
        for field, ours in (("seed", self._seed), ("racks", self._racks)):
            if state[field] != ours:
                raise ValueError(f"{field}: the checkpoint has {state[field]}, this job {ours}")
        super().load_state_dict(state)
        self.changes.clear()
        self._set_racks(self._racks)
        self._begin()
