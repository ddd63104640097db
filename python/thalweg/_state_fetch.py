"""Fetch: how a newcomer gets its state, the parts of which come from several survivors at once.

The source, which torchft names, says what the state is made of and the digest of each part. The
parts come from the source and from all ranks that hold a state of the same step and layout.

Invariants:
1. The result has a part only if its digest is the source's. So it is the source's state, bit for
   bit, whoever sent the parts.
2. A survivor that is lost or refuses is asked for nothing more, and its parts are asked of others.
   So is one that sends _MOST_WRONG parts in a row that are not the source's; a part like that comes
   from the source. Without the source there is no state: fetch() raises.
3. What no survivor sends in time is asked of one more; the first right answer counts.
"""
import collections
import contextlib
import itertools
import pickle
import threading
import time
from datetime import timedelta

import torch
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_unflatten
from torchft.checkpointing.pg_transport import _DTensorMeta, _TensorMeta

from thalweg import _state_parts as parts_of
from thalweg import errors

_WINDOW = 2  # parts that are asked of one survivor before the first has come
_PROBE_S = 1.0  # how often a survivor is looked after while it sends nothing
_MOST_WRONG = 4  # parts in a row, before a survivor's state is taken for another one
_LEAST_PATIENCE_S = 2.0  # a part that takes longer may be asked of another survivor


class Refused(Exception):
    """A survivor does not send the state, or sends another one; or all parts are here."""


class Assignments:
    """Which part is asked of whom. Any thread may use it."""

    def __init__(self, count, source):
        self._source = source
        self._changed = threading.Condition()
        self._todo = collections.deque(range(count))
        self._of_source = collections.deque()  # parts that only the source has
        self._asked = {}  # part: {rank: when}
        self._left = count
        self._longest = 0.0  # that a part has taken
        self._failure = None
        self.came_from = collections.Counter()  # rank: parts

    def take(self, rank, may_wait):
        """Returns a part to ask of this rank. None: there is none now, or never if `may_wait`."""
        with self._changed:
            while self._left and self._failure is None:
                part = self._next_for(rank)
                if part is not None:
                    self._asked.setdefault(part, {})[rank] = time.monotonic()
                    return part
                if not may_wait:
                    return None
                self._changed.wait(0.1)
            return None

    def _next_for(self, rank):
        if rank == self._source and self._of_source:
            return self._of_source.popleft()
        return self._todo.popleft() if self._todo else self._late_for(rank)

    def _late_for(self, rank):
        """Returns a part that others were asked for, and this rank was not, and that is late."""
        before = time.monotonic() - max(_LEAST_PATIENCE_S, 3 * self._longest)
        return next((part for part, ranks in self._asked.items()
                     if rank not in ranks and max(ranks.values()) < before), None)

    def came(self, part, rank, write):
        """Notes that a part came from this rank, and calls write() if it is the first time."""
        with self._changed:
            asked = self._asked.pop(part, None)
            if asked is None or self._failure is not None:
                return
            now = time.monotonic()
            self._longest = max(self._longest, now - asked.get(rank, now))
            write()
            self.came_from[rank] += 1
            self._left -= 1
            self._changed.notify_all()

    def came_wrong(self, part, rank):
        """Notes that what came from this rank is not the source's: the source is to send it."""
        with self._changed:
            ranks = self._asked.get(part, {})
            ranks.pop(rank, None)
            if part in self._asked and not ranks:
                del self._asked[part]
                self._of_source.append(part)
            self._changed.notify_all()

    def give_back(self, rank):
        """Takes from this rank what it was asked for."""
        with self._changed:
            for part in [part for part, ranks in self._asked.items() if rank in ranks]:
                del self._asked[part][rank]
                if not self._asked[part]:
                    del self._asked[part]
                    self._todo.appendleft(part)
            self._changed.notify_all()

    @property
    def over(self):
        """All parts are here, or never will be."""
        with self._changed:
            return not self._left or self._failure is not None

    def fail(self, error):
        """Ends everything with this error, unless all parts are here."""
        with self._changed:
            if self._left and self._failure is None:
                self._failure = error
            self._changed.notify_all()

    def wait(self, until):
        """Waits until all parts are here. Returns how many are missing.

        Raises
        ------
        Exception
            What fail() was given.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._left or self._failure is not None,
                                   max(0, until - time.monotonic()))
            if self._failure is not None:
                raise self._failure
            return self._left


class Fetch:
    """One newcomer's state, once.

    Parameters
    ----------
    backend
        The group whose streams are used.
    rank, size
        This rank, and the number of ranks.
    source
        The rank that torchft names.
    step
        The step that the state must be of.
    timeout
        The longest that all of it may take, a timedelta.
    tags
        An iterator that returns another number each time, for this rank's requests.
    """

    def __init__(self, backend, rank, size, source, step, timeout, tags):
        self._backend, self._rank, self._size = backend, rank, size
        self._source, self._step, self._tags = source, step, tags
        self._timeout = timeout
        self._until = time.monotonic() + timeout.total_seconds()
        self._layout = 0
        self._reached = False  # the source was
        self._cut = None
        self._tensors = []
        self.assignments = Assignments(0, source)

    def fetch(self):
        """Returns the state.

        Raises
        ------
        thalweg.Timeout, thalweg.PeerLost, thalweg.Mismatch
            The source does not send it in time, is lost, or has the state of another step.
        """
        meta = self._manifest()
        self._layout = parts_of.layout_of(meta)
        sizes = parts_of.sizes_of(meta)
        self._cut = parts_of.Cut(sizes)
        self._tensors = [torch.empty(size, dtype=torch.uint8) for size in sizes]
        self.assignments = Assignments(self._cut.count, self._source)
        for rank in range(self._size):
            if rank != self._rank:
                threading.Thread(target=self._take_from, args=(rank,), daemon=True,
                                 name=f"thalweg-state-{rank}").start()
        missing = self.assignments.wait(self._until)
        if missing:
            raise self._late(f"{missing} of {self._cut.count} parts are missing")
        return self._assemble(meta)

    def done(self):
        """Tells the source that it need not wait for this rank any longer."""
        if not self._reached:
            return  # send() would try to connect once more
        with contextlib.suppress(RuntimeError):  # it is gone
            self._send(parts_of.DONE, self._source, 0, 0)

    # Messages -----------------------------------------------------------------------------------

    def _send(self, kind, rank, part, tag):
        words = torch.tensor([kind, self._rank, self._step, self._layout, part, tag])
        return self._backend.send([words], rank, parts_of.ASK)

    def _ask(self, kind, rank, part=0):
        tag = parts_of.FIRST_TAG + next(self._tags) % parts_of.TAGS
        self._wait(self._send(kind, rank, part, tag), self._left())
        return tag

    def _expect(self, rank, tag, like):
        """Begins to receive. Returns the tensor that it comes to, the work and the rank."""
        return like, self._backend.recv([like], rank, tag), rank

    def _expect_header(self, rank, tag):
        return self._expect(rank, tag, torch.empty(parts_of.HEADER_WORDS, dtype=torch.int64))

    def _get(self, expected):
        tensor, work, rank = expected
        while not self._wait(work, min(self._left(), _PROBE_S)):
            if self._cut is not None and self.assignments.over:
                raise Refused("all is here")
            # Fails if the rank is gone: it may have died before it sent anything.
            self._ask(parts_of.PROBE, rank)
        return tensor

    def _left(self):
        left = self._until - time.monotonic()
        if left <= 0:
            raise self._late("the time is over")
        return left

    def _wait(self, work, seconds):
        """Returns whether the work is over.

        Raises
        ------
        thalweg.Error
            It has failed, or the fetch's time is over.
        """
        try:
            work.wait(timedelta(milliseconds=max(1, seconds * 1000)))
        except errors.Timeout as error:
            if work.is_completed() or time.monotonic() >= self._until:
                raise self._late(str(error)) from error
            return False
        return True

    def _late(self, why):
        # PyTorch's scripts look for the words "Timed out".
        return errors.class_of("timeout", self._source)(
            f"thalweg: Timed out waiting {self._timeout.total_seconds():g} s for the state of step "
            f"{self._step} from rank {self._source}: {why}")

    # The source ---------------------------------------------------------------------------------

    def _manifest(self):
        tag = self._ask(parts_of.MANIFEST, self._source)
        self._reached = True
        status = parts_of.WAIT
        while status == parts_of.WAIT:
            status, size, *_ = self._get(self._expect_header(self._source, tag)).tolist()
        if status != parts_of.OK:
            raise self._refused()
        pickled = self._get(self._expect(self._source, tag, torch.empty(size, dtype=torch.uint8)))
        meta = pickle.loads(pickled.numpy().tobytes())  # noqa: S301  as torchft's own transports do
        if meta.step != self._step:
            raise self._refused()
        return meta

    def _refused(self):
        return errors.class_of("mismatch", self._source)(
            f"thalweg: rank {self._source} does not send the state of step {self._step}: it sends "
            "another one, or has gone on")

    # Every survivor -----------------------------------------------------------------------------

    def _take_from(self, rank):
        try:
            if rank != self._source:
                self._check_offer(rank)
            self._take_parts(rank)
        except Exception as error:  # noqa: BLE001  whatever it is, others may still send
            if rank == self._source:
                self.assignments.fail(self._refused() if isinstance(error, Refused) else error)
            self.assignments.give_back(rank)

    def _check_offer(self, rank):
        header = self._expect_header(rank, self._ask(parts_of.OFFER, rank))
        if self._get(header)[0] != parts_of.OK:
            raise Refused(f"rank {rank} has no such state")

    def _take_parts(self, rank):
        window = collections.deque()
        wrong = 0
        while wrong < _MOST_WRONG:
            while len(window) < _WINDOW:
                part = self.assignments.take(rank, may_wait=not window)
                if part is None:
                    break
                window.append(self._ask_for(part, rank))
            if not window:
                return
            wrong = 0 if self._finish(*window.popleft(), rank) else wrong + 1
        raise Refused(f"rank {rank} has another state")

    def _ask_for(self, part, rank):
        kind = parts_of.PROVED if rank == self._source else parts_of.PART
        tag = self._ask(kind, rank, part)
        header = self._expect_header(rank, tag)
        expected = self._expect(rank, tag, torch.empty(self._cut.size(part), dtype=torch.uint8))
        digest = None
        if rank != self._source:
            with self._blaming_source():
                tag = self._ask(parts_of.DIGEST, self._source, part)
                digest = self._expect_header(self._source, tag)
        return part, header, expected, digest

    def _finish(self, part, header, expected, digest, rank):
        """Takes a part that was asked for. Returns whether it is the source's."""
        status, _, *wanted = self._get(header).tolist()
        if status != parts_of.OK:
            raise Refused(f"rank {rank} has gone on")
        found = parts_of.digest_of(self._get(expected))
        if digest is not None:
            with self._blaming_source():
                status, _, *wanted = self._get(digest).tolist()
                if status != parts_of.OK:
                    raise self._refused()
        if found != wanted:
            self.assignments.came_wrong(part, rank)
            return False
        self.assignments.came(part, rank,
                              lambda: self._cut.copy_in(part, self._tensors, expected[0]))
        return True

    @contextlib.contextmanager
    def _blaming_source(self):
        """The source is needed by all: its errors end the fetch."""
        try:
            yield
        except errors.Error as error:
            self.assignments.fail(error)
            raise

    # The result ---------------------------------------------------------------------------------

    def _assemble(self, meta):
        tensors = iter(self._tensors)

        def tensor_of(leaf):
            return torch.as_strided(next(tensors).view(leaf.dtype), size=leaf.shape,
                                    stride=leaf.stride, storage_offset=leaf.storage_offset)

        def value_of(leaf):
            if isinstance(leaf, _TensorMeta):
                return tensor_of(leaf)
            if isinstance(leaf, _DTensorMeta):
                return DTensor(tensor_of(leaf.local), leaf.spec, requires_grad=False)
            return leaf
        return tree_unflatten([value_of(leaf) for leaf in meta.non_tensor_leaves], meta.treespec)


def tags():
    """Returns an iterator for Fetch's `tags`."""
    return itertools.count()
