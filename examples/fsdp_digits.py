"""Trains the network of ddp_digits.py with its parameters sharded over the ranks (FSDP2).

    torchrun --nproc-per-node 2 examples/fsdp_digits.py --backend thalweg
"""
import argparse

import torch
import torch.distributed as dist
from ddp_digits import accuracy, load, network
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import thalweg  # noqa: F401  makes the backend known


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
    model = network()
    mesh = init_device_mesh("cpu", (size,))
    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    batch = 64 // size
    for epoch in range(arguments.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for first in range(0, len(images) - batch + 1, batch):
            some = order[first:first + batch]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[some]), digits[some]).backward()
            optimizer.step()
    right = accuracy(model, test)  # on all ranks: a forward pass gathers parameters
    if rank == 0:
        print(f"{dist.get_backend()}, {size} ranks, sharded: {right:.1%} of the test images right", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
