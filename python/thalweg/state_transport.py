"""StateTransport: how torchft's newcomers get their state, from several survivors at once.

    group = ProcessGroupThalweg(timeout=limit)
    heal = StateTransport(group, limit)
    manager = torchft.Manager(pg=group, checkpoint_transport=heal, …)
    heal.share(manager)

torchft names one survivor as the source of a newcomer's state, and only that one is told. But all
replicas of a quorum that are not behind hold the same state between torchft's calls of metadata()
and of disallow_checkpoint(). A newcomer therefore asks all of them for parts
(thalweg/_state_fetch.py), and takes a part only if its digest is that of the source.
"""
import atexit
import logging
import os
import threading
import time
import weakref
from datetime import timedelta

import torch
from torchft.checkpointing.transport import CheckpointTransport

from thalweg import _state_parts as parts_of
from thalweg import errors
from thalweg._state_fetch import Fetch, tags

_LOG = logging.getLogger(__name__)
_PROBE_S = 1.0  # how often a source looks whether its newcomers live
_PAUSE_S = 0.02  # after an error of a request
_EXIT_S = 5.0  # the most time that the end of a thread may take

_living = weakref.WeakSet()


@atexit.register
def _end_all():
    """Ends the threads that serve: none may want Python's lock when the interpreter ends."""
    for transport in list(_living):
        if transport._process == os.getpid():  # a forked child has no such thread
            transport.shutdown()


class StateTransport(CheckpointTransport):
    """A torchft CheckpointTransport over streams of its own between the replicas of a group.

    Invariants:
    1. A state is read only between metadata() or send_checkpoint() and disallow_checkpoint(). What
       is sent is a copy, so a send in flight does not hold up disallow_checkpoint().
    2. A replica that has got a state serves nobody before the next quorum: its model may not be
       loaded yet.

    Parameters
    ----------
    group
        The ProcessGroupThalweg of the same Manager. It has at most one StateTransport.
    timeout
        The longest that a newcomer's state may take if torchft gives no other timeout.

    Raises
    ------
    ValueError
        `timeout` is not allowed, or the group has a StateTransport.
    """

    def __init__(self, group, timeout=timedelta(seconds=60)):
        if not isinstance(timeout, timedelta) or timeout <= timedelta(0):
            raise ValueError(f"timeout: {timeout!r}; a timedelta above 0 is allowed")
        self._group, self._timeout = group, timeout
        self._tags = tags()
        self._process = os.getpid()
        self._read = None  # returns this replica's state
        self._changed = threading.Condition()  # guards what follows
        self._backend, self._rank, self._size = None, 0, 0
        self._thread = None
        self._making = False  # the thread makes self._backend
        self._open = False  # the state may be read
        self._window = 0  # changes whenever _open does
        self._snapshot = None
        self._is_source = False  # send_checkpoint() is in progress, and gave the snapshot
        self._received = False
        self._owed = set()  # ranks that this one is the source of, and that are not done
        self._waiting = []  # requests for a manifest that torchft has not given yet
        self.came_from = {}  # the last state that came: rank: parts
        group.attach(self)
        _living.add(self)

    def share(self, state):
        """Lets this replica send parts of its state to newcomers of which it is not the source.

        Parameters
        ----------
        state
            The torchft.Manager; or a function that returns the same state as the Manager of the
            source sends, with its step as `["torchft"]["step"]`.
        """
        self._read = state if callable(state) else state._manager_state_dict

    # The group's calls --------------------------------------------------------------------------

    def leave(self):
        """Ends the calls in flight and the thread that serves. ProcessGroupThalweg calls it."""
        self.wait_made()
        with self._changed:
            backend, self._backend = self._backend, None
            self._waiting.clear()
            self._owed.clear()
            self._changed.notify_all()
        if backend is not None:
            backend.abort()

    def meet(self, make_backend, rank, size):
        """Makes the streams of a new quorum, in the background. ProcessGroupThalweg calls it.

        Parameters
        ----------
        make_backend
            Returns a group of the same ranks as the new quorum, which nobody else uses. It waits
            for no other rank.
        rank, size
            This rank, and how many there are.
        """
        # A new thread would work on the first accelerator.
        gpu = torch.accelerator.current_device_index() if torch.accelerator.is_available() else None
        thread = threading.Thread(target=self._run, args=(make_backend, gpu), daemon=True,
                                  name="thalweg-state")
        with self._changed:
            self._rank, self._size, self._thread, self._making = rank, size, thread, True
        try:
            thread.start()
        except RuntimeError:  # too many threads
            self._made(None)
            raise

    def wait_made(self):
        """Waits until the streams of the last quorum are made. ProcessGroupThalweg calls it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._making)

    def _made(self, backend):
        with self._changed:
            self._backend, self._making = backend, False
            self._changed.notify_all()

    def _run(self, make_backend, gpu):
        backend = None
        try:
            if gpu is not None:
                torch.accelerator.set_device_index(gpu)
            backend = make_backend()
        except Exception:  # whatever it is, others wait until the streams are made or are not
            _LOG.exception("no state can be sent or received in this quorum")
        self._made(backend)
        if backend is not None:
            self._serve(backend)

    # torchft's calls ----------------------------------------------------------------------------

    def metadata(self):
        """Begins a step: torchft asks for this before each quorum.

        Returns
        -------
        str
            Nothing that a newcomer needs: it finds the source by its rank.
        """
        with self._changed:
            self._set_open(True)
            self._received = False
        return "thalweg"

    def send_checkpoint(self, dst_ranks, step, state_dict, timeout):
        """Lets newcomers have this replica's state. Returns when they have it, or are gone.

        Parameters
        ----------
        dst_ranks
            The newcomers that this rank is the source of.
        step
            The step of the state.
        state_dict
            The state.
        timeout
            The longest that it may take. None: the transport's timeout.

        Raises
        ------
        thalweg.Timeout
            A newcomer did not get it within the timeout.
        thalweg.BadArgument
            Not all replicas of the quorum have a StateTransport.
        """
        limit = self._timeout if timeout is None else timeout
        snapshot = parts_of.Snapshot(state_dict, step)
        with self._changed:
            backend = self._streams()
            self._set_open(True)
            self._snapshot, self._is_source = snapshot, True
            self._owed = set(dst_ranks)
            waiting, self._waiting = self._waiting, []
        backend.set_timeout(limit.total_seconds())  # also of connecting, which send() waits for
        try:
            for rank, asked, tag in waiting:
                self._send_manifest(backend, rank, asked, tag)
            self._await_newcomers(backend, step, limit)
        finally:
            with self._changed:
                self._is_source = False

    def _await_newcomers(self, backend, step, limit):
        until = time.monotonic() + limit.total_seconds()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._owed,
                                       min(_PROBE_S, max(0, until - time.monotonic())))
                owed = set(self._owed)
            if not owed:
                return
            if time.monotonic() >= until:
                raise errors.class_of("timeout", min(owed))(
                    f"thalweg: Timed out waiting {limit.total_seconds():g} s until ranks "
                    f"{sorted(owed)} had the state of step {step}")
            for rank in owed:
                if time.monotonic() < until:
                    self._probe(backend, rank)

    def _probe(self, backend, rank):
        words = torch.tensor([parts_of.PROBE, *[0] * (parts_of.REQUEST_WORDS - 1)])
        try:
            backend.send([words], rank, parts_of.ASK).wait(timedelta(seconds=_PROBE_S))
        except errors.Timeout:
            pass  # it may be busy
        except errors.Error:
            self._forget(rank)

    def _forget(self, rank):
        with self._changed:
            self._owed.discard(rank)
            self._changed.notify_all()

    def disallow_checkpoint(self):
        """Ends a step: from now on nothing of the state is read."""
        with self._changed:
            self._set_open(False)

    def recv_checkpoint(self, src_rank, metadata, step, timeout):
        """Gets a state, in parts from all ranks that hold it.

        Parameters
        ----------
        src_rank
            The source that torchft names.
        metadata
            Not used.
        step
            The step that the state must be of.
        timeout
            The longest that it may take. None: the transport's timeout.

        Returns
        -------
        Any
            The state, with tensors in this host's memory.

        Raises
        ------
        thalweg.Timeout, thalweg.PeerLost, thalweg.Mismatch
            The source did not send it in time, is lost, or has the state of another step.
        thalweg.BadArgument
            Not all replicas of the quorum have a StateTransport.
        """
        limit = self._timeout if timeout is None else timeout
        with self._changed:
            backend, rank, size = self._streams(), self._rank, self._size
            self._received = True
        backend.set_timeout(limit.total_seconds())  # also of connecting, which send() waits for
        fetch = Fetch(backend, rank, size, src_rank, step, limit, self._tags)
        try:
            return fetch.fetch()
        finally:
            self.came_from = dict(fetch.assignments.came_from)
            fetch.done()

    def shutdown(self, wait=True):
        """Ends the transport: newcomers get nothing more from this rank.

        Parameters
        ----------
        wait
            torchft's; this transport ends at once either way.
        """
        self._group.detach(self)
        self.leave()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_EXIT_S)

    # Serving ------------------------------------------------------------------------------------

    def _streams(self):
        """Returns the backend. The caller holds the lock."""
        self._changed.wait_for(lambda: not self._making)
        if self._backend is None:
            raise errors.BadArgument("thalweg: StateTransport: not all replicas of this quorum "
                                     "have one, or there is no quorum")
        return self._backend

    def _set_open(self, is_open):
        self._open, self._snapshot = is_open, None
        self._window += 1

    def _serve(self, backend):
        while True:
            words = torch.empty(parts_of.REQUEST_WORDS, dtype=torch.int64)
            try:
                backend.recv_anysource([words], parts_of.ASK).wait()
                self._answer(backend, *words.tolist())
            except errors.Timeout:
                continue  # nobody asked
            except errors.Cancelled:
                return  # the quorum is over
            except RuntimeError as error:
                if backend is not self._backend or backend.error() is not None:
                    return
                _LOG.warning("a newcomer's request failed: %s", error)
                time.sleep(_PAUSE_S)

    def _answer(self, backend, kind, rank, step, layout, part, tag):
        if kind == parts_of.PROBE:
            return
        if kind == parts_of.DONE:
            self._forget(rank)
            return
        if kind == parts_of.MANIFEST:
            self._answer_manifest(backend, rank, step, tag)
            return
        snapshot = self._state_of(step, layout)
        if snapshot is not None and kind == parts_of.OFFER:
            backend.send([parts_of.header(parts_of.OK)], rank, tag)
            return
        copy = self._copy_of(snapshot, part) if snapshot is not None else None
        if copy is None:
            backend.send([parts_of.header(parts_of.REFUSED)], rank, tag)
            return
        digest = [] if kind == parts_of.PART else [parts_of.digest_of(copy)]
        backend.send([parts_of.header(parts_of.OK, copy.numel(), *digest)], rank, tag)
        if kind != parts_of.DIGEST:
            backend.send([copy], rank, tag)

    def _copy_of(self, snapshot, part):
        """Returns a copy of a part; None: the state is not to be read any more."""
        with self._changed:
            readable = self._open and snapshot is self._snapshot
            if not readable or not 0 <= part < snapshot.cut.count:
                return None
            return snapshot.cut.copy_out(part, snapshot.tensors)

    def _answer_manifest(self, backend, rank, step, tag):
        # The stream by which this is sent tells the newcomer if this rank dies.
        backend.send([parts_of.header(parts_of.WAIT)], rank, tag)
        with self._changed:
            if backend is not self._backend:
                return  # the quorum is over
            if not self._is_source:
                self._waiting.append((rank, step, tag))
                return
        self._send_manifest(backend, rank, step, tag)

    def _send_manifest(self, backend, rank, step, tag):
        with self._changed:
            snapshot = self._snapshot if self._is_source else None
        if snapshot is None or snapshot.step != step:
            backend.send([parts_of.header(parts_of.REFUSED)], rank, tag)
            return
        backend.send([parts_of.header(parts_of.OK, snapshot.manifest.numel())], rank, tag)
        backend.send([snapshot.manifest], rank, tag)

    def _state_of(self, step, layout):
        """Returns the snapshot of this step and layout; None: this rank has no such state now."""
        with self._changed:
            if not self._open or self._received:
                return None
            snapshot, window, read = self._snapshot, self._window, self._read
        if snapshot is None and read is not None:
            # Without the lock: the Manager has one of its own, which its thread may hold.
            try:
                state = read()
                made = parts_of.Snapshot(state, state["torchft"]["step"])
            except Exception:  # the user's function may raise anything
                _LOG.exception("this replica cannot read its state, and sends nothing of it")
                return None
            with self._changed:
                if window != self._window or self._received:
                    return None
                if self._snapshot is None:
                    self._snapshot = made
                snapshot = self._snapshot
        if snapshot is None or snapshot.step != step or snapshot.layout != layout:
            return None
        return snapshot
