"""Tensors on a GPU, which all ranks may share. Skipped without a GPU.

    python -m pytest tests/torch/test_cuda.py
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist
from ranks import ROOT, SECONDS, run_ranks

import thalweg.torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
SIZE = 2
A_WHILE = 500_000_000  # cycles of the GPU


def own_device(rank):
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def every_call(rank, size):
    device = own_device(rank)
    for elements in (5, 1_000_003, 5_000_000):  # the larger ones go in several pieces
        values = torch.full((elements,), rank + 1.0, device=device)
        dist.all_reduce(values)
        values *= 2  # on the caller's CUDA stream, directly after the reduction
        assert values.eq(6).all()
        work = dist.all_reduce(values, op=dist.ReduceOp.AVG, async_op=True)
        doubled = work.get_future().then(lambda future: future.value()[0] * 2)
        assert doubled.wait().eq(12).all()
    mine = torch.arange(12.0, device=device).view(3, 4).t() + rank  # not contiguous
    gathered = [torch.zeros(4, 3, device=device) for _ in range(size)]
    dist.all_gather(gathered, mine)
    assert all(torch.equal(gathered[r], torch.arange(12.0, device=device).view(3, 4).t() + r) for r in range(size))
    whole = torch.empty(4 * size, device=device)
    dist.all_gather_into_tensor(whole, torch.full((4,), float(rank), device=device))
    assert whole.tolist() == [0.0] * 4 + [1.0] * 4
    part = torch.empty(4, device=device)
    dist.reduce_scatter_tensor(part, torch.arange(8.0, device=device))
    assert part.tolist() == [(4 * rank + i) * 2.0 for i in range(4)]
    dist.broadcast(whole, 1)
    dist.reduce(whole, 0)
    received = torch.empty(3, device=device)
    other = dist.isend(torch.full((3,), float(rank), device=device), 1 - rank)
    dist.recv(received, 1 - rank)
    other.wait()
    assert received.eq(1 - rank).all()
    out = torch.empty(6, device=device)
    dist.all_to_all_single(out, torch.arange(6.0, device=device) + 10 * rank, [3, 3], [3, 3])
    assert out.tolist() == [3.0 * rank + i for i in range(3)] + [10.0 + 3 * rank + i for i in range(3)]
    dist.barrier()


def trains(rank, size):
    device = own_device(rank)
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8)).to(device)
    model = torch.nn.parallel.DistributedDataParallel(model)
    model.register_comm_hook(thalweg.torch.GradientState(), thalweg.torch.reduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(16, 64, device=device)).square().mean().backward()
        optimizer.step()
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    others = [torch.empty_like(flat) for _ in range(size)]
    dist.all_gather(others, flat)
    assert all(torch.equal(flat, other) for other in others)


def message_beside_a_copy(rank, size):
    """A message of CPU tensors starts before the collective ahead of it in the same work, whose copy from the device is
    late."""
    device = own_device(rank)
    values, received = torch.full((1_000_000,), rank + 1.0, device=device), torch.empty(3)
    torch.cuda._sleep(A_WHILE)
    group = dist.group.WORLD
    group._start_coalescing(device)
    group.allreduce([values])
    group.send([torch.full((3,), float(rank))], 1 - rank, 0)
    group.recv([received], 1 - rank, 0)
    group._end_coalescing(device).wait()
    assert values.eq(3).all() and received.eq(1 - rank).all()


def sparse_behind_a_copy(rank, size):
    """Even if one rank's copy is late, both ranks start the sparse reduction after the dense one."""
    device = own_device(rank)
    values, mine = torch.full((1000,), rank + 1.0, device=device), torch.eye(4).to_sparse()
    if rank == 0:
        torch.cuda._sleep(A_WHILE)
    work = dist.all_reduce(values, async_op=True)
    dist.all_reduce(mine)
    work.wait()
    assert values.eq(3).all() and torch.equal(mine.to_dense(), 2 * torch.eye(4))


def odd_places(rank, size):
    """Views of any size and place: the elements around them stay as they are. The sizes are below and above those that one
    block, several blocks and none of the kernel copy."""
    device = own_device(rank)
    for kind in (torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for elements in (1, 3, 15, 16, 17, 4095, 4096, 4097, 16_385, 65_535, 65_536, 65_537, 300_001):
            for shift in (0, 1, 7):
                whole = torch.full((elements + 16,), 9, dtype=kind, device=device)
                view = whole[shift:shift + elements]
                view.copy_((torch.arange(elements, device=device) % 50 + rank).to(kind))
                dist.all_reduce(view)
                wanted = (2 * (torch.arange(elements, device=device) % 50) + 1).to(kind)
                assert torch.equal(view, wanted), (kind, elements, shift)
                assert whole[:shift].eq(9).all() and whole[shift + elements:].eq(9).all(), (kind, elements, shift)
    for empty in (torch.empty(0, device=device), torch.empty(3, 0, device=device)):
        dist.all_reduce(empty)
    strided = torch.arange(24.0, device=device).view(4, 6).t()
    dist.all_reduce(strided)
    assert torch.equal(strided, 2 * torch.arange(24.0, device=device).view(4, 6).t())
    conjugate = torch.full((5,), 1 + 2j, device=device).conj()
    dist.all_reduce(conjugate.resolve_conj())
    doubled = torch.full((7,), 0.5, dtype=torch.float8_e5m2, device=device)
    dist.all_reduce(doubled)
    assert doubled.float().eq(1).all()


def streams(rank, size):
    """A call waits for what its own stream has before it, and what follows in that stream waits for the call; another
    stream that waits for the work waits for the result, too."""
    device = own_device(rank)
    one, other = torch.cuda.Stream(device), torch.cuda.Stream(device)
    for elements in (100, 20_000, 100_000, 3_000_000):
        values = torch.zeros(elements, device=device)
        torch.cuda.synchronize()
        with torch.cuda.stream(one):
            torch.cuda._sleep(A_WHILE // 10)
            values.fill_(rank + 1.0)
            dist.all_reduce(values)
            tripled = values * 3
        one.synchronize()
        assert tripled.eq(9).all()
        with torch.cuda.stream(one):
            torch.cuda._sleep(A_WHILE // 10)
            values.fill_(rank + 1.0)
            work = dist.all_reduce(values, async_op=True)
        with torch.cuda.stream(other):
            work.wait()
            halved = values / 2
        other.synchronize()
        assert halved.eq(1.5).all()


def many_calls(rank, size):
    """Calls one after the other, with computing between them in the same stream, never meet another call's memory."""
    device = own_device(rank)
    values = [torch.zeros(elements, device=device) for elements in (7, 1000, 50_000, 65_536)]
    for step in range(300):
        for tensor in values:
            tensor.fill_(step + rank)
            dist.all_reduce(tensor)
            tensor.mul_(10)
    sums = [tensor.eq(10 * (2 * 299 + 1)).all() for tensor in values]
    assert all(sums)


def dropped(rank, size):
    """Nobody waits for the work or keeps the tensor: its memory is not used again while the copy to it is under way."""
    device = own_device(rank)
    for elements in (300, 2_000_000):
        for _ in range(20):
            work = dist.all_reduce(torch.ones(elements, device=device), async_op=True)
            while not work.is_completed():
                time.sleep(0)
            del work
            others = [torch.zeros(elements, device=device) for _ in range(3)]
            torch.cuda.synchronize()
            assert all(other.eq(0).all() for other in others)


def two_threads(rank, size):
    """While one thread waits for its late copy, another thread's call comes second on all ranks, and returns at once."""
    device = own_device(rank)
    first, second = torch.full((100,), rank + 1.0, device=device), torch.full((50,), rank + 1.0, device=device)
    for asynchronous in (False, True):  # the first calls allocate, for which CUDA waits
        work = dist.all_reduce(torch.zeros(50, device=device), async_op=asynchronous)
    work.wait()
    torch.cuda.synchronize()

    def late():
        torch.cuda.set_device(device)
        with torch.cuda.stream(torch.cuda.Stream(device)):
            torch.cuda._sleep(A_WHILE)
            dist.all_reduce(first)

    thread = threading.Thread(target=late)
    thread.start()
    time.sleep(0.05)
    began = time.monotonic()
    work = dist.all_reduce(second, async_op=True)
    returned = time.monotonic() - began
    work.wait()
    thread.join()
    torch.cuda.synchronize()
    assert first.eq(3).all() and second.eq(3).all()
    assert returned < 0.1, returned


def captured(rank, size):
    """A CUDA graph cannot hold a call: the error says so, and later calls work."""
    device = own_device(rank)
    values = torch.full((100,), rank + 1.0, device=device)
    dist.all_reduce(values)
    for asynchronous in (False, True):
        with pytest.raises(RuntimeError, match="while a CUDA graph is captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            dist.all_reduce(values, async_op=asynchronous)
    dist.all_reduce(values)
    assert values.eq(6).all()


def lost_rank(rank, size):
    device = own_device(rank)
    values = torch.ones(100, device=device)
    dist.all_reduce(values)
    torch.cuda.synchronize()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="rank 1"):
        dist.all_reduce(values)
    assert values.eq(2).all()  # the stream is not stuck


@pytest.mark.parametrize("kernels", ["1", "0"])
@pytest.mark.parametrize("body", [odd_places, streams, many_calls])
def test_calls_that_wait(body, kernels):
    run_ranks(SIZE, body, method="spawn", seconds=4 * SECONDS, environment={"THALWEG_CUDA_KERNELS": kernels})


@pytest.mark.parametrize("body", [dropped, two_threads, captured])
def test_beside_other_streams(body):
    run_ranks(SIZE, body, method="spawn", seconds=4 * SECONDS)


def test_a_rank_that_dies():
    run_ranks(SIZE, lost_rank, method="spawn", seconds=4 * SECONDS, dies=[1])


@pytest.mark.parametrize("backend", ["thalweg", "cpu:gloo,cuda:thalweg"])
@pytest.mark.parametrize("body", [every_call, trains])
def test_on_a_gpu(body, backend):
    run_ranks(SIZE, body, backend=backend, method="spawn", seconds=4 * SECONDS)


@pytest.mark.parametrize("body", [message_beside_a_copy, sparse_behind_a_copy])
def test_beside_the_cpu(body):
    run_ranks(SIZE, body, method="spawn", seconds=4 * SECONDS)


def test_bench_gpu__runs():
    run = subprocess.run([sys.executable, "-m", "thalweg.lab.bench.gpu_allreduce", "--ranks", "2", "--sizes", "1KiB,32MiB",
                          "--rounds", "1", "--turn", "0.02", "--json"], check=True, timeout=4 * SECONDS,
                         capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    small, large = json.loads(run.stdout)["rows"]
    assert small["parts_per_call"] == 1 and large["parts_per_call"] == 2
    assert small["ratio_p50"].keys() == {"nccl", "gloo"} and small["phases_us"]["operation"] > 0


def test_benchmark__runs(tmp_path):
    row = tmp_path / "row.json"
    subprocess.run([sys.executable, "-m", "thalweg.lab.bench.gpu", "--mib", "8", "--rounds", "1", "--model", "", "--json",
                    str(row)], check=True, timeout=4 * SECONDS, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert json.loads(row.read_text())["staged_by_copy"] > 0
