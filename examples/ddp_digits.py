"""Trains a small network on handwritten digits, data-parallel.

    torchrun --nproc-per-node 2 examples/ddp_digits.py --backend thalweg
    torchrun --nproc-per-node 2 examples/ddp_digits.py --backend thalweg --auto
    torchrun --nproc-per-node 2 examples/ddp_digits.py --backend cpu:gloo,cuda:thalweg \\
        --device cuda                                                          # with a GPU

Every rank sees its share of the 1,437 images to learn from. Rank 0 prints the accuracy on the 360
others. With --loss-bound 0.01 gradients go over DLCP and may lose 1 % of their packets. With --auto
trials in the first steps decide how they go, and rank 0 prints what was chosen. The images
are those of the UCI archive's "optical recognition of handwritten digits". They come with the
package, and so does the network (thalweg/lab/tasks.py).
"""
import argparse
import json
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thalweg.torch
from thalweg.lab.tasks import digits as load
from thalweg.lab.tasks import digits_network as network
from thalweg.task import accuracy


class Log:
    """What happened when, as JSON lines; of no file, nothing."""

    def __init__(self, path):
        self.file = open(path, "w") if path else None
        self.started = time.monotonic()

    def add(self, **fields):
        if self.file:
            print(json.dumps({"at": time.monotonic() - self.started, **fields}), file=self.file, flush=True)


def train(arguments):
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device(arguments.device)
    if device.type == "cuda":  # ranks may share one
        device = torch.device("cuda", rank % torch.cuda.device_count())
    (images, digits), test = [[part.to(device) for part in parts] for parts in load()]
    images, digits = images[rank::size], digits[rank::size]
    torch.manual_seed(0)
    model = DistributedDataParallel(network().to(device))
    if arguments.loss_bound > 0 or arguments.dlcp:
        state = thalweg.torch.GradientState(loss_bound=arguments.loss_bound, dlcp=True)
        model.register_comm_hook(state, thalweg.torch.reduce_hook)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    batch = arguments.batch // size
    log = Log(arguments.log if rank == 0 else None)
    log.add(total=arguments.epochs * (len(images) // batch))
    started = time.time()
    for epoch in range(arguments.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for first in range(0, len(images) - batch + 1, batch):
            some = order[first:first + batch]
            began = time.monotonic()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[some]), digits[some]).backward()
            optimizer.step()
            log.add(step=time.monotonic() - began)
        if log.file:
            log.add(epoch=epoch + 1, accuracy=accuracy(model.module, test))
    if rank == 0:
        print(f"{arguments.backend}, {size} ranks: {accuracy(model.module, test):.1%} of the test images right "
              f"after {arguments.epochs} epochs in {time.time() - started:.1f} s", flush=True)
    if rank == 0 and arguments.auto:
        for choice in thalweg.torch.auto_choices(device=device):
            print(f"auto: {choice['kind']}: {choice['chosen']} ({choice['why']}; {choice['trials']} trials in "
                  f"{choice['trials_ms']:.0f} ms, {choice['extra_ms']:.0f} ms more than by the fastest)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--backend", default="thalweg", help="thalweg, gloo, or one for each device")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64, help="images a step, of all ranks together")
    parser.add_argument("--loss-bound", type=float, default=0.0, help="of gradients, in [0, 1); thalweg only")
    parser.add_argument("--dlcp", action="store_true", help="gradients over DLCP, exact without --loss-bound; thalweg only")
    parser.add_argument("--line-rate-gbps", type=float, default=0.0, help="rate of the link, where the interface does not "
                        "tell it (as a virtual one); for DLCP")
    parser.add_argument("--topology", default="", help="the network between the ranks, a file or a shorthand, from which the "
                        "planner chooses how to add up; thalweg only")
    parser.add_argument("--auto", action="store_true", help="let trials in the first steps choose scheme and transport; "
                        "thalweg only")
    parser.add_argument("--log", help="write how many steps there will be, the time of each and the accuracy after every "
                        "epoch there, as JSON lines")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device: there is no GPU that PyTorch can use")
    for name in ("loss_bound", "dlcp", "line_rate_gbps", "topology", "auto"):
        if getattr(arguments, name) and "thalweg" not in arguments.backend:
            parser.error(f"--{name.replace('_', '-')}: only the backend thalweg has one")
    torch.set_num_threads(1)
    options = thalweg.Options(line_rate_gbps=arguments.line_rate_gbps, topology=arguments.topology, auto=arguments.auto)
    dist.init_process_group(arguments.backend, pg_options=options if options != thalweg.Options() else None)
    train(arguments)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
