"""Trains a small language model on characters, layer by layer: each gradient leaves as soon as it is made, and is
waited for only when the next forward pass comes to its layer.

    torchrun --nproc-per-node 2 examples/char_lm.py --text LICENSE --loss-bound 0.01

Rank 0 prints the loss on the last tenth of the text, in bits a character, before and after.
"""
import argparse
import math
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from thalweg.torch import GradientState, LayerWise

LENGTH = 64  # characters of a sample
BATCH = 16


class Model(nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.embedding = nn.Embedding(characters, 64)
        self.memory = nn.GRU(64, 128, batch_first=True)
        self.head = nn.Linear(128, characters)

    def forward(self, text):
        return self.head(self.memory(self.embedding(text))[0])


def samples(text, generator):
    first = torch.randint(0, len(text) - LENGTH - 1, (BATCH,), generator=generator)
    rows = torch.stack([text[i:i + LENGTH + 1] for i in first])
    return rows[:, :-1], rows[:, 1:]


def bits(model, text):
    """A character, on text that it has not learnt from."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        losses = [loss_of(model, samples(text, generator)) for _ in range(8)]
    return sum(losses).item() / len(losses) / math.log(2)


def loss_of(model, batch):
    text, following = batch
    return nn.functional.cross_entropy(model(text).flatten(0, 1), following.flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--text", type=Path, default=Path(__file__).resolve().parents[1] / "LICENSE")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--loss-bound", type=float, default=0.0, help="of gradients, in [0, 1)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("thalweg")
    rank = dist.get_rank()
    raw = arguments.text.read_bytes()
    known = sorted(set(raw))
    text = torch.tensor([known.index(c) for c in raw])
    learn, test = text[:len(text) * 9 // 10], text[len(text) * 9 // 10:]
    model = Model(len(known))
    trainer = LayerWise(model, lambda parameters: torch.optim.Adam(parameters, lr=3e-3),
                        GradientState(loss_bound=arguments.loss_bound), resynchronize_every=50)
    before = bits(model, test)
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(arguments.steps):
        loss_of(model, samples(learn, generator)).backward()
        trainer.step()
    trainer.finish()
    after = bits(model, test)
    if rank == 0:
        print(f"{before:.2f} bits a character before, {after:.2f} after {arguments.steps} steps of "
              f"{dist.get_world_size()} ranks, loss bound {arguments.loss_bound:g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
