"""Small trainings on real data that is at hand: what is profiled, and what convergence is studied with.

digits: 1,797 images of 8x8 pixels, the UCI archive's "optical recognition of handwritten digits", which come with the
package. Text: Debian's licences in /usr/share/common-licenses, or any file.
"""
import gzip
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import nn

TEST_EVERY = 5  # one sample in so many is for the test
TEXTS = Path("/usr/share/common-licenses")
TEXT_NAMES = ("Apache-2.0", "Artistic", "GFDL-1.3", "GPL-3", "LGPL-2.1", "MPL-1.1")
LENGTH = 48  # characters of a sample

Samples = tuple[torch.Tensor, torch.Tensor]  # inputs and targets; their first dimension counts


def cross_entropy(model, batch):
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())


def _evaluated(function):
    def evaluated(model, samples):
        trains = model.training
        model.eval()
        with torch.no_grad():
            value = float(function(model, samples))
        model.train(trains)
        return value
    return evaluated


@_evaluated
def accuracy(model, samples):
    """The part of the targets that the model puts first."""
    inputs, targets = samples
    return (model(inputs).argmax(-1) == targets).double().mean()


def adam(parameters):
    return torch.optim.Adam(parameters, lr=2e-3)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


@dataclass(frozen=True)
class Task:
    """A training: a model, data, and how good the model is."""

    name: str
    model: Callable[[], nn.Module]  # a new one; of torch's random state
    learn: Samples
    test: Samples
    optimizer: Callable = adam  # of a list of parameters
    loss: Callable = cross_entropy  # of a model and a batch: to be minimized
    score: Callable = accuracy  # of a model and samples: more is better
    score_name: str = "accuracy"
    epochs: int = 8
    batch: int = 16  # samples of a worker in a step
    options: dict = field(default_factory=dict)  # said in results

    def sampled(self, samples, seed=0):
        """With so many samples to learn from, drawn by chance; all of them if there are not more."""
        have = len(self.learn[0])
        if samples is None or samples >= have:
            return self
        chosen = torch.randperm(have, generator=torch.Generator().manual_seed(seed))[:samples]
        return replace(self, learn=tuple(part[chosen] for part in self.learn))


def split(samples):
    """Every TEST_EVERYth sample is for the test: (to learn from, for the test)."""
    test = torch.arange(len(samples[0])) % TEST_EVERY == 0
    return tuple(part[~test] for part in samples), tuple(part[test] for part in samples)


def digits():
    """The images to learn from and those to be tested with, each as (images, digits)."""
    with gzip.open(Path(__file__).with_name("digits.csv.gz"), "rt") as lines:
        rows = torch.tensor([[float(word) for word in line.split(",")] for line in lines])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))]
    return split(((rows[:, :64] / 16).view(-1, 1, 8, 8), rows[:, 64].long()))


def digits_network():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Linear(128, 10))


class _Block(nn.Module):
    """Of a residual network: two convolutions beside a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = self.second_norm(self.second(torch.relu(self.first_norm(self.first(x)))))
        return torch.relu(y + self.shortcut(x))


def digits_resnet():
    """10 layers deep, 78 thousand parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        _Block(16, 16, 1), _Block(16, 32, 2), _Block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class CharacterModel(nn.Module):
    """Says which character comes next: an embedding, a GRU, a projection."""

    def __init__(self, characters, width=96):
        super().__init__()
        self.embedding = nn.Embedding(characters, 48)
        self.memory = nn.GRU(48, width, batch_first=True)
        self.head = nn.Linear(width, characters)

    def forward(self, text):
        return self.head(self.memory(self.embedding(text))[0])


def _text(path):
    files = [TEXTS / name for name in TEXT_NAMES] if path is None else [Path(path)]
    try:
        return b"".join(file.read_bytes() for file in files)
    except OSError as error:
        raise ValueError(f"text: {error.filename}: {error.strerror}; name a file of some 10,000 characters") from None


def characters(path=None):
    """Pieces of a text and, for each of their characters, the next: to learn from, for the test, how many there are."""
    raw = _text(path)
    if len(raw) < 200 * LENGTH:
        raise ValueError(f"text: {path} has {len(raw)} bytes; at least {200 * LENGTH} are needed")
    known = {c: i for i, c in enumerate(sorted(set(raw)))}
    text = torch.tensor([known[c] for c in raw])
    pieces = (len(text) - 1) // LENGTH
    inputs, targets = (text[first:first + pieces * LENGTH].view(pieces, LENGTH) for first in (0, 1))
    return (*split((inputs, targets)), len(known))


def digits_task(name, network, optimizer):
    learn, test = digits()
    return Task(name, network, learn, test, optimizer)


def char_lm(text=None):
    learn, test, known = characters(text)
    return Task("char-lm", lambda: CharacterModel(known), learn, test, lambda p: torch.optim.Adam(p, lr=5e-3),
                epochs=6, options={"text": str(text or TEXTS)})


TASKS = {
    "digits-cnn": lambda: digits_task("digits-cnn", digits_network, adam),
    "digits-resnet": lambda: digits_task("digits-resnet", digits_resnet, sgd),
    "char-lm": char_lm,
}


def task_of(name, text=None):
    """By its name, or `module:function`, a function without arguments that returns a Task."""
    if name in TASKS:
        if text is not None and name != "char-lm":
            raise ValueError(f"text: only char-lm reads one, not {name}")
        return char_lm(text) if name == "char-lm" else TASKS[name]()
    module, colon, function = name.partition(":")
    if not colon:
        raise ValueError(f"model: {name!r}; {', '.join(TASKS)} and module:function are allowed")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"model: {name!r}: {error}") from None
    try:
        task = found()
    except TypeError as error:
        raise ValueError(f"model: {name!r}: {error}") from error
    if not isinstance(task, Task):
        raise ValueError(f"model: {name!r} returned a {type(task).__name__}; a thalweg.tasks.Task is needed")
    return task
