"""Trains the network of ddp_digits.py with Lightning: the strategy names the backend, and nothing else changes.

    pip install lightning
    torchrun --nproc-per-node 2 examples/lightning_digits.py --backend thalweg
"""
import argparse
import os
import tempfile

import lightning
import torch
from ddp_digits import load, network
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import thalweg  # noqa: F401  makes the backend known


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = network()

    def training_step(self, batch, _):
        images, digits = batch
        return nn.functional.cross_entropy(self.network(images), digits)

    def test_step(self, batch, _):
        images, digits = batch
        right = (self.network(images).argmax(1) == digits).float().mean()
        # The mean over all ranks: an allreduce of Lightning's own.
        self.log("right", right, sync_dist=True, batch_size=len(digits))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--backend", default="thalweg", help="thalweg or gloo")
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lightning.seed_everything(0, verbose=False)
    size, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    learn, test = (TensorDataset(*parts) for parts in load())
    with tempfile.TemporaryDirectory() as folder:
        # Lightning gives every rank its share of the images by a sampler of its own.
        trainer = lightning.Trainer(accelerator="cpu", devices=here, num_nodes=size // here,
                                    strategy=DDPStrategy(process_group_backend=arguments.backend),
                                    max_epochs=arguments.epochs, default_root_dir=folder, logger=False,
                                    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
        model = Digits()
        trainer.fit(model, DataLoader(learn, batch_size=64 // size, shuffle=True, drop_last=True))
        right = trainer.test(model, DataLoader(test, batch_size=len(test) // size), verbose=False)[0]["right"]
    if trainer.is_global_zero:
        print(f"{torch.distributed.get_backend()}, {size} ranks, Lightning: {right:.1%} of the test images right",
              flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
