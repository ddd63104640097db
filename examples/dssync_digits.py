"""Trains a small network on handwritten digits by DS-Sync and by BSP, and compares.

    torchrun --nproc-per-node 8 examples/dssync_digits.py --racks 4,4

Both see the same batches in the same order, and take the same number of iterations. DS-Sync averages parameters in
groups by a schedule for the racks (docs/ds-sync.md); BSP is DistributedDataParallel. Every rank sees its share of the
images to learn from; rank 0 prints the accuracy on the others, as the mean over --seeds. With --record rank 0 writes how
long every group's averages took, as JSON lines; examples/dssync_contention.py draws them.
"""
import argparse
import json
import logging
import time

import torch
import torch.distributed as dist
from ddp_digits import accuracy, load, network
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from thalweg.dssync import DSSync, racks_of_sizes


def batches(arguments, seed, images, digits):
    """Yields this rank's batches, epoch by epoch. They are the same for both ways to train."""
    batch = arguments.batch // dist.get_world_size()
    for epoch in range(arguments.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1000 * seed + epoch))
        for first in range(0, len(images) - batch + 1, batch):
            some = order[first:first + batch]
            yield images[some], digits[some]


def make_optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def train_bsp(arguments, seed, images, digits):
    torch.manual_seed(seed)
    model = DistributedDataParallel(network())
    optimizer = make_optimizer(model.parameters())
    for some, labels in batches(arguments, seed, images, digits):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(some), labels).backward()
        optimizer.step()
    return model.module


def train_dssync(arguments, seed, images, digits):
    torch.manual_seed(seed)
    model = network()

    def record(first, seconds, period):
        if dist.get_rank() == 0:
            with open(arguments.record, "a", encoding="utf-8") as lines:
                print(json.dumps({"first": first, "seconds": seconds, "period": period}), file=lines)

    trainer = DSSync(model, make_optimizer, racks_of_sizes(arguments.racks), swa_decay=arguments.swa_decay,
                     adapt=not arguments.no_adapt, window=arguments.window,
                     on_review=record if arguments.record else None)
    for some, labels in batches(arguments, seed, images, digits):
        nn.functional.cross_entropy(model(some), labels).backward()
        trainer.step()
    trainer.finish([images])
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--backend", default="gloo", help="thalweg or gloo")
    parser.add_argument("--racks", type=lambda text: [int(word) for word in text.split(",")], required=True,
                        help="workers a rack: 4,4")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=1, help="trainings from different beginnings, each with other batches")
    parser.add_argument("--batch", type=int, default=64, help="images a step, of all ranks together")
    parser.add_argument("--swa-decay", type=float, default=0.99, help="of each worker's weight average, in [0, 1)")
    parser.add_argument("--no-adapt", action="store_true", help="keep the first schedule")
    parser.add_argument("--window", type=int, default=32, help="iterations between looks at the network")
    parser.add_argument("--only", choices=["bsp", "ds-sync"], help="one of the two")
    parser.add_argument("--record", metavar="FILE", help="append the times of all windows")
    arguments = parser.parse_args()
    if arguments.seeds < 1:
        parser.error(f"--seeds: {arguments.seeds}; 1 or more are allowed")
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    (images, digits), test = load()
    images, digits = images[rank::size], digits[rank::size]
    for name, train in (("BSP", train_bsp), ("DS-Sync", train_dssync)):
        if arguments.only not in (None, name.lower()):
            continue
        started = time.time()
        right = [accuracy(train(arguments, seed, images, digits), test) for seed in range(arguments.seeds)]
        if rank == 0:
            trained = f"{arguments.epochs} epochs" + (f", mean of {arguments.seeds} seeds," if arguments.seeds > 1 else "")
            print(f"{name}, {size} ranks: {sum(right) / len(right):.1%} of the test images right "
                  f"after {trained} in {time.time() - started:.1f} s", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
