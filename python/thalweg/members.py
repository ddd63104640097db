"""Keeps track of who trains together when workers may die or join while a job runs.

A worker keeps its name and its rack, but its rank may change. The members of a generation form the
default process group. A new generation is made when a worker has died or others want to join: all
living workers register for it in the store, and one of them, whoever is first, writes down who is
in it.

The store must outlive every worker, so it must be that of a launcher or of a process of its own
(torch.distributed.TCPStore).
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
MOST_ATTEMPTS = 8  # failed attempts in a row to make a generation before a worker gives up


@dataclasses.dataclass(frozen=True, order=True)
class Member:
    rack: str
    name: str
    iteration: int  # its iteration when it registered; NEWCOMER if it has no state


class Members:
    """One worker's view of the members of its job.

    start: how many workers begin the job together. If it is left out, this worker joins a job that
    already runs.
    patience: after a worker has died, the others wait this many seconds for all to register for the
    next generation. Who has not registered by then is taken for dead, so it must be longer than an
    iteration takes.
    timeout: seconds that calls of the process group wait for a worker that is silent although its
    connections are open, and that the beginning of the job waits for all workers.
    join_timeout: seconds that a newcomer waits until it is let in. The others let it in at the end
    of a window (DSSync), so it must be longer than a window takes.

    Invariants:
    1. The members of a generation are written once (compare-and-set), so all workers agree on them.
    2. Ranks follow the order of racks and names, so the same members get the same ranks everywhere.
    """

    def __init__(self, store, name, rack, *, start=None, backend="thalweg", patience=10.0,
                 timeout=60.0, join_timeout=600.0):
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
        """Whether this worker joins a job that already runs."""
        return self._start is None

    @property
    def racks(self):
        """Lists the ranks of each rack."""
        racks = {}
        for rank, member in enumerate(self.members):
            racks.setdefault(member.rack, []).append(rank)
        return list(racks.values())

    def announce_trouble(self):
        """Tells all workers that one has failed and that they must form the next generation."""
        self._store.set(f"{self.generation + 1}/trouble", "1")

    def in_trouble(self):
        """Whether a worker has called announce_trouble() in this generation."""
        return self._store.check([f"{self.generation + 1}/trouble"])

    def others_wait(self):
        """Whether workers wait to join."""
        return self._registered_count(self.generation + 1) > 0

    def form(self, iteration):
        """Forms the next generation: its process group, and its members in self.members.

        `iteration` is this worker's iteration, or NEWCOMER. Tries again if another worker fails
        meanwhile. Raises RuntimeError if the others went on without this worker.
        """
        for _ in range(MOST_ATTEMPTS):
            if dist.is_initialized():
                dist.destroy_process_group()
            before = {member.name for member in self.members}
            self.generation = self._next_generation()
            decided = self._agree(iteration, before)
            if all(member.name != self._name for member in decided):
                if iteration == NEWCOMER:
                    continue
                raise RuntimeError(f"worker {self._name}: the others went on without it, since it "
                                   f"did not register within patience ({self._patience} s)")
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
        raise RuntimeError(f"worker {self._name}: no generation of workers came together in "
                           f"{MOST_ATTEMPTS} attempts")

    def _make_group(self):
        rank = [member.name for member in self.members].index(self._name)
        store = dist.PrefixStore(f"{self.generation}/world", self._store)
        dist.init_process_group(self._backend, store=store, rank=rank,
                                world_size=len(self.members),
                                timeout=timedelta(seconds=self._timeout))

    def _next_generation(self):
        if self.members or self._start is not None:
            return self.generation + 1
        try:
            self._store.wait(["generation"], timedelta(seconds=self._join_timeout))
        except RuntimeError as error:
            raise RuntimeError(f"worker {self._name}: no job began within join_timeout "
                               f"({self._join_timeout} s)") from error
        return max(self.generation, int(self._store.get("generation"))) + 1

    def _registered_count(self, generation):
        return self._store.add(f"{generation}/count", 0)

    def _registered(self):
        """Returns who has registered for this generation, in the order of arrival.

        A worker that died between its two writes to the store is left out.
        """
        keys = [f"{self.generation}/{i}" for i in range(self._registered_count(self.generation))]
        return [Member(**json.loads(self._store.get(key))) for key in keys
                if self._store.check([key])]

    def _agree(self, iteration, before):
        """Registers for this generation, waits until its members are decided, and returns them."""
        mine = Member(self._rack, self._name, iteration)
        place = self._store.add(f"{self.generation}/count", 1) - 1
        self._store.set(f"{self.generation}/{place}", json.dumps(dataclasses.asdict(mine)))
        key, started = f"{self.generation}/members", time.monotonic()
        while not self._store.check([key]):
            registered = self._registered()
            if before:  # of a newcomer that was started again, its last registration counts
                registered = list({member.name: member for member in registered}.values())
            registered.sort()
            if self._may_decide(registered, before, time.monotonic() - started, iteration):
                words = json.dumps([dataclasses.asdict(member) for member in registered])
                self._store.compare_set(key, "", words)
                self._store.set("generation", str(self.generation))
            time.sleep(POLL_SECONDS)
        return [Member(**member) for member in json.loads(self._store.get(key))]

    def _may_decide(self, registered, before, waited, iteration):
        """Whether this worker may write down who is in the generation."""
        if iteration == NEWCOMER:  # only workers that have the state decide
            if waited > self._join_timeout:
                raise RuntimeError(f"worker {self._name}: nobody let it join within join_timeout "
                                   f"({self._join_timeout} s)")
            return False
        names = {member.name for member in registered}
        if len(names) != len(registered):
            raise ValueError(f"worker {self._name}: two workers have the same name, among "
                             f"{sorted(names)}")
        if not before:  # the job begins
            if waited > self._timeout:
                raise RuntimeError(f"worker {self._name}: {len(names)} of {self._start} workers "
                                   f"came within timeout ({self._timeout} s)")
            return len(names) >= self._start
        return names >= before or waited > self._patience
