"""StateTransport between processes, in a training, and the parts that it is made of."""
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import ranks  # noqa: F401  finds the package
import torch
from torch import nn

if importlib.util.find_spec("torchft") is None:
    pytest.skip("torchft is not installed (`.venv/bin/python -m pip install torchft-nightly`)", allow_module_level=True)

from torchft import DistributedDataParallel, Manager, Optimizer
from torchft.coordination import LighthouseServer
from torchft.process_group import ReconfigureOptions
from torchft_survivors import LONG, same, state_of

from thalweg import _state_fetch
from thalweg import _state_parts as parts_of
from thalweg.state_transport import StateTransport
from thalweg.torchft import ProcessGroupThalweg


def survivor(rank):
    """A process that sends its state until the test ends it."""
    group = ProcessGroupThalweg(timeout=LONG, towards="127.0.0.1:9")
    heal = StateTransport(group, LONG)
    heal.share(lambda: state_of(9))
    heal.metadata()
    print(group.get_reconfigure_handle(), flush=True)
    options = ReconfigureOptions()
    options.uuid, options.handles = 1, json.loads(sys.stdin.readline())
    group.reconfigure(options).wait()
    if rank == 0:
        heal.send_checkpoint([4], 9, state_of(9), LONG)
    sys.stdin.readline()
    os._exit(0)


def test_heal__a_process_is_killed_and_one_stopped_amid(monkeypatch):
    processes = [subprocess.Popen([sys.executable, "-W", "ignore", __file__, str(rank)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True) for rank in range(4)]
    group = ProcessGroupThalweg(timeout=LONG, towards="127.0.0.1:9")
    heal = StateTransport(group, LONG)
    hits = {2: signal.SIGKILL, 3: signal.SIGSTOP}
    asked = {rank: threading.Event() for rank in hits}
    take = _state_fetch.Assignments.take

    def take_and_hit(self, rank, may_wait):
        """The second part that a victim is asked for finds it gone. Others wait until both have been asked."""
        part = take(self, rank, may_wait)
        if rank not in hits:
            assert all(event.wait(60) for event in asked.values())
        elif not may_wait and not asked[rank].is_set():
            processes[rank].send_signal(hits[rank])
            asked[rank].set()
        return part
    monkeypatch.setattr(_state_fetch.Assignments, "take", take_and_hit)
    try:
        handles = [one.stdout.readline() for one in processes] + [group.get_reconfigure_handle()]
        for one in processes:
            print(json.dumps(handles), file=one.stdin, flush=True)
        options = ReconfigureOptions()
        options.uuid, options.handles = 1, handles
        group.reconfigure(options).wait()
        assert same(heal.recv_checkpoint(0, "thalweg", 9, LONG), state_of(9))
        assert all(event.is_set() for event in asked.values())
        assert heal.came_from[0] > 0
    finally:
        for one in processes:
            one.kill()
            one.wait()
        heal.shutdown()
        group.abort()


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


if __name__ == "__main__":
    survivor(int(sys.argv[1]))
