"""A few calls of every kind, on the ranks of torchrun; prints `fine` and the version of PyTorch on each."""
import datetime

import torch
import torch.distributed as dist

import thalweg.torch

dist.init_process_group("thalweg", timeout=datetime.timedelta(seconds=120))
rank, size = dist.get_rank(), dist.get_world_size()


def same(found, wanted):
    assert torch.equal(found, wanted), f"rank {rank}: {found}, not {wanted}"


for kind in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
    values = torch.arange(1000).remainder(50).to(kind) + rank
    dist.all_reduce(values)
    same(values, torch.arange(1000).remainder(50).to(kind) * size + sum(range(size)))
mean = torch.full((10,), float(rank))
dist.all_reduce(mean, dist.ReduceOp.AVG)
same(mean, torch.full((10,), (size - 1) / 2))

work = dist.broadcast(copied := torch.full((5, 7), rank), 1, async_op=True)
work.wait()
assert work.is_completed()
same(copied, torch.ones(5, 7, dtype=torch.int64))

own = torch.full((4,), float(rank))
rows = [torch.empty(4) for _ in range(size)]
dist.all_gather(rows, own)
whole = torch.empty(4 * size)
dist.all_gather_into_tensor(whole, own)
same(whole, torch.arange(size).repeat_interleave(4).float())
same(torch.cat(rows), whole)
gathered = [torch.empty(4) for _ in range(size)] if rank == 0 else None
dist.gather(own, gathered)
assert rank != 0 or torch.equal(torch.cat(gathered), whole)
part = torch.empty(4)
dist.scatter(part, list(whole.split(4)) if rank == 0 else None)
same(part, own)
dist.reduce_scatter_tensor(part, whole)
same(part, own * size)
turned = torch.empty(size)
dist.all_to_all_single(turned, torch.arange(size) + 10.0 * rank)
same(turned, 10.0 * torch.arange(size) + rank)
reduced = torch.ones(3)
dist.reduce(reduced, 0)
assert rank != 0 or torch.equal(reduced, torch.full((3,), float(size)))

got = torch.empty(3)
operations = [dist.P2POp(dist.isend, torch.full((3,), float(rank)), (rank + 1) % size),
              dist.P2POp(dist.irecv, got, (rank - 1) % size)]
for work in dist.batch_isend_irecv(operations):
    work.wait()
same(got, torch.full((3,), float((rank - 1) % size)))
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
assert [one["rank"] for one in objects] == list(range(size))

half = dist.new_group(list(range(size)), backend="thalweg")
dist.barrier(half)
half.monitored_barrier()

model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(30, 3))
model.register_comm_hook(thalweg.torch.GradientState(loss_bound=0.0), thalweg.torch.reduce_hook)
model(torch.full((2, 30), float(rank))).sum().backward()
same(model.module.weight.grad, torch.full((3, 30), float(size - 1)))

try:
    dist.all_reduce(torch.ones(3, dtype=torch.complex64), dist.ReduceOp.MAX)
except (RuntimeError, ValueError) as error:
    assert "complex" in str(error) or "MAX" in str(error), error
else:
    raise AssertionError("a maximum of complex numbers is no error")
dist.destroy_process_group()
print("fine", torch.__version__, flush=True)
