"""ProcessGroupThalweg: torchft's process group over Thalweg (docs/torchft.md).

    manager = torchft.Manager(pg=ProcessGroupThalweg(), …)

torchft makes the group anew whenever replicas leave or come. Each process listens before it tells
the Lighthouse where, in its handle; so once the handles of a new quorum are there, the replicas
connect to each other at once and meet in no store.
"""
import hashlib
import json
import os
import socket
import threading
import urllib.parse
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup as BaseProcessGroup

from thalweg import errors
from thalweg.backend import native
from thalweg.options import Options

try:
    from torchft.process_group import ProcessGroupWrapper, create_store_client
    from torchft.work import _DummyWork
except ImportError as error:
    raise ImportError(f"thalweg.torchft needs torchft: `pip install torchft-nightly` ({error})"
                      ) from error

_KEY = "thalweg"  # of a handle: the address of the process's meeting place
_STATE_KEY = "thalweg_state"  # the same for the streams of a StateTransport
_DISCARD_PORT = 9  # towards_lighthouse() only asks for the way to a host; nothing is sent


def towards_lighthouse():
    """Says in which direction the other replicas are.

    Returns
    -------
    str
        "host:port" of the Lighthouse's host if TORCHFT_LIGHTHOUSE names it, and otherwise of this
        host's name, as torchft's own stores use it.
    """
    given = os.environ.get("TORCHFT_LIGHTHOUSE", "")
    host = urllib.parse.urlsplit(given if "//" in given else f"//{given}").hostname
    host = host or socket.gethostname()
    return f"[{host}]:{_DISCARD_PORT}" if ":" in host else f"{host}:{_DISCARD_PORT}"


class ProcessGroupThalweg(ProcessGroupWrapper):
    """A process group that torchft configures anew for every quorum.

    Parameters
    ----------
    timeout
        The longest that a new quorum may take to meet, and the default of the group's calls.
    options
        thalweg.Options of the group, the same on all replicas. None: the defaults.
    loss_bound
        Allreduces of floats by sum or average go over DLCP, which may lose this fraction of their
        packets (docs/collectives.md). Replicas may then differ a little. 0: nothing may be lost.
    result_loss_bound
        The same for the packets that carry results, at most `loss_bound`. None: half of it.
    towards
        "host:port" in the direction of the other replicas, which decides which address of this
        host they use, unless THALWEG_INTERFACE does. None: towards_lighthouse().

    Raises
    ------
    TypeError
        `options` are not thalweg.Options.
    ValueError
        A value is not allowed.
    """

    def __init__(self, timeout=timedelta(seconds=60), options=None, loss_bound=0.0,
                 result_loss_bound=None, towards=None):
        super().__init__(timeout)
        if not isinstance(timeout, timedelta) or timeout <= timedelta(0):
            raise ValueError(f"timeout: {timeout!r}; a timedelta above 0 is allowed")
        self._options = Options() if options is None else options
        if not isinstance(self._options, Options):
            raise TypeError(f"options: {type(options).__name__}; thalweg.Options are allowed")
        if not 0 <= loss_bound < 1:
            raise ValueError(f"loss_bound: {loss_bound}; from 0 to below 1 is allowed")
        if result_loss_bound is not None and not 0 <= result_loss_bound <= loss_bound:
            raise ValueError(f"result_loss_bound: {result_loss_bound}; from 0 to loss_bound, "
                             f"{loss_bound}, is allowed")
        self._loss_bound = loss_bound
        self._result_loss_bound = -1.0 if result_loss_bound is None else result_loss_bound
        self._towards = towards
        self._place = None
        self._state = None  # the StateTransport
        self._state_place = None
        self._lock = threading.Lock()  # guards what follows, and _pg
        self._backend = None
        self._error = None  # why the last group ended

    def getBackendName(self):
        """Names the backend for torchft's logs.

        Returns
        -------
        str
            "torchft-thalweg".
        """
        return "torchft-thalweg"

    # How a group is made ------------------------------------------------------------------------

    def attach(self, transport):
        """Gives each quorum streams for the states of newcomers. A StateTransport calls it.

        Parameters
        ----------
        transport
            The StateTransport.

        Raises
        ------
        ValueError
            The group has one.
        """
        if self._state is not None:
            raise ValueError("the group has a StateTransport")
        self._state = transport

    def detach(self, transport):
        """Undoes attach(). Does nothing if the group has another StateTransport, or none.

        Parameters
        ----------
        transport
            The StateTransport.
        """
        if self._state is transport:
            self._state = None

    def _new_place(self):
        return native().MeetingPlace(self._towards or towards_lighthouse())

    def _addresses(self):
        """Returns what others need to find this process, by the handles' keys."""
        if self._place is None:
            self._place = self._new_place()
        addresses = {_KEY: self._place.address()}
        state = self._state  # another thread may detach it meanwhile
        if state is not None:
            if self._state_place is None:
                self._state_place = self._new_place()
            state.wait_made()  # from then on the place has another address
            addresses[_STATE_KEY] = self._state_place.address()
        return addresses

    def get_reconfigure_handle(self):
        """Makes what the other processes need to find this one.

        Returns
        -------
        str
            torchft's handle with the addresses at which this process listens.
        """
        return json.dumps(json.loads(super().get_reconfigure_handle()) | self._addresses())

    def reconfigure(self, opts):
        """Leaves the last group and makes one with other processes.

        Parameters
        ----------
        opts
            torchft's options, with the handles of the processes, in the order of their ranks.

        Returns
        -------
        torchft.work._DummyWork
            A work that is over: the group is made when this returns.

        Raises
        ------
        ValueError
            The handles have no order.
        thalweg.Timeout
            They did not meet within the timeout.
        """
        if not isinstance(opts.handles, list):
            raise ValueError("torchft process groups require ordered handles")
        peers = [json.loads(handle) for handle in opts.handles]
        if any(_KEY not in peer for peer in peers):
            # Another process has no such address: they meet by torchft's store.
            if self._state is not None:
                self._state.leave()
            return super().reconfigure(opts)
        self._rank = [peer["id"] for peer in peers].index(self._handle_id())
        self._uuid = opts.uuid
        self._meet(peers, self._rank, str(opts.uuid))
        return _DummyWork(None)

    def configure(self, store_addr, replica_id, rank, world_size, quorum_id=None, group_rank=None,
                  group_world_size=None, global_ranks=None):
        """Does the same for processes that meet by a store: torchft's interface until 2026.

        Parameters
        ----------
        store_addr
            "host:port/prefix" of a TCPStore, with a new prefix for each call.
        replica_id, quorum_id, group_rank, group_world_size, global_ranks
            What torchft's logs say of the group.
        rank
            This process's place among the others.
        world_size
            How many processes there are.

        Raises
        ------
        thalweg.Timeout
            They did not meet within the timeout.
        """
        self._replica_id, self._rank, self._uuid = replica_id, rank, quorum_id
        self._group_rank, self._group_world_size = group_rank, group_world_size
        self._global_ranks = global_ranks
        store = create_store_client(store_addr, timeout=self._timeout)
        store.set(f"{_KEY}/{rank}", json.dumps(self._addresses()))
        keys = [f"{_KEY}/{peer}" for peer in range(world_size)]
        store.wait(keys, self._timeout)
        self._meet([json.loads(each) for each in store.multi_get(keys)], rank, "")

    def _meet(self, peers, rank, uuid):
        """Makes the group of these processes. `peers`: the addresses of each, by rank."""
        self._leave()

        def at(place, key, arguments):
            places = [peer[key] for peer in peers]
            # A place has a new address for each group, so no other group has this name.
            digest = hashlib.sha256("\n".join([uuid, *places]).encode()).hexdigest()
            return native().Backend.at_places(place, places, rank, group=f"torchft.{digest[:16]}",
                                              **arguments)
        self._make(rank, len(peers), lambda: at(self._place, _KEY, self._arguments(self._options)))
        state = self._state
        if state is None:
            return
        state.leave()
        if len(peers) > 1 and all(_STATE_KEY in peer for peer in peers):
            # Messages go over TCP, whatever carries the gradients.
            streams = self._arguments(Options(transport="tcp"))
            state.meet(lambda: at(self._state_place, _STATE_KEY, streams), rank, len(peers))

    def _create_pg(self, store, rank, world_size):
        def make():
            arguments = self._arguments(self._options)
            backend = native().Backend(store, rank, world_size, **arguments)
            self._wait_for_all(backend)
            return backend
        return self._make(rank, world_size, make)

    def _wait_for_all(self, backend):
        try:
            options = dist.BarrierOptions()
            options.timeout = self._timeout
            backend.barrier(options).wait()
        except errors.Error:
            backend.abort()
            raise

    def _arguments(self, options):
        return {"timeout_s": self._timeout.total_seconds(), "transport": options.transport,
                "scheme": options.scheme, "topology": options.topology_text(),
                "line_rate_gbps": options.line_rate_gbps,
                "switch_address": options.switch_address}

    def _make(self, rank, size, make_backend):
        try:
            backend = make_backend()
        except errors.Timeout as error:
            milliseconds = self._timeout / timedelta(milliseconds=1)
            raise type(error)(f"configure: timeout after {milliseconds:.0f}ms: {error}") from error
        pg = BaseProcessGroup(dist.HashStore(), rank, size)
        pg._set_default_backend(BaseProcessGroup.BackendType.CUSTOM)
        for device in ("cpu", "cuda"):
            pg._register_backend(torch.device(device), BaseProcessGroup.BackendType.CUSTOM, backend)
        with self._lock:
            self._pg, self._backend, self._error = pg, backend, None
        return pg

    # How it ends --------------------------------------------------------------------------------

    def _take(self):
        """Takes the group away, so that only one thread ends it. Returns its backend or None."""
        with self._lock:
            backend, self._backend, self._pg = self._backend, None, None
            if backend is not None and self._error is None:
                self._error = backend.error()
        return backend

    def _leave(self):
        backend = self._take()
        if backend is None:
            return
        if self._error is None:
            backend.shutdown()  # small messages that were sent still arrive
        else:
            backend.abort()

    def abort(self, errored=True):
        """Ends the group's calls at once, from any thread. They fail, and so do later ones.

        Does nothing if there is no group.

        Parameters
        ----------
        errored
            Whether errored() then says so.
        """
        backend = self._take()
        if backend is None:
            return
        if errored and self._error is None:
            self._error = errors.Cancelled("thalweg: the process group was aborted")
        backend.abort()
        if errored:
            self.errors_logger.info("", extra={
                "job_id": os.environ.get("JOB_ID", "unknown"), "replica_id": self._replica_id,
                "rank": self._rank, "uuid": self._uuid, "error": "process_group_abort"})

    def shutdown(self):
        """Leaves the group."""
        self._leave()

    def errored(self):
        """Says why the group must be configured anew.

        Returns
        -------
        thalweg.Error or None
            One of the exceptions of thalweg.errors: `code` says what happened, and `rank` who is to
            blame. None: it need not.
        """
        with self._lock:
            return self._error if self._backend is None else self._backend.error()

    def set_timeout(self, timeout):
        """Sets the timeout of calls that give none, and of the next quorum.

        Parameters
        ----------
        timeout
            The new timeout, a timedelta.
        """
        super().set_timeout(timeout)
        with self._lock:
            if self._backend is not None:
                self._backend.set_timeout(timeout.total_seconds())

    # Calls --------------------------------------------------------------------------------------

    def allreduce(self, tensors, opts):
        """Adds up; with a loss bound over DLCP.

        Parameters
        ----------
        tensors
            The tensors, which hold the results afterwards.
        opts
            A reduction, or PyTorch's options with one.

        Returns
        -------
        torch.distributed.Work
            The work in flight.
        """
        op = getattr(opts, "reduceOp", opts)
        lossy = (self._loss_bound > 0 and len(tensors) == 1 and tensors[0].is_floating_point()
                 and op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG))
        backend = self._backend
        if not lossy or backend is None:
            return super().allreduce(tensors, opts)
        return backend.reduce_gradient(
            tensors[0], mean=op == dist.ReduceOp.AVG, loss_bound=self._loss_bound,
            result_loss_bound=self._result_loss_bound, dlcp=True, priority=0, queue=1)
