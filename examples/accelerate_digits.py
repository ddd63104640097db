"""Trains the network of ddp_digits.py with Hugging Face Accelerate over Thalweg.

    pip install accelerate
    torchrun --nproc-per-node 2 examples/accelerate_digits.py --backend thalweg

Without a GPU Accelerate accepts only gloo and mpi by name, so the process group is made before it: Accelerate uses the
group that it finds.
"""
import argparse

import torch
import torch.distributed as dist
from accelerate import Accelerator
from ddp_digits import load, network
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import thalweg  # noqa: F401  makes the backend known


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--backend", default="thalweg", help="thalweg or gloo")
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    learn, test = (TensorDataset(*parts) for parts in load())
    learn = DataLoader(learn, batch_size=64 // accelerator.num_processes, shuffle=True, drop_last=True)
    model, optimizer, learn, test = accelerator.prepare(model, optimizer, learn, DataLoader(test, batch_size=60))
    for _ in range(arguments.epochs):
        model.train()
        for images, digits in learn:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(images), digits))
            optimizer.step()
    model.eval()
    right = []
    for images, digits in test:
        with torch.no_grad():
            found = model(images).argmax(1)
        # Gathers what all ranks found, without the images that fill up the last batch.
        found, digits = accelerator.gather_for_metrics((found, digits))
        right.append((found == digits).float())
    if accelerator.is_main_process:
        right = torch.cat(right)
        print(f"{dist.get_backend()}, {accelerator.num_processes} ranks, Accelerate ({accelerator.distributed_type.value}): "
              f"{right.mean():.1%} of the test images right of {len(right)}", flush=True)
    accelerator.end_training()  # destroys the process group, too


if __name__ == "__main__":
    main()
