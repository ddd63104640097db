"""Tensors on a GPU, which all ranks may share. Skipped without a GPU.

    python -m pytest tests/torch/test_cuda.py
"""
import json
import os
import subprocess
import sys

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


@pytest.mark.parametrize("backend", ["thalweg", "cpu:gloo,cuda:thalweg"])
@pytest.mark.parametrize("body", [every_call, trains])
def test_on_a_gpu(body, backend):
    run_ranks(SIZE, body, backend=backend, method="spawn", seconds=4 * SECONDS)


@pytest.mark.parametrize("body", [message_beside_a_copy, sparse_behind_a_copy])
def test_beside_the_cpu(body):
    run_ranks(SIZE, body, method="spawn", seconds=4 * SECONDS)


def test_benchmark__runs(tmp_path):
    row = tmp_path / "row.json"
    subprocess.run([sys.executable, "-m", "thalweg.lab.bench.gpu", "--mib", "8", "--rounds", "1", "--model", "", "--json",
                    str(row)], check=True, timeout=4 * SECONDS, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert json.loads(row.read_text())["staged_by_copy"] > 0
