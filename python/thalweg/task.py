"""Task: a model, its data and its score, which the profiler of loss bounds trains many times.

thalweg.loss_bound is the profiler.
"""
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import nn

TEST_EVERY = 5  # every fifth sample is kept for the test

# Inputs and targets. Their first dimension counts the samples.
Samples = tuple[torch.Tensor, torch.Tensor]


def cross_entropy(model, batch):
    """A loss: the mean cross entropy of the model's outputs."""
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())


def _evaluated(function):
    """Makes a function of a model run in evaluation mode, without gradients, and return a float."""
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
    """A score: the fraction of the targets to which the model gives its largest output."""
    inputs, targets = samples
    return (model(inputs).argmax(-1) == targets).double().mean()


def adam(parameters):
    """Makes the optimizer that a task has by default."""
    return torch.optim.Adam(parameters, lr=2e-3)


@dataclass(frozen=True)
class Task:
    """What is trained, on which data, and how its result is scored."""

    name: str
    model: Callable[[], nn.Module]  # makes a new model, initialized from torch's random state
    learn: Samples
    test: Samples
    optimizer: Callable = adam  # makes an optimizer for a list of parameters
    loss: Callable = cross_entropy  # loss(model, batch) is minimized
    score: Callable = accuracy  # score(model, samples); more is better
    score_name: str = "accuracy"
    epochs: int = 8
    batch: int = 16  # samples per worker and step
    options: dict = field(default_factory=dict)  # further settings, which results repeat

    def sampled(self, samples, seed=0):
        """Returns the task with only so many samples to learn from, drawn at random.

        None, or more samples than there are, keeps all.
        """
        have = len(self.learn[0])
        if samples is None or samples >= have:
            return self
        chosen = torch.randperm(have, generator=torch.Generator().manual_seed(seed))[:samples]
        return replace(self, learn=tuple(part[chosen] for part in self.learn))


def split(samples):
    """Splits samples into those to learn from and those for the test, one in TEST_EVERY."""
    test = torch.arange(len(samples[0])) % TEST_EVERY == 0
    return tuple(part[~test] for part in samples), tuple(part[test] for part in samples)
