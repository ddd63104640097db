"""torchft's process group over Thalweg. Replicas are threads of one process."""
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import ranks  # noqa: F401  finds the package
import torch
import torch.distributed as dist

if importlib.util.find_spec("torchft") is None:
    pytest.skip("torchft is not installed (`.venv/bin/python -m pip install torchft-nightly`)", allow_module_level=True)

from torchft.process_group import ReconfigureOptions

import thalweg
from thalweg.torchft import ProcessGroupThalweg, towards_lighthouse

ROOT = Path(__file__).resolve().parents[2]
LONG = timedelta(seconds=120)


def together(groups, body):
    """Returns body(group, rank) of all groups, each called in a thread of its own."""
    with ThreadPoolExecutor(len(groups)) as threads:
        return [future.result(timeout=240) for future in
                [threads.submit(body, group, rank) for rank, group in enumerate(groups)]]


def quorum(groups, uuid):
    handles = [group.get_reconfigure_handle() for group in groups]

    def meet(group, _rank):
        options = ReconfigureOptions()
        options.uuid, options.handles = uuid, handles
        group.reconfigure(options).wait()
    together(groups, meet)


def sums(groups, elements=1000):
    def add(group, rank):
        tensor = torch.full((elements,), float(rank + 1))
        work = group.allreduce([tensor], dist.ReduceOp.SUM)
        work.wait()
        work.get_future().wait()
        return tensor
    wanted = sum(range(1, len(groups) + 1))
    return all(bool((tensor == wanted).all()) for tensor in together(groups, add))


@pytest.fixture
def make():
    made = []

    def one(**options):
        made.append(ProcessGroupThalweg(**{"timeout": LONG} | options))
        return made[-1]
    yield one
    for group in made:
        group.abort()


def test_quorums__replicas_leave_and_come(make):
    a, b, c, d = (make() for _ in range(4))
    for uuid, groups in enumerate([[a, b, c, d], [a, d], [d, b, a], [b], [a, b, c, d]]):
        quorum(groups, uuid)
        assert [group.size() for group in groups] == [len(groups)] * len(groups)
        assert sums(groups)
        assert sums(groups, 2_000_000)
        assert all(group.errored() is None for group in groups)


def test_a_replica_that_leaves__is_named_by_the_others(make):
    groups = [make() for _ in range(3)]
    quorum(groups, 1)
    assert sums(groups)
    groups[2].shutdown()
    with pytest.raises(thalweg.errors.PeerLost, match="rank 2.*Connection closed by peer"):
        groups[0].allreduce([torch.ones(4)], dist.ReduceOp.SUM).wait()
    error = groups[0].errored()
    assert (error.code, error.rank) == ("peer lost", 2)
    quorum(groups[:2], 2)
    assert groups[0].errored() is None
    assert sums(groups[:2])


def test_abort__ends_calls_at_once_from_any_thread(make):
    groups = [make() for _ in range(2)]
    quorum(groups, 1)
    assert sums(groups)
    work = groups[0].allreduce([torch.ones(4)], dist.ReduceOp.SUM)  # the other one does not call it
    future = work.get_future()
    threading.Timer(0.2, groups[0].abort).start()
    began = time.monotonic()
    with pytest.raises(thalweg.errors.Cancelled):
        work.wait()
    with pytest.raises(RuntimeError):
        future.wait()
    assert time.monotonic() - began < LONG.total_seconds() / 2
    assert groups[0].errored().code == "cancelled"
    groups[0].abort()  # does nothing
    quorum(groups, 2)
    assert groups[0].errored() is None
    assert sums(groups)


def test_a_replica_that_does_not_come__is_named_after_the_timeout(make):
    here, missing = make(timeout=timedelta(seconds=1)), make()
    handles = [missing.get_reconfigure_handle(), here.get_reconfigure_handle()]
    options = ReconfigureOptions()
    options.uuid, options.handles = 1, handles
    here.reconfigure(options).wait()
    with pytest.raises(thalweg.errors.Timeout) as raised:
        here.allreduce([torch.ones(4)], dist.ReduceOp.SUM).wait()
    assert raised.value.rank == 0
    # Without its address the replicas meet by torchft's store, and all have to come.
    other = make(timeout=timedelta(seconds=1))
    options.handles = [other.get_reconfigure_handle(), json.dumps({"id": "missing", "store": "none", "global_rank": None})]
    with pytest.raises(thalweg.errors.Timeout, match="configure: timeout after 1000ms"):
        other.reconfigure(options).wait()


def test_configure__by_a_store(make):
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    groups = [make() for _ in range(3)]
    for turn in range(2):
        together(groups, lambda group, rank, turn=turn: group.configure(
            f"localhost:{store.port}/quorum/{turn}", f"replica{rank}", rank, len(groups)))
        assert sums(groups)


def test_loss_bound__goes_over_dlcp(make):
    groups = [make(loss_bound=0.01, options=thalweg.Options(line_rate_gbps=1)) for _ in range(2)]
    quorum(groups, 1)

    def add(group, _rank):
        mean, counts = torch.ones(50_000), torch.ones(4, dtype=torch.int64)
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.AVG
        group.allreduce([mean], options).wait()
        group.allreduce([counts], dist.ReduceOp.SUM).wait()  # integers stay exact
        return bool((mean == 1).all()) and bool((counts == 2).all())
    assert all(together(groups, add))


@pytest.mark.parametrize("arguments, words", [
    ({"timeout": timedelta(0)}, "timeout: .*above 0"),
    ({"timeout": 5}, "timeout: 5"),
    ({"loss_bound": 1}, "loss_bound: 1; from 0 to below 1"),
    ({"loss_bound": 0.1, "result_loss_bound": 0.2}, "result_loss_bound: 0.2; from 0 to loss_bound, 0.1"),
])
def test_arguments__errors_that_help(arguments, words):
    with pytest.raises(ValueError, match=words):
        ProcessGroupThalweg(**arguments)


def test_options__of_another_type():
    with pytest.raises(TypeError, match="options: dict; thalweg.Options are allowed"):
        ProcessGroupThalweg(options={})


@pytest.mark.parametrize("given, host", [("http://10.1.2.3:29510", "10.1.2.3:9"), ("http://[fd00::1]:29510", "[fd00::1]:9"),
                                         ("lighthouse:29510", "lighthouse:9")])
def test_towards_lighthouse(monkeypatch, given, host):
    monkeypatch.setenv("TORCHFT_LIGHTHOUSE", given)
    assert towards_lighthouse() == host


def test_example__two_of_four_are_killed_and_one_comes(tmp_path):
    result = tmp_path / "times.json"
    run = subprocess.run([sys.executable, "examples/torchft_digits.py", "--steps", "300", "--between", "5", "--json",
                          str(result)], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
                         capture_output=True, text=True, timeout=900, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"replicas 1, 2 left \(killed\): the next step, \d+, ended [\d.]+ s later with 2 replicas", run.stdout)
    assert re.search(r"replica 4 came: it has the model and has ended step \d+ with 3 replicas", run.stdout)
    times = json.loads(result.read_text())
    assert times["models"] == 1
    assert times["accuracy"] > 0.9
