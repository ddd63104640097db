"""Who trains together, where workers may die or come while a job runs.

Workers have names and racks; ranks change. The members of a generation are one process group, the default one. A new
generation is made when a worker has died or others want to join: all who are alive register for it in the store, and
one of them, whoever is first, writes down who is in it.

The store must outlive every worker: one that a launcher or a process of its own keeps (torch.distributed.TCPStore).
"""
import dataclasses
import json
import logging
import time
from datetime import timedelta

import torch.distributed as dist

logger = logging.getLogger(__name__)

NEWCOMER = -1  # the iteration of a worker that has no state yet
POLL_SECONDS = 0.02
MOST_ATTEMPTS = 8  # generations in a row that fall apart before they have begun


@dataclasses.dataclass(frozen=True, order=True)
class Member:
    rack: str
    name: str
    iteration: int  # where it was when it registered; NEWCOMER: it has no state


class Members:
    """One worker's view of the members of its job.

    With `start`, so many workers begin the job together; without, the worker joins one that runs. When a worker has
    died, those who have not registered for the next generation `patience` seconds after the first have are taken for
    dead: longer than an iteration takes. `timeout` ends what waits for a worker that is silent without being closed.
    A newcomer waits `join_timeout` seconds to be let in: longer than a window of the others takes, at whose end they do.

    Invariants:
    1. The members of a generation are written once (compare-and-set), so all agree on them.
    2. Ranks are in the order of racks and names: the same list gives the same ranks everywhere.
    """

    def __init__(self, store, name, rack, *, start=None, backend="thalweg", patience=10.0, timeout=60.0,
                 join_timeout=600.0):
        if start is not None and start < 1:
            raise ValueError(f"start: {start}; 1 or more workers are allowed")
        if not patience > 0:
            raise ValueError(f"patience: {patience}; seconds above 0 are allowed")
        self._store = dist.PrefixStore("thalweg.members", store)
        self._name, self._rack, self._backend = name, rack, backend
        if not join_timeout > 0:
            raise ValueError(f"join_timeout: {join_timeout}; seconds above 0 are allowed")
        self._patience, self._timeout, self._join_timeout = patience, timeout, join_timeout
        self._start = start
        self.generation = -1
        self.members = []

    @property
    def newcomer(self):
        """This worker joins a job that runs."""
        return self._start is None

    @property
    def racks(self):
        """The ranks of each rack."""
        racks = {}
        for rank, member in enumerate(self.members):
            racks.setdefault(member.rack, []).append(rank)
        return list(racks.values())

    def announce_trouble(self):
        """Another worker has failed: all are to come to the next generation."""
        self._store.set(f"{self.generation + 1}/trouble", "1")

    def in_trouble(self):
        return self._store.check([f"{self.generation + 1}/trouble"])

    def others_wait(self):
        """Workers want to join."""
        return self._registered_count(self.generation + 1) > 0

    def form(self, iteration):
        """The next generation, as a process group; the members in self.members. `iteration` is this worker's, or
        NEWCOMER. Others' errors are tried again; an error if the others went on without this worker."""
        for _ in range(MOST_ATTEMPTS):
            if dist.is_initialized():
                dist.destroy_process_group()
            before = {member.name for member in self.members}
            self.generation = self._next_generation()
            decided = self._agree(iteration, before)
            if all(member.name != self._name for member in decided):
                if iteration == NEWCOMER:
                    continue
                raise RuntimeError(f"worker {self._name}: the others went on without it, since it did not register "
                                   f"within patience ({self._patience} s)")
            self.members = decided
            gone = before - {member.name for member in decided}
            logger.warning("generation %d: %d workers%s", self.generation, len(decided),
                           f", without {', '.join(sorted(gone))}" if gone else "")
            try:
                self._make_group()
                return
            except RuntimeError as error:
                logger.warning("generation %d fell apart: %s", self.generation, error)
                self.announce_trouble()
        raise RuntimeError(f"worker {self._name}: no generation of workers came together in {MOST_ATTEMPTS} attempts")

    def _make_group(self):
        rank = [member.name for member in self.members].index(self._name)
        dist.init_process_group(self._backend, store=dist.PrefixStore(f"{self.generation}/world", self._store), rank=rank,
                                world_size=len(self.members), timeout=timedelta(seconds=self._timeout))

    def _next_generation(self):
        if self.members or self._start is not None:
            return self.generation + 1
        try:
            self._store.wait(["generation"], timedelta(seconds=self._join_timeout))
        except RuntimeError as error:
            raise RuntimeError(f"worker {self._name}: no job began within join_timeout ({self._join_timeout} s)") from error
        return max(self.generation, int(self._store.get("generation"))) + 1

    def _registered_count(self, generation):
        return self._store.add(f"{generation}/count", 0)

    def _registered(self):
        """In the order in which they came; one who died on its way into the store is not there."""
        keys = [f"{self.generation}/{i}" for i in range(self._registered_count(self.generation))]
        return [Member(**json.loads(self._store.get(key))) for key in keys if self._store.check([key])]

    def _agree(self, iteration, before):
        """Registers, waits for the others, and returns who is in this generation."""
        mine = Member(self._rack, self._name, iteration)
        place = self._store.add(f"{self.generation}/count", 1) - 1
        self._store.set(f"{self.generation}/{place}", json.dumps(dataclasses.asdict(mine)))
        key, started = f"{self.generation}/members", time.monotonic()
        while not self._store.check([key]):
            registered = self._registered()
            if before:  # a newcomer that was started again: its last word counts
                registered = list({member.name: member for member in registered}.values())
            registered.sort()
            if self._may_decide(registered, before, time.monotonic() - started, iteration):
                words = json.dumps([dataclasses.asdict(member) for member in registered])
                self._store.compare_set(key, "", words)
                self._store.set("generation", str(self.generation))
            time.sleep(POLL_SECONDS)
        return [Member(**member) for member in json.loads(self._store.get(key))]

    def _may_decide(self, registered, before, waited, iteration):
        if iteration == NEWCOMER:  # those who have the state decide
            if waited > self._join_timeout:
                raise RuntimeError(f"worker {self._name}: nobody let it join within join_timeout ({self._join_timeout} s)")
            return False
        names = {member.name for member in registered}
        if len(names) != len(registered):
            raise ValueError(f"worker {self._name}: its name or another's is taken twice among {sorted(names)}")
        if not before:  # the job begins
            if waited > self._timeout:
                raise RuntimeError(f"worker {self._name}: {len(names)} of {self._start} workers came within timeout "
                                   f"({self._timeout} s)")
            return len(names) >= self._start
        return names >= before or waited > self._patience
