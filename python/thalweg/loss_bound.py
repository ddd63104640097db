"""Profiles how much of a model's gradients may be lost (DLCP, tables 1 and 2, figures 4 and 5).

The profiler trains the model many times, exactly and with lost gradient segments (thalweg.lossy).
It finds the largest fraction of lost segments with which the final score stays within a tolerance
of that of exact training: for losses anywhere, in the front, middle or back layers only, and among
the small, medium or large gradients only. All trainings with one seed start from the same model and
see the same batches.
"""
import dataclasses
import math
import statistics

import torch

from thalweg.lossy import LAYERS, MAGNITUDES, SEGMENT_BYTES, WHERE, Loss, Workers
from thalweg.task import Task, accuracy, adam, cross_entropy, split

FRACTIONS = (0.01, 0.03, 0.1, 0.3, 0.6)
WORKERS = 4


@dataclasses.dataclass(frozen=True)
class Run:
    """One training: its score after each epoch, and the fraction of contributions it lost."""

    scores: tuple[float, ...]
    lost: float


@dataclasses.dataclass(frozen=True)
class Point:
    """Trainings with one kind of loss, one run per seed."""

    where: str
    fraction: float
    runs: tuple[Run, ...]

    @property
    def finals(self):
        return [run.scores[-1] for run in self.runs]

    @property
    def mean(self):
        return statistics.fmean(self.finals)

    @property
    def spread(self):
        """The standard deviation of the final score over the seeds."""
        return statistics.stdev(self.finals) if len(self.runs) > 1 else 0.0

    def curve(self):
        """Returns the mean score after each epoch."""
        return [statistics.fmean(scores) for scores in zip(*(run.scores for run in self.runs))]

    def epochs_to(self, targets):
        """Returns the mean number of epochs until a run's score first reaches its seed's target.

        None if a run never reaches it.
        """
        first = [next((i + 1 for i, score in enumerate(run.scores) if score >= target), None)
                 for run, target in zip(self.runs, targets)]
        return None if None in first else statistics.fmean(first)


@dataclasses.dataclass(frozen=True)
class BoundProfile:
    """What the profiler found. `bound` is a value for GradientState(loss_bound=…)."""

    name: str
    score: str
    tolerance: float
    settings: dict  # workers, epochs, batch, samples, seeds, …
    exact: Point
    points: tuple[Point, ...]  # sorted by where, then by fraction

    def at(self, where):
        return [point for point in self.points if point.where == where]

    @property
    def where(self):
        return list(dict.fromkeys(point.where for point in self.points))

    def cost(self, point):
        """Returns how much lower the mean final score is than that of exact training."""
        return self.exact.mean - point.mean

    @property
    def bounds(self):
        """For each `where`, the largest fraction up to which all costs are within the tolerance.

        0 if even the smallest fraction costs more.
        """
        found = {}
        for where in self.where:
            found[where] = 0.0
            for point in self.at(where):
                if self.cost(point) > self.tolerance:
                    break
                found[where] = point.fraction
        return found

    @property
    def bound(self):
        """The bound for losses anywhere."""
        if "all" not in self.where:
            raise ValueError("bound: 'all' was not among where")
        return self.bounds["all"]

    @property
    def targets(self):
        """For each seed, the final score of exact training less the tolerance."""
        return [final - self.tolerance for final in self.exact.finals]

    def to_json(self):
        def of(point):
            return {"where": point.where, "fraction": point.fraction, "mean": point.mean,
                    "spread": point.spread, "cost": self.cost(point),
                    "epochs_to_target": point.epochs_to(self.targets),
                    "lost": statistics.fmean(run.lost for run in point.runs),
                    "scores": [list(run.scores) for run in point.runs]}
        return {"model": self.name, "score": self.score, "tolerance": self.tolerance,
                "targets": self.targets, "segment_bytes": SEGMENT_BYTES, **self.settings,
                "bounds": self.bounds, "exact": of(self.exact),
                "points": [of(point) for point in self.points]}

    def table(self):
        """Returns the bounds as text."""
        lines = [f"{self.name}: {self.score} {self.exact.mean:.4f} ± {self.exact.spread:.4f} when "
                 f"exact; bounds within {self.tolerance:g} of it"]
        for where, bound in self.bounds.items():
            worst = self.at(where)[-1]
            lines.append(f"  {where:<7} {bound:>7.2%}   ({worst.mean:.4f} ± {worst.spread:.4f} at "
                         f"{worst.fraction:.0%})")
        return "\n".join(lines)

    def figure(self):
        """Returns plots as plain data, which thalweg.lab.figures.draw draws.

        They show final scores and epochs by the fraction that is lost (DLCP, figures 4 and 5), and
        learning curves (figure 15).
        """
        groups = [("overall", ["all"]), ("by layer", LAYERS), ("by magnitude", MAGNITUDES)]
        scores, epochs = [], []
        for title, classes in groups:
            classes = [where for where in classes if where in self.where]
            if classes:
                scores.append(self._scores_panel(title, classes))
                epochs.append(self._epochs_panel(title, classes))
        # What decides about a bound comes first and large: the scores, and then how they came about.
        scores[0]["large"] = True
        return {"title": f"{self.name}: loss of gradient segments", "columns": 2,
                "panels": [*scores, *self._curves(), *epochs]}

    def _scores_panel(self, title, classes):
        series = [{"name": where, "x": [100 * p.fraction for p in self.at(where)],
                   "y": [p.mean for p in self.at(where)],
                   "low": [min(p.finals) for p in self.at(where)],
                   "high": [max(p.finals) for p in self.at(where)]} for where in classes]
        return {"kind": "lines", "title": f"Final {self.score}, loss {title}",
                "x_label": "segments lost (%)", "y_label": self.score, "log_x": True,
                "series": series, "y_range": self._range(), "x_range": self._fractions_range(),
                "references": [{"y": self.exact.mean, "label": "exact"},
                               {"y": self.exact.mean - self.tolerance, "label": "tolerance"}]}

    def _epochs_panel(self, title, classes):
        series = [{"name": where, "x": [100 * p.fraction for p in self.at(where)],
                   "y": [p.epochs_to(self.targets) for p in self.at(where)]} for where in classes]
        lines = [{"y": self.exact.epochs_to(self.targets), "label": "exact"}]
        return {"kind": "lines",
                "title": f"Epochs to within {self.tolerance:g} of exact, loss {title}",
                "x_label": "segments lost (%); a gap: not reached by every seed",
                "y_label": "epochs", "log_x": True, "series": series, "references": lines,
                "y_range": [0, len(self.exact.curve()) + 0.5], "x_range": self._fractions_range()}

    def _curves(self):
        points = [self.exact, *self.at("all")]
        epochs = list(range(1, len(self.exact.curve()) + 1))
        series = [{"name": "exact" if p is self.exact else f"{100 * p.fraction:g} %", "x": epochs,
                   "y": p.curve()} for p in points]
        return [{"kind": "lines", "title": "Learning, loss overall", "x_label": "epoch",
                 "y_label": self.score, "series": series, "y_range": self._range(curves=True),
                 **({"x_ticks": epochs} if len(epochs) < 20 else {})}]

    def _fractions_range(self):
        fractions = [point.fraction for point in self.points]
        return [100 * min(fractions) / 1.1, 100 * max(fractions) * 1.1]

    def _range(self, curves=False):
        points = [self.exact, *self.points]
        values = [score for point in points for run in point.runs
                  for score in (run.scores if curves else run.scores[-1:])]
        margin = max(max(values) - min(values), self.tolerance) * 0.1
        return [min(values) - margin, max(values) + margin]


def train(task, loss, seed, workers=WORKERS):
    """Trains a task once. Each step takes one batch for every worker. Returns the Run."""
    torch.manual_seed(seed)
    crew = Workers(task.model(), task.optimizer, workers, loss,
                   torch.Generator().manual_seed(seed))
    order_of = torch.Generator().manual_seed(seed)
    have, step = len(task.learn[0]), task.batch * workers
    scores = []
    for _ in range(task.epochs):
        order = torch.randperm(have, generator=order_of)
        for first in range(0, have - step + 1, step):
            shares = order[first:first + step].chunk(workers)
            crew.step(task.loss, [tuple(part[share] for part in task.learn) for share in shares])
        scores.append(task.score(crew.models[0], task.test))
    return Run(tuple(scores), crew.average.lost / crew.average.sent)


def profile_task(task, *, tolerance=0.01, fractions=FRACTIONS, where=WHERE, seeds=3, refine=0,
                 workers=WORKERS, samples=None, error_feedback=False, progress=lambda line: None):
    """Profiles a thalweg.task.Task. profile_bound() explains the options."""
    _check(tolerance, fractions, where, seeds, refine, workers)
    if samples is not None and samples < 1:
        raise ValueError(f"samples: {samples}; at least 1 is allowed")
    task = task.sampled(samples)
    if len(task.learn[0]) < task.batch * workers:
        raise ValueError(f"samples: {len(task.learn[0])} to learn from; a step of {workers} "
                         f"workers takes {task.batch * workers}")

    def point(where, fraction):
        loss = Loss(fraction, where, error_feedback=error_feedback)
        made = Point(where, fraction, tuple(train(task, loss, seed, workers)
                                            for seed in range(seeds)))
        progress(f"{task.name}, {where}, {fraction:.2%} lost: {task.score_name} {made.mean:.4f} ± "
                 f"{made.spread:.4f}")
        return made

    exact = point("all", 0.0)
    points = []
    for one in where:
        found = [point(one, fraction) for fraction in sorted(set(fractions))]
        for _ in range(refine):
            fraction = _between(found, exact.mean - tolerance)
            if fraction is not None:
                found = sorted([*found, point(one, fraction)], key=lambda p: p.fraction)
        points += found
    settings = {"workers": workers, "epochs": task.epochs, "batch": task.batch,
                "samples": len(task.learn[0]), "test_samples": len(task.test[0]), "seeds": seeds,
                "error_feedback": error_feedback, **task.options}
    return BoundProfile(task.name, task.score_name, tolerance, settings, exact, tuple(points))


def _between(points, target):
    """Returns a fraction between the last one that meets the target and the first that does not.

    It is their geometric mean. None if all fractions meet the target.
    """
    good = 0.0
    for point in points:
        if point.mean < target:
            return math.sqrt(good * point.fraction) if good else point.fraction / 2
        good = point.fraction
    return None


def _check(tolerance, fractions, where, seeds, refine, workers):
    if not tolerance >= 0:
        raise ValueError(f"tolerance: {tolerance}; 0 or more is allowed")
    if not fractions or not all(0 < fraction < 1 for fraction in fractions):
        raise ValueError(f"fractions: {list(fractions)}; numbers above 0 and below 1 are allowed")
    if unknown := [one for one in where if one not in WHERE] or ([] if where else ["none"]):
        raise ValueError(f"where: {', '.join(unknown)}; {', '.join(WHERE)} are allowed")
    for name, value, least in (("seeds", seeds, 1), ("refine", refine, 0), ("workers", workers, 2)):
        if value < least:
            raise ValueError(f"{name}: {value}; at least {least} is allowed")


def profile_bound(model, data, *, test=None, optimizer=adam, loss=cross_entropy, score=accuracy,
                  score_name=None, epochs=8, batch=16, name=None, **options):
    """Finds how much of the gradients of `model` may be lost when it learns from `data`.

    Returns a BoundProfile.

    model: a module, or a function that makes one. Every training copies a module, so that trainings
    differ only by their batches and losses.
    data, test: (inputs, targets), tensors whose first dimension counts samples. Without `test`,
    every fifth sample of `data` is kept for the test.
    optimizer: a function that makes an optimizer for a list of parameters.
    loss, score: loss(model, batch) is minimized. score(model, test) is compared; more is better.
    batch: samples per worker and step.

    Options, with their defaults:
    tolerance=0.01: how much lower than with exact training the score may be.
    fractions=FRACTIONS: the fractions of lost segments to try.
    where=WHERE: which segments to lose, each class by itself.
    seeds=3: how many trainings per point.
    refine=0: how many more fractions to try between the last one within the tolerance and the first
    one outside it.
    workers=4: how many workers train together.
    samples=None: how many samples to learn from, drawn at random; None takes all.
    error_feedback=False: whether workers make up for what averages lacked (thalweg.lossy.Loss).
    progress: a function that is called with a line of text after each point.
    """
    is_module = isinstance(model, torch.nn.Module)
    make = (lambda: model) if is_module else model  # Workers copies the model
    learn, test = (data, test) if test is not None else split(data)
    task = Task(name or (type(model).__name__ if is_module else "model"), make, learn, test,
                optimizer, loss, score, score_name or getattr(score, "__name__", "score"), epochs,
                batch)
    return profile_task(task, **options)
