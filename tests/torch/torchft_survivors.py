"""Replicas with a StateTransport, whose survivors may have faults. Used by the cases of torchft_*_cases.py."""
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import ranks  # noqa: F401  finds the package
import torch
from torchft.process_group import ReconfigureOptions

import thalweg
from thalweg import _state_parts as parts_of
from thalweg.state_transport import StateTransport
from thalweg.torchft import ProcessGroupThalweg

LONG = timedelta(seconds=60)


class Faulty(StateTransport):
    """A survivor whose `fault` comes when it has answered `after` requests for parts."""

    fault, after, answered = None, 0, 0

    def _answer(self, backend, kind, *words):
        if self.fault is not None and kind in (parts_of.PART, parts_of.PROVED, parts_of.DIGEST):
            self.answered += 1
            if self.answered > self.after:
                self.fault(self, backend)
        super()._answer(backend, kind, *words)


def dies(_transport, backend):
    backend.abort()


def hangs(transport, backend):
    while backend is transport._backend:
        time.sleep(0.02)


def goes_on(transport, _backend):
    """It ends its step, and its optimizer changes the state."""
    transport.disallow_checkpoint()
    transport.state["user"]["model"]["large"].add_(1)


def state_of(step, seed=1, elements=1_000_000):
    draw = torch.Generator().manual_seed(seed)
    return {"user": {"model": {"large": torch.randn(elements, generator=draw), "small": torch.randn(7, 5, generator=draw).t(),
                               "half": torch.randn(333, generator=draw).to(torch.bfloat16), "empty": torch.empty(0),
                               "count": torch.tensor(seed)}, "name": f"seed {seed}", "rate": [0.5, None]},
            "torchft": {"step": step, "batches_committed": 2 * step}}


def same(a, b):
    if isinstance(b, dict):
        return set(a) == set(b) and all(same(a[key], value) for key, value in b.items())
    if isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b)
    return a == b


class Replicas:
    """Groups with a transport each. The last one is the newcomer, and rank 0 its source."""

    def __init__(self, count, timeout=LONG):
        self.groups = [ProcessGroupThalweg(timeout=timeout, towards="127.0.0.1:9") for _ in range(count)]
        self.heals = [Faulty(group, timeout) for group in self.groups]
        self.uuid = 0

    def quorum(self, step, states):
        """Forms one. `states`: those of the survivors."""
        self.uuid += 1
        for heal, state in zip(self.heals, states, strict=False):
            heal.state = state
            heal.share(lambda heal=heal: heal.state)
            heal.fault, heal.answered = None, 0
        handles = []
        for heal, group in zip(self.heals, self.groups, strict=True):
            heal.metadata()
            handles.append(group.get_reconfigure_handle())

        def meet(group):
            options = ReconfigureOptions()
            options.uuid, options.handles = self.uuid, handles
            group.reconfigure(options).wait()
        with ThreadPoolExecutor(len(self.groups)) as threads:
            list(threads.map(meet, self.groups))
        self.step = step

    def heal(self, timeout=LONG, late_s=0.0):
        """Returns the state that the newcomer gets."""
        with ThreadPoolExecutor(2) as threads:
            got = threads.submit(self.heals[-1].recv_checkpoint, 0, "thalweg", self.step, timeout)
            time.sleep(late_s)
            sent = threads.submit(self.heals[0].send_checkpoint, [len(self.heals) - 1], self.step, self.heals[0].state, timeout)
            try:
                return got.result(timeout=120)
            finally:
                try:
                    sent.result(timeout=120)
                except thalweg.errors.Error:
                    assert got.exception() is not None
                for heal in self.heals:
                    heal.disallow_checkpoint()

    def came_from(self):
        return self.heals[-1].came_from

    def end(self):
        for heal, group in zip(self.heals, self.groups, strict=True):
            heal.shutdown()
            group.abort()
