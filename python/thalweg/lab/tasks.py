"""Small trainings on real data that needs no download, for experiments, benchmarks and examples.

Digits: 1,797 images of 8x8 pixels from the UCI archive's "optical recognition of handwritten
digits", which come with the package. Text: Debian's licences in /usr/share/common-licenses, or any
file.
"""
import difflib
import gzip
import importlib
from pathlib import Path

import torch
from torch import nn

from thalweg.task import Task, adam, split

DIGITS = Path(__file__).with_name("data") / "digits.csv.gz"
MODELS = Path(__file__).resolve().parents[3] / "models"
TEXTS = Path("/usr/share/common-licenses")
TEXT_NAMES = ("Apache-2.0", "Artistic", "GFDL-1.3", "GPL-3", "LGPL-2.1", "MPL-1.1")
LENGTH = 48  # characters per sample


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def digits():
    """Returns the images to learn from and those for the test, each as (images, digits)."""
    with gzip.open(DIGITS, "rt") as lines:
        rows = torch.tensor([[float(word) for word in line.split(",")] for line in lines])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))]
    return split(((rows[:, :64] / 16).view(-1, 1, 8, 8), rows[:, 64].long()))


def digits_network():
    """Makes a convolutional network that learns digits."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Linear(128, 10))


class _Block(nn.Module):
    """A block of a residual network: two convolutions and a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = (nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1
                         else nn.Identity())

    def forward(self, x):
        y = self.second_norm(self.second(torch.relu(self.first_norm(self.first(x)))))
        return torch.relu(y + self.shortcut(x))


def digits_resnet():
    """Makes a residual network of 10 layers and 78 thousand parameters that learns digits."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        _Block(16, 16, 1), _Block(16, 32, 2), _Block(32, 64, 2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, 10))


class CharacterModel(nn.Module):
    """Predicts the next character: an embedding, a GRU and a projection."""

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
        raise ValueError(f"text: {error.filename}: {error.strerror}; name a file of some 10,000 "
                         "characters") from None


def characters(path=None):
    """Returns samples to learn from, samples for the test, and the number of known characters.

    The inputs are pieces of a text. The target of each character is the one that follows it.
    """
    raw = _text(path)
    if len(raw) < 200 * LENGTH:
        raise ValueError(f"text: {path} has {len(raw)} bytes; at least {200 * LENGTH} are needed")
    known = {c: i for i, c in enumerate(sorted(set(raw)))}
    text = torch.tensor([known[c] for c in raw])
    pieces = (len(text) - 1) // LENGTH
    inputs, targets = (text[first:first + pieces * LENGTH].view(pieces, LENGTH)
                       for first in (0, 1))
    return (*split((inputs, targets)), len(known))


def digits_task(name, network, optimizer):
    learn, test = digits()
    return Task(name, network, learn, test, optimizer)


def char_lm(text=None):
    learn, test, known = characters(text)
    return Task("char-lm", lambda: CharacterModel(known), learn, test,
                lambda p: torch.optim.Adam(p, lr=5e-3), epochs=6,
                options={"text": str(text or TEXTS)})


TASKS = {
    "digits-cnn": lambda: digits_task("digits-cnn", digits_network, adam),
    "digits-resnet": lambda: digits_task("digits-resnet", digits_resnet, sgd),
    "char-lm": char_lm,
}


def task_of(name, text=None):
    """Returns a task of TASKS by its name, or the one that `module:function` returns.

    The function takes no arguments. `text` is a file for char-lm.
    """
    if name in TASKS:
        if text is not None and name != "char-lm":
            raise ValueError(f"text: only char-lm reads one, not {name}")
        return char_lm(text) if name == "char-lm" else TASKS[name]()
    module, colon, function = name.partition(":")
    if not colon:
        known = f"{', '.join(TASKS)} and module:function are allowed"
        if (MODELS / f"{name}.yaml").exists():
            known += (f"; models/{name}.yaml has the sizes and times of its layers (thalweg tune "
                      "thresholds), but no data to train on")
        elif near := difflib.get_close_matches(name, TASKS, 1):
            known += f"; did you mean '{near[0]}'?"
        raise ValueError(f"model: {name!r}; {known}")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"model: {name!r}: {error}") from None
    try:
        task = found()
    except TypeError as error:
        raise ValueError(f"model: {name!r}: {error}") from error
    if not isinstance(task, Task):
        raise ValueError(f"model: {name!r} returned a {type(task).__name__}; a thalweg.task.Task "
                         "is needed")
    return task
