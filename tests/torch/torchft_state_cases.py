"""StateTransport: a newcomer's state from several survivors. Replicas are threads of one process."""
import importlib.util
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import ranks  # noqa: F401  finds the package
import torch
from torch import nn

if importlib.util.find_spec("torchft") is None:
    pytest.skip("torchft is not installed (`.venv/bin/python -m pip install torchft-nightly`)", allow_module_level=True)

from torch.distributed.tensor import DeviceMesh, distribute_tensor
from torchft import DistributedDataParallel, Manager, Optimizer
from torchft.coordination import LighthouseServer
from torchft.process_group import ReconfigureOptions

import thalweg
from thalweg import _state_fetch
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


@pytest.fixture
def make():
    made = []

    def one(*arguments):
        made.append(Replicas(*arguments))
        return made[-1]
    yield one
    for replicas in made:
        replicas.end()


def test_heal__parts_come_from_all_survivors(make):
    replicas = make(4)
    for step in (3, 4):
        replicas.quorum(step, [state_of(step) for _ in range(3)])
        assert same(replicas.heal(), state_of(step))
        assert set(replicas.came_from()) == {0, 1, 2}
        assert sum(replicas.came_from().values()) == 16  # of 256 KiB


def test_heal__the_source_may_be_late(make):
    replicas = make(3)
    replicas.quorum(1, [state_of(1), state_of(1)])
    assert same(replicas.heal(late_s=0.5), state_of(1))


def test_heal__survivors_that_do_not_share_are_not_asked(make):
    replicas = make(3)
    replicas.quorum(1, [state_of(1), state_of(1)])
    replicas.heals[1]._read = None
    assert same(replicas.heal(), state_of(1))
    assert set(replicas.came_from()) == {0}


def test_heal__a_survivor_of_another_step_or_layout_is_not_asked(make):
    replicas = make(4)
    replicas.quorum(5, [state_of(5), state_of(4), state_of(5, elements=999_999)])
    assert same(replicas.heal(), state_of(5))
    assert set(replicas.came_from()) == {0}


def test_heal__a_survivor_whose_state_cannot_be_read_is_not_asked(make):
    replicas = make(3)
    replicas.quorum(5, [state_of(5), {}])
    assert same(replicas.heal(), state_of(5))
    assert set(replicas.came_from()) == {0}


def test_heal__another_state_of_the_same_step_is_not_mixed_in(make):
    replicas = make(4)
    replicas.quorum(2, [state_of(2, seed=1), state_of(2, seed=2), state_of(2, seed=1)])
    assert same(replicas.heal(), state_of(2, seed=1))
    assert 1 not in replicas.came_from()


def test_heal__what_differs_between_replicas_comes_from_the_source(make):
    replicas = make(3)
    replicas.quorum(2, [state_of(2), state_of(2)])
    replicas.heals[1].state["user"]["model"]["small"].add_(1)  # as running means differ
    assert same(replicas.heal(), state_of(2))
    assert set(replicas.came_from()) == {0, 1}


@pytest.mark.parametrize("fault", [dies, hangs, goes_on])
@pytest.mark.parametrize("after", [0, 3])
def test_heal__a_survivor_fails_amid(make, monkeypatch, fault, after):
    if fault is not hangs:  # its parts are asked of others at once, and not because they are late
        monkeypatch.setattr(_state_fetch, "_LEAST_PATIENCE_S", LONG.total_seconds())
    replicas = make(4)
    replicas.quorum(7, [state_of(7) for _ in range(3)])
    replicas.heals[1].fault, replicas.heals[1].after = fault, after
    began = time.monotonic()
    assert same(replicas.heal(), state_of(7))
    assert time.monotonic() - began < LONG.total_seconds() / 2
    assert replicas.came_from()[0] > 0
    assert replicas.came_from().get(1, 0) <= after


@pytest.mark.parametrize("after", [0, 5])
def test_heal__the_source_dies(make, after):
    replicas = make(3)
    replicas.quorum(7, [state_of(7), state_of(7)])
    replicas.heals[0].fault, replicas.heals[0].after = dies, after
    began = time.monotonic()
    with pytest.raises(thalweg.errors.PeerLost) as raised:
        replicas.heal()
    assert raised.value.rank == 0
    assert time.monotonic() - began < LONG.total_seconds() / 2


def test_heal__the_source_hangs(make):
    replicas = make(3)
    replicas.quorum(7, [state_of(7), state_of(7)])
    replicas.heals[0].fault = hangs
    with pytest.raises(thalweg.errors.Timeout, match="Timed out waiting 2 s for the state of step 7 from rank 0") as raised:
        replicas.heal(timeout=timedelta(seconds=2))
    assert raised.value.rank == 0


def test_heal__the_source_sends_another_step(make):
    replicas = make(2)
    replicas.quorum(7, [state_of(7)])
    with ThreadPoolExecutor(1) as threads:
        got = threads.submit(replicas.heals[1].recv_checkpoint, 0, "thalweg", 8, LONG)
        sent = threading.Thread(target=replicas.heals[0].send_checkpoint, args=([1], 7, state_of(7), LONG))
        sent.start()
        with pytest.raises(thalweg.errors.Mismatch, match="rank 0 does not send the state of step 8"):
            got.result(timeout=60)
        sent.join(60)  # it does not wait for a newcomer that has failed
        assert not sent.is_alive()


def test_a_step_that_ended__nothing_is_read(make):
    replicas = make(2)
    replicas.quorum(1, [state_of(1)])
    heal = replicas.heals[0]
    layout = parts_of.Snapshot(state_of(1), 1).layout
    snapshot = heal._state_of(1, layout)
    assert torch.equal(heal._copy_of(snapshot, 0), snapshot.cut.copy_out(0, snapshot.tensors))
    heal.disallow_checkpoint()
    assert heal._copy_of(snapshot, 0) is None
    assert heal._state_of(1, layout) is None
    heal.metadata()  # the next step: the state is read anew
    assert heal._copy_of(snapshot, 0) is None
    assert heal._state_of(1, layout) is not snapshot


def test_a_newcomer__sends_nothing_before_its_model_is_loaded(make):
    replicas = make(2)
    replicas.quorum(1, [state_of(1)])
    newcomer = replicas.heals[1]
    newcomer.share(lambda: state_of(1))
    layout = parts_of.Snapshot(state_of(1), 1).layout
    assert newcomer._state_of(1, layout) is not None
    with ThreadPoolExecutor(1) as threads:
        got = threads.submit(newcomer.recv_checkpoint, 0, "thalweg", 1, LONG)
        replicas.heals[0].send_checkpoint([1], 1, state_of(1), LONG)
        got.result(timeout=60)
    assert newcomer._state_of(1, layout) is None
    newcomer.metadata()
    assert newcomer._state_of(1, layout) is not None


def test_send__a_newcomer_that_dies_is_not_waited_for(make):
    replicas = make(3)
    replicas.quorum(1, [state_of(1), state_of(1)])
    replicas.heals[2].wait_made()
    replicas.heals[2]._backend.abort()
    began = time.monotonic()
    replicas.heals[0].send_checkpoint([2], 1, state_of(1), LONG)
    assert time.monotonic() - began < LONG.total_seconds() / 2


def test_send__a_newcomer_that_does_not_come_is_named(make):
    replicas = make(2)
    replicas.quorum(1, [state_of(1)])
    with pytest.raises(thalweg.errors.Timeout, match=r"waiting 0\.5 s until ranks \[1\] had the state of step 1") as raised:
        replicas.heals[0].send_checkpoint([1], 1, state_of(1), timedelta(seconds=0.5))
    assert raised.value.rank == 1


def test_heal__two_newcomers_with_a_source_each(make):
    replicas = make(4)
    state = state_of(3)
    replicas.quorum(3, [state, state])
    with ThreadPoolExecutor(4) as threads:
        got = [threads.submit(replicas.heals[rank].recv_checkpoint, rank - 2, "thalweg", 3, LONG) for rank in (2, 3)]
        sent = [threads.submit(replicas.heals[rank].send_checkpoint, [rank + 2], 3, state, LONG) for rank in (0, 1)]
        assert all(same(one.result(timeout=60), state) for one in got)
        for one in sent:
            one.result(timeout=60)


def test_heal__a_distributed_tensor_and_a_module(make):
    torch.distributed.init_process_group(backend="gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    try:
        spread = distribute_tensor(torch.arange(5000.0), DeviceMesh("cpu", 1), [])
        network = nn.Sequential(nn.Linear(300, 300), nn.BatchNorm1d(300))
        state = state_of(1) | {"spread": spread, "network": network.state_dict()}
        replicas = make(2)
        replicas.quorum(1, [state])
        got = replicas.heal()
        assert torch.equal(got["spread"]._local_tensor, spread._local_tensor)
        assert got["spread"]._spec == spread._spec
        assert same(dict(got["network"]), dict(network.state_dict()))
    finally:
        torch.distributed.destroy_process_group()


def test_heal__random_faults(make):
    """Whatever survivors do, the newcomer gets the source's state, or an error that names the source."""
    seed = random.randrange(1 << 32)
    print(f"replay with seed = {seed}")
    draw = random.Random(seed)
    replicas = make(5)
    for step in range(1, 13):
        states = [state_of(step, seed=step) for _ in range(4)]
        for state in states[1:]:
            if draw.random() < 0.2:
                state["torchft"]["step"] -= 1
            if draw.random() < 0.2:
                state["user"]["model"]["large"][draw.randrange(1_000_000)] += 1
        replicas.quorum(step, states)
        for heal in replicas.heals[1:-1]:
            heal.fault, heal.after = draw.choice([None, dies, hangs, goes_on]), draw.randrange(12)
        source_dies = draw.random() < 0.25
        if source_dies:
            replicas.heals[0].fault, replicas.heals[0].after = dies, draw.randrange(40)
        began = time.monotonic()
        wanted = state_of(step, seed=step)
        try:
            assert same(replicas.heal(), wanted), f"step {step}"
        except thalweg.errors.Error as error:
            assert source_dies, f"step {step}: {error}"
            assert error.rank == 0, f"step {step}: {error}"
        assert time.monotonic() - began < LONG.total_seconds() / 2


def test_manager__a_newcomer_to_a_training_gets_parts_from_all(monkeypatch):
    lighthouse = LighthouseServer(bind="0.0.0.0:0", min_replicas=3, join_timeout_ms=2000, quorum_tick_ms=20, heartbeat_timeout_ms=5000)
    monkeypatch.setenv("TORCHFT_LIGHTHOUSE", lighthouse.address())
    steps, last, came = {}, [1 << 30], {}

    def train(replica):
        store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        model = nn.Linear(1000, 1000)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def load(state):
            came[replica] = dict(heal.came_from)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        group = ProcessGroupThalweg(timeout=LONG, towards="127.0.0.1:9")
        heal = StateTransport(group, LONG)
        manager = Manager(pg=group, checkpoint_transport=heal, min_replica_size=3, replica_id=f"replica{replica}", timeout=LONG,
                          quorum_timeout=LONG, load_state_dict=load, store_addr="localhost", store_port=store.port, rank=0, world_size=1,
                          state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        heal.share(manager)
        wrapped, stepper = DistributedDataParallel(manager, model), Optimizer(manager, optimizer)
        try:
            while manager.current_step() < last[0]:
                stepper.zero_grad()
                wrapped(torch.full((2, 1000), float(replica))).square().mean().backward()
                stepper.step()
                steps[replica] = manager.current_step()
            return [parameter.detach().clone() for parameter in model.parameters()]
        except BaseException:
            last[0] = 0  # the others end too
            raise
        finally:
            manager.shutdown(wait=False)
            group.shutdown()
    with ThreadPoolExecutor(4) as threads:
        models = [threads.submit(train, replica) for replica in range(3)]
        until = time.monotonic() + 120
        while min((steps.get(replica, 0) for replica in range(3))) < 3 and time.monotonic() < until:
            time.sleep(0.01)
        models.append(threads.submit(train, 3))
        while 3 not in steps and last[0] > 0 and time.monotonic() < until:
            time.sleep(0.01)
        last[0] = max(steps.values()) + 20
        models = [one.result(timeout=120) for one in models]
    lighthouse.shutdown()
    assert all(torch.equal(mine, yours) for model in models[1:] for mine, yours in zip(model, models[0], strict=True))
    assert len(came[3]) == 3, came


def test_quorum__without_a_transport_on_all_replicas(make):
    replicas = make(2)
    replicas.heals[1].shutdown()
    replicas.quorum(1, [])
    with pytest.raises(thalweg.errors.BadArgument, match="not all replicas of this quorum have one"):
        replicas.heals[0].recv_checkpoint(1, "thalweg", 1, LONG)


def test_arguments__errors_that_help(make):
    replicas = make(1)
    with pytest.raises(ValueError, match="the group has a StateTransport"):
        StateTransport(replicas.groups[0])
    with pytest.raises(ValueError, match="timeout: .*above 0"):
        StateTransport(ProcessGroupThalweg(), timedelta(0))


@pytest.mark.parametrize("sizes", [[], [0], [1], [0, 5, 0], [3 << 20, 1, 0, 7 << 20, 2], [400 << 20]])
def test_cut__every_byte_once(sizes):
    if sum(sizes) > 1 << 27:
        cut = parts_of.Cut(sizes)
        assert sum(map(cut.size, range(cut.count))) == sum(sizes)
        assert max(map(cut.size, range(cut.count))) <= 4 << 20
        return
    cut = parts_of.Cut(sizes)
    source = [torch.randint(256, (size,), dtype=torch.uint8) for size in sizes]
    target = [torch.zeros_like(tensor) for tensor in source]
    for part in range(cut.count):
        cut.copy_in(part, target, cut.copy_out(part, source))
    assert all(map(torch.equal, source, target))


def test_assignments__a_late_part_is_asked_of_another():
    parts = _state_fetch.Assignments(1, 0)
    assert parts.take(1, may_wait=False) == 0
    assert parts.take(2, may_wait=False) is None
    parts._asked[0][1] -= 10
    assert parts.take(1, may_wait=False) is None
    assert parts.take(2, may_wait=False) == 0
    written = []
    parts.came(0, 2, lambda: written.append(2))
    parts.came(0, 1, lambda: written.append(1))
    assert written == [2]
    assert parts.wait(time.monotonic()) == 0
    assert dict(parts.came_from) == {2: 1}
