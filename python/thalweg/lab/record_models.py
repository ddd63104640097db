"""Records the layer tables of models/: python -m thalweg.lab.record_models --out models

Vision models come from torchvision, without auxiliary classifiers; transformers come from
thalweg.lab.transformer_models, and what `thalweg tune bound` trains from thalweg.lab.tasks. TF32 is off. A single factor (`device_scale`) then describes an
older GPU fairly well, because its arithmetic and its memory are slower by about the same factor.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional as F

from thalweg.lab import transformer_models
from thalweg.lab.tasks import task_of
from thalweg.record import mean_of_outputs, record

VISION_CLASSES = 1000


@dataclass(frozen=True)
class Recipe:
    """How to train one iteration of a model: how to build it, its inputs and its loss."""

    build: Callable[[], torch.nn.Module]
    batch: int
    inputs: Callable[[int], tuple[torch.Tensor, ...]]
    loss: Callable[[int], Callable]
    sample: str
    notes: str = ""


def _vision(function: str, size: int = 224, **options) -> Recipe:
    def build():
        import torchvision  # only vision models need it

        return getattr(torchvision.models, function)(weights=None, **options)

    def loss(batch):
        labels = torch.randint(VISION_CLASSES, (batch,))
        return lambda output: F.cross_entropy(output, labels)

    return Recipe(build, 32, lambda batch: (torch.randn(batch, 3, size, size),), loss,
                  f"{size}x{size} image", "cuDNN autotuned")


def _tokens(vocabulary: int, length: int) -> Callable[[int], tuple[torch.Tensor, ...]]:
    return lambda batch: (torch.randint(vocabulary, (batch, length)),)


def _next_word(vocabulary: int, length: int, smoothing: float) -> Callable[[int], Callable]:
    def loss(batch):
        words = torch.randint(vocabulary, (batch * length,))
        return lambda output: F.cross_entropy(output.flatten(0, 1), words,
                                              label_smoothing=smoothing)

    return loss


def _bert(build) -> Recipe:
    return Recipe(build, 32, _tokens(transformer_models.Bert.VOCABULARY, 128),
                  lambda _: mean_of_outputs, "sequence of 128 tokens",
                  "fused attention; loss is the mean of the outputs, no task head")


def _transformer() -> Recipe:
    words, length = transformer_models.Transformer.VOCABULARY, 48
    pair = _tokens(words, length)
    return Recipe(transformer_models.Transformer, 64, lambda batch: pair(batch) + pair(batch),
                  _next_word(words, length, smoothing=0.1), "sentence pair of 2 x 48 tokens",
                  "fused attention; as many tokens a GPU as in the paper, 25000 over 8")


def _gpt2() -> Recipe:
    words, length = transformer_models.Gpt2.VOCABULARY, transformer_models.Gpt2.POSITIONS
    return Recipe(transformer_models.Gpt2, 8, _tokens(words, length),
                  _next_word(words, length, smoothing=0.0), "sequence of 1024 tokens",
                  "fused attention")


def _trained(name: str, sample: str) -> Recipe:
    """A model of `thalweg tune bound`, with a batch of the data that it learns from."""
    def batch_of(part, batch):
        device = torch.get_default_device()
        with torch.device("cpu"):  # where the data is read
            return task_of(name).learn[part][:batch].to(device)

    def loss(batch):
        targets = batch_of(1, batch).flatten()
        return lambda output: F.cross_entropy(output.flatten(0, -2), targets)

    def build():
        with torch.device("cpu"):
            model = task_of(name).model()
        return model.to(torch.get_default_device())

    return Recipe(build, 16, lambda batch: (batch_of(0, batch),), loss, sample)


RECIPES = {
    "alexnet": _vision("alexnet"),
    "vgg16": _vision("vgg16"),
    "googlenet": _vision("googlenet", aux_logits=False, init_weights=False),
    "inception_v3": _vision("inception_v3", size=299, aux_logits=False, init_weights=False),
    "resnet18": _vision("resnet18"),
    "resnet50": _vision("resnet50"),
    "resnet101": _vision("resnet101"),
    "wide_resnet50_2": _vision("wide_resnet50_2"),
    "bert_base": _bert(transformer_models.bert_base),
    "bert_large": _bert(transformer_models.bert_large),
    "transformer": _transformer(),
    "gpt2": _gpt2(),
    "digits-cnn": _trained("digits-cnn", "8x8 image"),
    "digits-resnet": _trained("digits-resnet", "8x8 image"),
    "char-lm": _trained("char-lm", "48 characters"),
}
NOTES = "training mode, TF32 off"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables")
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--iterations", type=int, default=50)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    torch.set_default_device(options.device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    for name in options.only:
        began = time.perf_counter()
        recipe = RECIPES[name]
        notes = "; ".join(filter(None, [NOTES, recipe.notes]))
        table = record(recipe.build().train(), recipe.inputs(recipe.batch), name=name,
                       loss=recipe.loss(recipe.batch), sample=recipe.sample, notes=notes, warmup=10,
                       iterations=options.iterations)
        table.write(options.out / f"{name}.yaml")
        print(f"{name}: {table.params} parameters in {len(table.layers)} layers, "
              f"forward {table.forward_us / 1e3:.2f} ms, "
              f"backward {table.backward_us / 1e3:.2f} ms; "
              f"recorded in {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
