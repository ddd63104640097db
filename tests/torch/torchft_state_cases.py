"""StateTransport: a newcomer's state from several survivors. Replicas are threads of one process."""
import importlib.util
import json
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
from torchft_survivors import LONG, ReconfigureOptions, Replicas, dies, goes_on, hangs, same, state_of

import thalweg
from thalweg import _state_fetch
from thalweg import _state_parts as parts_of
from thalweg.state_transport import StateTransport
from thalweg.torchft import ProcessGroupThalweg


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


def test_quorum__without_a_transport_on_all_replicas(make):
    replicas = make(2)
    replicas.heals[1].shutdown()
    replicas.quorum(1, [])
    with pytest.raises(thalweg.errors.BadArgument, match="not all replicas of this quorum have one"):
        replicas.heals[0].recv_checkpoint(1, "thalweg", 1, LONG)


def test_quorum__by_torchfts_store__has_no_streams_of_the_last_one(make, monkeypatch):
    replicas = make(2)
    replicas.quorum(1, [state_of(1)])
    monkeypatch.setattr(ProcessGroupThalweg.__mro__[1], "reconfigure", lambda _group, _options: None)
    options = ReconfigureOptions()
    options.handles = [json.dumps({"id": "of another version"})] * 2
    replicas.groups[1].reconfigure(options)
    with pytest.raises(thalweg.errors.BadArgument, match="not all replicas of this quorum have one"):
        replicas.heals[1].recv_checkpoint(0, "thalweg", 1, LONG)


def test_quorum__streams_that_cannot_be_made__hold_nobody_up(make):
    heal = make(1).heals[0]

    def fails():
        raise MemoryError
    heal.meet(fails, 0, 1)
    waits = threading.Thread(target=heal.wait_made, daemon=True)
    waits.start()
    waits.join(30)
    assert not waits.is_alive()
    with pytest.raises(thalweg.errors.BadArgument, match="or there is no quorum"):
        heal.recv_checkpoint(0, "thalweg", 1, LONG)


def test_arguments__errors_that_help(make):
    replicas = make(1)
    with pytest.raises(ValueError, match="the group has a StateTransport"):
        StateTransport(replicas.groups[0])
    with pytest.raises(ValueError, match="timeout: .*above 0"):
        StateTransport(ProcessGroupThalweg(), timedelta(0))
