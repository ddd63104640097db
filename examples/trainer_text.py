"""Trains a small language model with Hugging Face's Trainer over Thalweg.

    pip install transformers accelerate
    torchrun --nproc-per-node 2 examples/trainer_text.py --backend thalweg

The model is GPT-2 with a configuration so small that it learns on a processor in seconds. It starts from random
parameters, and its text is this repository's documents, byte by byte: nothing is downloaded. The Trainer uses the process
group that it finds.
"""
import argparse
import math
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import thalweg  # noqa: F401  makes the backend known

DOCUMENTS = Path(__file__).resolve().parents[1] / "docs"
CONTEXT = 64  # bytes that the model sees at once


class Text(torch.utils.data.Dataset):
    """Pieces of a text: what to predict is the piece itself, which the model shifts by one."""

    def __init__(self, text):
        count = len(text) // CONTEXT
        self.pieces = torch.tensor(list(text[:count * CONTEXT])).view(count, CONTEXT)

    def __len__(self):
        return len(self.pieces)

    def __getitem__(self, index):
        return {"input_ids": self.pieces[index], "labels": self.pieces[index]}


def loss_of(model, text):
    with torch.no_grad():
        return model(input_ids=text.pieces, labels=text.pieces).loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--backend", default="thalweg", help="thalweg or gloo")
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(arguments.backend)
    text = b"".join(page.read_bytes() for page in sorted(DOCUMENTS.glob("*.md")))[:200_000]
    cut = len(text) * 9 // 10
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=CONTEXT, n_embd=64, n_layer=2, n_head=4,
                                       bos_token_id=0, eos_token_id=0))
    test = Text(text[cut:])
    before = loss_of(model, test)
    with tempfile.TemporaryDirectory() as folder:
        # trainer.evaluate() comes after trainer.train(): a Trainer that has evaluated first does not average gradients
        # afterwards, whatever the backend (Transformers 5.23).
        trainer = Trainer(model, TrainingArguments(output_dir=folder, use_cpu=True, max_steps=arguments.steps,
                                                   per_device_train_batch_size=16, per_device_eval_batch_size=64,
                                                   learning_rate=5e-3, ddp_find_unused_parameters=False, report_to=[],
                                                   save_strategy="no", logging_strategy="no", disable_tqdm=True, seed=0),
                          train_dataset=Text(text[:cut]), eval_dataset=test)
        trainer.train()
        after = trainer.evaluate()["eval_loss"]
    # Every rank has the same parameters, bit for bit.
    parameters = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    of_rank_0 = parameters.clone()
    dist.broadcast(of_rank_0, 0)
    if not torch.equal(parameters, of_rank_0):
        raise SystemExit(f"rank {dist.get_rank()} has other parameters than rank 0")
    if dist.get_rank() == 0:
        print(f"{dist.get_backend()}, {dist.get_world_size()} ranks, Trainer: {before / math.log(2):.2f} bits a byte before, "
              f"{after / math.log(2):.2f} after", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
