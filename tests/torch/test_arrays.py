"""thalweg.allreduce(x) and the others over NumPy arrays and PyTorch tensors; metrics of their ranks."""
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ranks import two_free_ports

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

PROGRAM = """
import sys
import numpy as np
import thalweg

rank, size = thalweg.rank(), thalweg.size()
for kind in ("float32", "float64", "float16", "int8", "int16", "int32", "int64"):
    own = (np.arange(6).reshape(2, 3) + rank).astype(kind)
    kept = own.copy()
    total = thalweg.allreduce(own)
    assert total.dtype == kind and (total == sum(np.arange(6).reshape(2, 3) + r for r in range(size))).all(), total
    assert (own == kept).all()
assert thalweg.allreduce(np.float32(rank), op="max") == size - 1
assert (thalweg.allreduce(np.arange(3).astype(">f4")) == size * np.arange(3)).all()
assert (thalweg.allreduce(np.arange(8.)[::2] * (rank + 1), op="mean") == np.arange(8.)[::2] * (size + 1) / 2).all()
assert (thalweg.broadcast(np.full(5, rank), root=1) == 1).all()
assert (thalweg.all_gather(np.full((2, 2), rank)) == np.arange(size)[:, None, None]).all()
parts = np.arange(size)[:, None] * np.ones((1, 3))
assert (thalweg.reduce_scatter(parts) == rank * size).all()
assert (thalweg.all_to_all(parts + 100 * rank)[:, 0] == 100 * np.arange(size) + rank).all()
thalweg.barrier()
for bad, word in ((lambda: thalweg.allreduce(np.ones(3, np.uint8)), "type: 'uint8'"),
                  (lambda: thalweg.allreduce(np.ones(3), op="xor"), "op: 'xor'"),
                  (lambda: thalweg.reduce_scatter(np.ones(7)), "number of ranks")):
    try:
        bad()
    except ValueError as error:
        assert word in str(error), error
    else:
        raise AssertionError(word)
assert "torch" not in sys.modules
thalweg.shutdown()
print("fine", flush=True)
"""


def run(program, *words, ranks=2, environment=None):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "THALWEG_BACKEND": "0", **(environment or {})}
    return subprocess.run([ROOT / "build/release/thalweg", "run", "-n", str(ranks), "--", sys.executable, "-c", program,
                           *words], env=environment, capture_output=True, text=True, timeout=200, check=False)


def test_numpy__every_call_and_type_without_pytorch():
    done = run(PROGRAM, ranks=3)
    assert done.returncode == 0 and done.stdout.count("fine") == 3, done.stdout + done.stderr


CLOSED_MEANWHILE = """
import pathlib, sys, threading, time
import numpy as np
import thalweg

closed = pathlib.Path(sys.argv[1])
own = thalweg.Communicator(group="own")


def call(ends):
    try:
        ends.append(own.allreduce(np.ones(4)).tolist())
    except RuntimeError as error:  # it was closed before the call began
        ends.append(str(error))


ends = []
if own.rank == 0:
    thread = threading.Thread(target=call, args=(ends,))
    thread.start()
    time.sleep(0.5)  # it is in its call by then, unless the machine is very busy
    own.close()
    closed.touch()
    thread.join()
    assert ends[0] == [2.0] * 4 or "was closed" in ends[0], ends
else:
    while not closed.exists():
        time.sleep(0.01)
    call(ends)
    assert ends[0] == [2.0] * 4 or "rank 0" in ends[0], ends
for bad in (float("inf"), 0.0, float("nan")):
    try:
        thalweg.Communicator(group="other", timeout=bad)
    except ValueError as error:
        assert "timeout: " in str(error), error
    else:
        raise AssertionError(bad)
print("fine", flush=True)
"""


def test_closed_by_another_thread__a_call_in_flight_ends_well(tmp_path):
    done = run(CLOSED_MEANWHILE, str(tmp_path / "closed"))
    assert done.returncode == 0 and done.stdout.count("fine") == 2, done.stdout + done.stderr


def test_one_rank__of_torch_and_of_dlpack():
    import torch

    from thalweg.arrays import Communicator

    class Foreign:
        """An array of an unknown framework."""

        def __dlpack__(self, **_):
            return np.arange(3.).__dlpack__()

        def __dlpack_device__(self):
            return 1, 0

    alone = Communicator(rank=0, size=1)
    assert isinstance(alone.allreduce(Foreign()), np.ndarray) and alone.allreduce(Foreign())[2] == 2
    for kind in (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64):
        tensor = torch.arange(6).to(kind).view(2, 3).t()
        total = alone.allreduce(tensor)
        assert total.dtype == kind and torch.equal(total.double(), tensor.double())
    with pytest.raises(ValueError, match="a tensor on meta"):
        alone.allreduce(torch.empty(3, device="meta"))
    alone.close()
    with pytest.raises(RuntimeError, match="closed"):
        alone.barrier()


METRICS = """
import json, os, subprocess, sys, urllib.error, urllib.request
import numpy as np
import thalweg
first, program = int(sys.argv[1]), sys.argv[2]
rank = thalweg.rank()
for _ in range(3):
    thalweg.allreduce(np.ones(1000, np.float32))
thalweg.barrier()
place = f"http://127.0.0.1:{first + rank}"
text = urllib.request.urlopen(place + "/metrics", timeout=60).read().decode()
assert f'thalweg_operations_total{{rank="{rank}",call="allreduce"}} 3' in text, text
assert f'thalweg_bytes_total{{rank="{rank}",call="allreduce"}} 12000' in text, text
assert f'thalweg_packets_sent_total{{rank="{rank}"}} 0' in text, text
try:
    urllib.request.urlopen(place + "/other", timeout=60)
    raise AssertionError("/other")
except urllib.error.HTTPError as error:
    assert error.code == 404
thalweg.barrier()
if rank == 0:
    places = [f"127.0.0.1:{first}", f"127.0.0.1:{first + 1}"]
    found = json.loads(subprocess.run([program, "top", "--once", "--json", *places], check=True, capture_output=True).stdout)
    assert [one["rank"] for one in found] == ["0", "1"] and found[1]["metrics"]["failures"] == 0, found
    table = subprocess.run([program, "top", "--once", *places], check=True, capture_output=True, text=True).stdout
    assert "calls" in table and places[1] in table, table
thalweg.barrier()
print("fine", flush=True)
"""


def test_metrics__of_every_rank_and_by_top():
    port = two_free_ports()
    done = run(METRICS, str(port), ROOT / "build/release/thalweg", environment={"THALWEG_METRICS": f":{port}"})
    assert done.returncode == 0 and done.stdout.count("fine") == 2, done.stdout + done.stderr


def test_metrics__refused_where_they_cannot_be():
    done = run("import thalweg; thalweg.rank()", environment={"THALWEG_METRICS": "127.0.0.1:99999"}, ranks=1)
    assert done.returncode != 0 and "THALWEG_METRICS" in done.stderr, done.stderr
    top = subprocess.run([ROOT / "build/release/thalweg", "top", "--once", f"127.0.0.1:{two_free_ports()}"],
                         capture_output=True, text=True, timeout=100, check=False)
    assert top.returncode == 1 and "127.0.0.1" in top.stdout
