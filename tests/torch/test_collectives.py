"""Results of the backend's calls, for cases that PyTorch's own tests leave out."""
import time

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch.distributed import ReduceOp

SIZE = 3
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def contribution(rank, dtype, elements=37):
    generator = torch.Generator().manual_seed(rank)
    values = torch.randint(1, 4, (elements,), generator=generator)
    return values.to(dtype) + (200 if dtype == torch.uint8 else 0)


def expected(op, dtype, size):
    all_of_them = torch.stack([contribution(r, dtype) for r in range(size)])
    wide = all_of_them.double() if dtype.is_floating_point else all_of_them.long()
    reduce = {ReduceOp.SUM: lambda: wide.sum(0), ReduceOp.PRODUCT: lambda: wide.prod(0),
              ReduceOp.MIN: lambda: wide.amin(0), ReduceOp.MAX: lambda: wide.amax(0),
              ReduceOp.AVG: lambda: wide.sum(0) / size,
              ReduceOp.BAND: lambda: wide[0] & wide[1] & wide[2], ReduceOp.BOR: lambda: wide[0] | wide[1] | wide[2],
              ReduceOp.BXOR: lambda: wide[0] ^ wide[1] ^ wide[2]}
    return reduce[op]().to(dtype)


def cases():
    arithmetic = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]
    bitwise = [ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]
    return ([(dtype, op) for dtype in FLOATS for op in [*arithmetic, ReduceOp.AVG]]
            + [(dtype, op) for dtype in INTEGERS for op in [*arithmetic, *bitwise]])


def same(found, wanted, what):
    assert found.dtype == wanted.dtype and torch.allclose(
        found.double(), wanted.double(), rtol=1e-2 if found.dtype in FLOATS[:2] else 1e-6), (what, found, wanted)


def test_several_interfaces():
    """Several interfaces, named in the environment, give exactly the results of one."""
    def body(rank, size):
        tensor = torch.full((700_001,), float(rank + 1))
        for _ in range(3):
            summed = tensor.clone()
            dist.all_reduce(summed)
            assert torch.equal(summed, torch.full_like(tensor, size * (size + 1) / 2))

    environment = {"THALWEG_INTERFACE": "127.0.0.1,127.0.0.2", "THALWEG_STREAMS": "2", "THALWEG_SHARED_MEMORY": "0"}
    run_ranks(SIZE, body, environment=environment)


def test_every_reduction_of_every_type():
    def body(rank, size):
        for dtype, op in cases():
            wanted = expected(op, dtype, size)
            tensor = contribution(rank, dtype)
            dist.all_reduce(tensor, op)
            same(tensor, wanted, ("all_reduce", op))
            tensor = contribution(rank, dtype)
            dist.reduce(tensor, 1, op)
            same(tensor, wanted if rank == 1 else contribution(rank, dtype), ("reduce", op))
            part = torch.empty(37, dtype=dtype)
            dist.reduce_scatter_tensor(part, contribution(rank, dtype).repeat(size), op)
            same(part, wanted, ("reduce_scatter_tensor", op))
            dist.reduce_scatter(part, [contribution(rank, dtype)] * size, op)
            same(part, wanted, ("reduce_scatter", op))

    run_ranks(SIZE, body)


def test_truth_values_and_complex_numbers():
    def body(rank, size):
        mine = torch.tensor([True, rank == 0, False])
        for op, wanted in [(ReduceOp.SUM, [1, 1, 0]), (ReduceOp.PRODUCT, [1, 0, 0]), (ReduceOp.BAND, [1, 0, 0]),
                           (ReduceOp.BXOR, [1, 1, 0])]:
            tensor = mine.clone()
            dist.all_reduce(tensor, op)
            assert tensor.tolist() == [bool(w) for w in wanted], op
        numbers = torch.full((5,), complex(rank, 1))
        dist.all_reduce(numbers)
        assert numbers.tolist() == [complex(3, 3)] * 5
        with pytest.raises(RuntimeError, match="complex numbers have SUM and AVG"):
            dist.group.WORLD.allreduce([numbers], dist.ReduceOp.MAX)

    run_ranks(SIZE, body)


def test_layouts_that_are_not_contiguous():
    def body(rank, size):
        whole = torch.zeros(6, 8)
        part = whole[:, ::2]
        part.fill_(rank + 1.0)
        dist.all_reduce(part)
        assert part.eq(6).all() and whole[:, 1::2].eq(0).all()
        outputs = [torch.zeros(4, 6).t() for _ in range(size)]
        dist.all_gather(outputs, torch.arange(24.0).view(4, 6).t() + rank)
        for r, output in enumerate(outputs):
            assert torch.equal(output, torch.arange(24.0).view(4, 6).t() + r)

    run_ranks(SIZE, body)


def test_lists_of_tensors_of_different_sizes():
    def body(rank, size):
        outputs = [torch.zeros(r + 1) for r in range(size)]
        dist.all_gather(outputs, torch.full((rank + 1,), float(rank)))
        assert [output.tolist() for output in outputs] == [[0.0], [1.0] * 2, [2.0] * 3]
        output = torch.zeros(rank + 1)
        dist.reduce_scatter(output, [torch.full((r + 1,), float(r + rank)) for r in range(size)])
        assert output.tolist() == [rank * size + 3.0] * (rank + 1)
        # Rank i sends i + j + 1 elements to rank j; with the larger scale more than fit a small
        # message.
        for scale in (1, 5000):
            sent = [torch.full(((rank + r + 1) * scale,), 10.0 * rank + r) for r in range(size)]
            received = [torch.zeros((rank + r + 1) * scale) for r in range(size)]
            dist.all_to_all(received, sent)
            for r in range(size):
                assert received[r].eq(10.0 * r + rank).all()
            output = torch.zeros(sum(len(tensor) for tensor in received), 2)
            dist.all_to_all_single(output, torch.cat(sent)[:, None].repeat(1, 2), [len(t) for t in received],
                                   [len(t) for t in sent])
            assert torch.equal(output, torch.cat(received)[:, None].repeat(1, 2))

    run_ranks(SIZE, body)


def test_works_complete_their_futures():
    def body(rank, size):
        tensor = torch.full((100_000,), float(rank))
        work = dist.all_reduce(tensor, async_op=True)
        doubled = work.get_future().then(lambda future: future.value()[0] * 2)
        assert doubled.wait().eq(6).all() and work.is_completed()
        # No one waits for this work or keeps it.
        later = torch.full((100_000,), 1.0)
        dist.all_reduce(later, async_op=True)
        deadline = time.monotonic() + 10
        while not later.eq(size).all() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert later.eq(size).all()
        from torch.distributed.distributed_c10d import _coalescing_manager
        tensors = [torch.full((10,), float(rank + i)) for i in range(4)]
        with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as all_of_them:
            for tensor in tensors:
                dist.broadcast(tensor, 1)
        all_of_them.wait()
        assert [tensor[0].item() for tensor in tensors] == [1.0, 2.0, 3.0, 4.0]

    run_ranks(SIZE, body)


def test_groups_come_and_go():
    def body(rank, size):
        for _ in range(3):
            group = dist.new_group([0, 2])
            if rank != 1:
                tensor = torch.ones(1000)
                dist.all_reduce(tensor, group=group)
                assert tensor.eq(2).all()
                dist.destroy_process_group(group)
        # The next process group uses the same names in the same store.
        store = dist.distributed_c10d._get_default_store()
        dist.destroy_process_group()
        for _ in range(2):
            dist.init_process_group("thalweg", store=store, rank=rank, world_size=size)
            tensor = torch.ones(10)
            dist.all_reduce(tensor)
            assert tensor.eq(size).all()
            dist.destroy_process_group()

    run_ranks(SIZE, body)


def test_groups_that_were_split_off__end_with_the_interpreter():
    from thalweg.backend import _leave

    def body(rank, size):
        # torch.distributed.split_group() requires an accelerator; this method does not.
        split = dist.group.WORLD.split_group([0, 2])
        if rank == 1:
            return
        tensor = torch.ones(1000)
        split.allreduce([tensor]).wait()
        assert tensor.eq(2).all()
        _leave()
        with pytest.raises(RuntimeError, match="was shut down"):
            split.allreduce([tensor])

    run_ranks(SIZE, body)


def test_all_to_all__what_does_not_fit_is_refused():
    def body(rank, size):
        with pytest.raises(RuntimeError, match="the input has 4 rows, which 3 ranks cannot share equally"):
            dist.all_to_all_single(torch.empty(6, 3), torch.zeros(4, 3))
        with pytest.raises(RuntimeError, match="the output has 4 rows, which 3 ranks cannot share equally"):
            dist.all_to_all_single(torch.empty(4, 3), torch.zeros(6, 2))
        with pytest.raises(RuntimeError, match="tensor 0 is Int; all must be Float"):
            dist.group.WORLD.alltoall([torch.empty(1, dtype=torch.int32) for _ in range(size)], [torch.zeros(1)] * size)

    run_ranks(SIZE, body)


def test_sparse_tensors__of_different_counts_are_added():
    def body(rank, size):
        dense = torch.zeros(4, 2)
        dense[:rank] = rank  # nothing on rank 0
        mine = dense.to_sparse()
        dist.all_reduce(mine)
        assert mine.to_dense().tolist() == [[3.0] * 2, [2.0] * 2, [0.0] * 2, [0.0] * 2]

    run_ranks(SIZE, body)


def test_a_topology_and_dlcp_by_options():
    import thalweg

    def body(rank, size):
        tensor = torch.full((20_000,), rank + 1.0)
        dist.all_reduce(tensor)
        assert tensor.eq(3).all()

    run_ranks(2, body, thalweg.Options(transport="dlcp", scheme="ring"))
