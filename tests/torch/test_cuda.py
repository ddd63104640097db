"""Tensors of a GPU: all ranks may share one. Skipped where there is none.

    python -m pytest tests/torch/test_cuda.py
"""
import multiprocessing
import os
import tempfile
import traceback
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import SECONDS

import thalweg  # noqa: F401
import thalweg.torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
SIZE = 2


def every_call(rank, size, device):
    for elements in (5, 1_000_003, 5_000_000):  # also in several pieces
        values = torch.full((elements,), rank + 1.0, device=device)
        dist.all_reduce(values)
        values *= 2  # on the caller's stream, right behind it
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


def trains(rank, size, device):
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


def run_rank(body, backend, rank, store, pipe):
    try:
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=SIZE)
        body(rank, SIZE, device)
        dist.destroy_process_group()
        pipe.send("")
    except BaseException:  # noqa: BLE001
        pipe.send(traceback.format_exc())


@pytest.mark.parametrize("backend", ["thalweg", "cpu:gloo,cuda:thalweg"])
@pytest.mark.parametrize("body", [every_call, trains])
def test_on_a_gpu(body, backend):
    spawn = multiprocessing.get_context("spawn")  # a process with CUDA cannot be forked
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        pipes = []
        for rank in range(SIZE):
            ours, theirs = spawn.Pipe(duplex=False)
            spawn.Process(target=run_rank, args=(body, backend, rank, f"{folder}/store", theirs), daemon=True).start()
            pipes.append(ours)
        for rank, pipe in enumerate(pipes):
            assert pipe.poll(4 * SECONDS), f"rank {rank} has not ended"
            assert pipe.recv() == ""
