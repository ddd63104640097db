"""8-bit floats through the backend, against what PyTorch computes with them on one processor."""
import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch.distributed import ReduceOp

KINDS = [torch.float8_e4m3fn, torch.float8_e5m2]
EVERY = torch.arange(256, dtype=torch.uint8)


def same_bits(found, wanted, what, left_out=False):
    """Compares bits; any NaN is like any other. left_out: a mask of elements that are not compared."""
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, what
    both_nan = found.float().isnan() & wanted.float().isnan()
    differs = (found.view(torch.uint8) != wanted.view(torch.uint8)) & ~(both_nan | left_out)
    assert not differs.any(), (what, found.float()[differs][:5], wanted.float()[differs][:5])


def too_large(values, kind):
    """Where float8_e4m3fn overflows and this PyTorch makes NaN of that, as versions before 2.13 did."""
    makes_nan = torch.tensor([1e30]).to(kind).float().isnan().item()
    return (values.abs() > 464) & makes_nan if kind == torch.float8_e4m3fn else torch.zeros_like(values, dtype=bool)


def every_pair(kind):
    """All 65,536 pairs of elements, as two tensors."""
    return EVERY.repeat_interleave(256).view(kind), EVERY.repeat(256).view(kind)


def test_every_pair_as_torch_reduces_it():
    def body(rank, size):
        for kind in KINDS:
            pair = every_pair(kind)
            a, b = (tensor.float() for tensor in pair)
            wanted = {ReduceOp.SUM: a + b, ReduceOp.PRODUCT: a * b, ReduceOp.MIN: torch.minimum(a, b),
                      ReduceOp.MAX: torch.maximum(a, b), ReduceOp.AVG: (a + b).to(kind).float() / size}
            for op, result in wanted.items():
                mine = pair[rank].clone()
                dist.all_reduce(mine, op)
                found, expected = mine, result.to(kind)
                if op in (ReduceOp.MIN, ReduceOp.MAX):  # of -0 and +0 PyTorch takes either
                    found, expected = found.float(), expected.float()
                    assert torch.equal(found.nan_to_num(0.1), expected.nan_to_num(0.1)), (kind, op)
                else:
                    same_bits(found, expected, (kind, op), too_large(result, kind) | too_large(a + b, kind))

    run_ranks(2, body)


def test_collectives_move_every_value():
    def body(rank, size):
        for kind in KINDS:
            mine = (EVERY + rank).view(kind)
            others = [(EVERY + r).view(kind) for r in range(size)]
            tensor = mine.clone()
            dist.broadcast(tensor, 1)
            same_bits(tensor, others[1], "broadcast")
            gathered = [torch.empty_like(mine) for _ in range(size)]
            dist.all_gather(gathered, mine)
            whole = torch.empty(size * 256, dtype=kind)
            dist.all_gather_into_tensor(whole, mine)
            for r in range(size):
                same_bits(gathered[r], others[r], "all_gather")
                same_bits(whole[256 * r:256 * (r + 1)], others[r], "all_gather_into_tensor")
            ones = torch.ones(size * 4).to(kind)
            part = torch.empty(4, dtype=kind)
            dist.reduce_scatter_tensor(part, ones)
            same_bits(part, torch.full((4,), float(size)).to(kind), "reduce_scatter_tensor")
            turned = torch.empty_like(whole)
            dist.all_to_all_single(turned, mine.repeat(size))
            same_bits(turned, whole, "all_to_all_single")
            if rank == 0:
                dist.send(mine, 1)
            elif rank == 1:
                received = torch.empty_like(mine)
                dist.recv(received, 0)
                same_bits(received, others[0], "recv")

    run_ranks(3, body)


def test_other_8_bit_floats_are_moved_but_not_reduced():
    def body(rank, size):
        tensor = EVERY.view(torch.float8_e5m2fnuz) if rank == 0 else torch.empty(256, dtype=torch.float8_e5m2fnuz)
        dist.broadcast(tensor, 0)
        assert torch.equal(tensor.view(torch.uint8), EVERY)
        with pytest.raises(RuntimeError, match="no reduction of Float8_e5m2fnuz; float8_e4m3fn, float8_e5m2, float16"):
            dist.all_reduce(tensor)

    run_ranks(2, body)


def test_loss_bound__names_the_type():
    def body(rank, size):
        import thalweg.torch
        state = thalweg.torch.GradientState(loss_bound=0.01)
        with pytest.raises(RuntimeError, match="float8_e4m3fn; elements must have at least 16 bits"):
            state.start(torch.ones(8).to(torch.float8_e4m3fn), 0).wait()

    run_ranks(1, body)
