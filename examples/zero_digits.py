"""Trains the network of ddp_digits.py with the state of its optimizer sharded over the ranks (ZeRO, stage 1).

    torchrun --nproc-per-node 2 examples/zero_digits.py --backend thalweg

Every rank has all parameters and averages all gradients by DDP, but updates only its share of the parameters and keeps
Adam's state only for those. PyTorch's ZeroRedundancyOptimizer then broadcasts what each rank has updated.
"""
import argparse

import torch
import torch.distributed as dist
from ddp_digits import accuracy, load, network
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import thalweg  # noqa: F401  makes the backend known


def state_elements(optimizer):
    """How many numbers an optimizer remembers."""
    return sum(value.numel() for state in optimizer.state.values() for value in state.values()
               if torch.is_tensor(value))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--backend", default="thalweg", help="thalweg or gloo")
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    (images, digits), test = load()
    images, digits = images[rank::size], digits[rank::size]
    torch.manual_seed(0)
    model = DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=2e-3)
    batch = 64 // size
    for epoch in range(arguments.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for first in range(0, len(images) - batch + 1, batch):
            some = order[first:first + batch]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[some]), digits[some]).backward()
            optimizer.step()
    # Adam remembers two numbers for each parameter.
    kept = torch.tensor([float(state_elements(optimizer.optim))])
    kept /= sum(2 * parameter.numel() for parameter in model.parameters())
    shares = [torch.zeros(1) for _ in range(size)]
    dist.all_gather(shares, kept)
    if rank == 0:
        print(f"{dist.get_backend()}, {size} ranks, optimizer sharded: {accuracy(model.module, test):.1%} of the test "
              f"images right; of the optimizer's state the ranks hold "
              + ", ".join(f"{share.item():.0%}" for share in shares), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
