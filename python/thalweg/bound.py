"""How much of a model's gradients may be lost: the loss-tolerance profiler (DLCP, tables 1 and 2, figures 4 and 5).

    python -m thalweg.bound --model digits-cnn [--tolerance 0.01] [--json FILE] [--plot FILE]     (thalweg tune bound)

Trains the model again and again, exactly and with segments lost (thalweg.lossy says how), and says up to which part of
them the final score stays within a tolerance of the exact one: overall, of the front, middle and back layers alone, and
of the small, medium and large gradients alone. Trainings of one seed see the same initial model and the same batches.
"""
import argparse
import dataclasses
import json
import math
import os
import statistics
import sys

if __name__ == "__main__":  # nothing here goes over a network
    os.environ["THALWEG_BACKEND"] = "0"

try:
    import torch
except ImportError as problem:
    if __name__ != "__main__":
        raise
    raise SystemExit(f"thalweg tune bound: PyTorch cannot be loaded by {sys.executable}: {problem}; tools/setup "
                     "installs it, THALWEG_PYTHON names another Python") from problem

from thalweg.lossy import LAYERS, MAGNITUDES, SEGMENT_BYTES, WHERE, Loss, Workers
from thalweg.tasks import TASKS, Task, accuracy, adam, cross_entropy, split, task_of

FRACTIONS = (0.01, 0.03, 0.1, 0.3, 0.6)
WORKERS = 4


@dataclasses.dataclass(frozen=True)
class Run:
    """One training: the score after each epoch, and the part of the contributions that was lost."""

    scores: tuple[float, ...]
    lost: float


@dataclasses.dataclass(frozen=True)
class Point:
    """Trainings with one kind of loss, a run a seed."""

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
        """The standard deviation over seeds."""
        return statistics.stdev(self.finals) if len(self.runs) > 1 else 0.0

    def curve(self):
        """The mean score after each epoch."""
        return [statistics.fmean(scores) for scores in zip(*(run.scores for run in self.runs))]

    def epochs_to(self, targets):
        """After how many epochs the score is first as good as the seed's target, on average; None where one never is."""
        first = [next((i + 1 for i, score in enumerate(run.scores) if score >= target), None)
                 for run, target in zip(self.runs, targets)]
        return None if None in first else statistics.fmean(first)


@dataclasses.dataclass(frozen=True)
class BoundProfile:
    """What was found. `bounds` is for GradientState(loss_bound=…) and the like."""

    name: str
    score: str
    tolerance: float
    settings: dict  # workers, epochs, batch, samples, seeds, …
    exact: Point
    points: tuple[Point, ...]  # by where, then by fraction

    def at(self, where):
        return [point for point in self.points if point.where == where]

    @property
    def where(self):
        return list(dict.fromkeys(point.where for point in self.points))

    def cost(self, point):
        """How much worse than exact training, on average over the seeds."""
        return self.exact.mean - point.mean

    @property
    def bounds(self):
        """By where: the largest fraction up to which every one stayed within the tolerance; 0 if none did."""
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
        """Overall."""
        if "all" not in self.where:
            raise ValueError("bound: 'all' was not among where")
        return self.bounds["all"]

    @property
    def targets(self):
        """A seed: the score that counts as reached in epochs_to, the exact one less the tolerance."""
        return [final - self.tolerance for final in self.exact.finals]

    def to_json(self):
        def of(point):
            return {"where": point.where, "fraction": point.fraction, "mean": point.mean, "spread": point.spread,
                    "cost": self.cost(point), "epochs_to_target": point.epochs_to(self.targets),
                    "lost": statistics.fmean(run.lost for run in point.runs),
                    "scores": [list(run.scores) for run in point.runs]}
        return {"model": self.name, "score": self.score, "tolerance": self.tolerance, "targets": self.targets,
                "segment_bytes": SEGMENT_BYTES, **self.settings, "bounds": self.bounds, "exact": of(self.exact),
                "points": [of(point) for point in self.points]}

    def table(self):
        """As text, for people."""
        lines = [f"{self.name}: {self.score} {self.exact.mean:.4f} ± {self.exact.spread:.4f} when exact; "
                 f"bounds within {self.tolerance:g} of it"]
        for where, bound in self.bounds.items():
            worst = self.at(where)[-1]
            lines.append(f"  {where:<7} {bound:>7.2%}   ({worst.mean:.4f} ± {worst.spread:.4f} at {worst.fraction:.0%})")
        return "\n".join(lines)

    def figure(self):
        """For thalweg.figure: final scores and epochs by fraction (figures 4 and 5), learning curves (figure 15)."""
        groups = [("overall", ["all"]), ("by layer", LAYERS), ("by magnitude", MAGNITUDES)]
        panels = []
        for title, classes in groups:
            classes = [where for where in classes if where in self.where]
            if classes:
                panels += [self._scores_panel(title, classes), self._epochs_panel(title, classes)]
        return {"title": f"{self.name}: loss of gradient segments", "columns": 2, "panels": [*panels, *self._curves()]}

    def _scores_panel(self, title, classes):
        series = [{"name": where, "x": [100 * p.fraction for p in self.at(where)],
                   "y": [p.mean for p in self.at(where)], "low": [min(p.finals) for p in self.at(where)],
                   "high": [max(p.finals) for p in self.at(where)]} for where in classes]
        return {"kind": "lines", "title": f"Final {self.score}, loss {title}", "x_label": "segments lost (%)",
                "y_label": self.score, "log_x": True, "series": series, "y_range": self._range(),
                "x_range": self._fractions_range(),
                "references": [{"y": self.exact.mean, "label": "exact"},
                               {"y": self.exact.mean - self.tolerance, "label": "tolerance"}]}

    def _epochs_panel(self, title, classes):
        series = [{"name": where, "x": [100 * p.fraction for p in self.at(where)],
                   "y": [p.epochs_to(self.targets) for p in self.at(where)]} for where in classes]
        lines = [{"y": self.exact.epochs_to(self.targets), "label": "exact"}]
        return {"kind": "lines", "title": f"Epochs to within {self.tolerance:g} of exact, loss {title}",
                "x_label": "segments lost (%); a gap: not reached by every seed", "y_label": "epochs", "log_x": True,
                "series": series, "references": lines, "y_range": [0, len(self.exact.curve()) + 0.5],
                "x_range": self._fractions_range()}

    def _curves(self):
        points = [self.exact, *self.at("all")]
        epochs = list(range(1, len(self.exact.curve()) + 1))
        series = [{"name": "exact" if p is self.exact else f"{100 * p.fraction:g} %", "x": epochs, "y": p.curve()}
                  for p in points]
        return [{"kind": "lines", "title": "Learning, loss overall", "x_label": "epoch", "y_label": self.score,
                 "series": series, "y_range": self._range(curves=True), **({"x_ticks": epochs} if len(epochs) < 20 else {})}]

    def _fractions_range(self):
        fractions = [point.fraction for point in self.points]
        return [100 * min(fractions) / 1.1, 100 * max(fractions) * 1.1]

    def _range(self, curves=False):
        points = [self.exact, *self.points]
        values = [s for p in points for r in p.runs for s in (r.scores if curves else r.scores[-1:])]
        margin = max(max(values) - min(values), self.tolerance) * 0.1
        return [min(values) - margin, max(values) + margin]


def train(task, loss, seed, workers=WORKERS):
    """One training of a task by so many workers, each with a share of every batch."""
    torch.manual_seed(seed)
    crew = Workers(task.model(), task.optimizer, workers, loss, torch.Generator().manual_seed(seed))
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


def profile_task(task, *, tolerance=0.01, fractions=FRACTIONS, where=WHERE, seeds=3, refine=0, workers=WORKERS,
                 samples=None, error_feedback=False, progress=lambda line: None):
    """As profile_bound(), of a thalweg.tasks.Task. `progress` is told of each point."""
    _check(tolerance, fractions, where, seeds, refine, workers)
    if samples is not None and samples < 1:
        raise ValueError(f"samples: {samples}; at least 1 is allowed")
    task = task.sampled(samples)
    if len(task.learn[0]) < task.batch * workers:
        raise ValueError(f"samples: {len(task.learn[0])} to learn from; a step of {workers} workers takes "
                         f"{task.batch * workers}")

    def point(where, fraction):
        runs = tuple(train(task, Loss(fraction, where, error_feedback=error_feedback), seed, workers)
                     for seed in range(seeds))
        made = Point(where, fraction, runs)
        progress(f"{task.name}, {where}, {fraction:.2%} lost: {task.score_name} {made.mean:.4f} ± {made.spread:.4f}")
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
    settings = {"workers": workers, "epochs": task.epochs, "batch": task.batch, "samples": len(task.learn[0]),
                "test_samples": len(task.test[0]), "seeds": seeds, "error_feedback": error_feedback, **task.options}
    return BoundProfile(task.name, task.score_name, tolerance, settings, exact, tuple(points))


def _between(points, target):
    """Halfway, in ratio, between the last fraction that is good enough and the first that is not; None if all are."""
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


def profile_bound(model, data, *, test=None, optimizer=adam, loss=cross_entropy, score=accuracy, score_name=None,
                  epochs=8, batch=16, name=None, **options):
    """How much of the gradients of `model` may be lost when it learns from `data`: a BoundProfile.

    model: a module, copied for every training, which then differ by batches and losses only; or a function that makes
    one. data, test: (inputs, targets), tensors whose first dimension counts samples; without `test`, every fifth sample
    is kept for it. optimizer: makes one of a list of parameters. loss(model, batch) is minimized; score(model, test) is
    compared, and more is better. batch: samples of one worker in a step.
    Options, and what they are by default: tolerance=0.01, of the score; fractions=FRACTIONS, that are tried;
    where=WHERE, which segments get lost; seeds=3; refine=0, how often to look between the last fraction that was good
    and the first that was not; workers=4; samples=None, how many to learn from, drawn by chance;
    error_feedback=False; progress, which is called with a line of text after each point.
    """
    is_module = isinstance(model, torch.nn.Module)
    make = (lambda: model) if is_module else model  # Workers copies it
    learn, test = (data, test) if test is not None else split(data)
    task = Task(name or (type(model).__name__ if is_module else "model"), make, learn, test, optimizer, loss, score,
                score_name or getattr(score, "__name__", "score"), epochs, batch)
    return profile_task(task, **options)


def _numbers(text):
    return [float(word.rstrip("%")) / (100 if word.endswith("%") else 1) for word in text.split(",")]


def main(words=None):
    parser = argparse.ArgumentParser(prog="thalweg tune bound", description="how much of a model's gradients may be lost")
    parser.add_argument("--model", required=True, help=f"{', '.join(TASKS)}, or module:function, which returns a "
                        "thalweg.tasks.Task")
    parser.add_argument("--text", help="that char-lm reads; else licences of Debian")
    parser.add_argument("--tolerance", type=float, default=0.01, help="of the final score (0.01)")
    parser.add_argument("--fractions", type=_numbers, default=FRACTIONS, help="to be lost: 1%%,10%%,0.3")
    parser.add_argument("--where", type=lambda text: text.split(","), default=WHERE, help=", ".join(WHERE))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--refine", type=int, default=0, help="times to look closer at the bound")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--samples", type=int, help="to learn from, drawn by chance; all")
    parser.add_argument("--epochs", type=int, help="of a training; the model's own number")
    parser.add_argument("--error-feedback", action="store_true")
    parser.add_argument("--json", help="where all numbers go; - is the standard output, instead of the table")
    parser.add_argument("--plot", help="a figure: .svg, .png or .pdf")
    arguments = parser.parse_args(words)
    torch.set_num_threads(1)
    try:
        if arguments.plot:
            from thalweg.figure import draw, format_of
            format_of(arguments.plot)
        task = task_of(arguments.model, arguments.text)
        if arguments.epochs is not None:
            if arguments.epochs < 1:
                raise ValueError(f"epochs: {arguments.epochs}; at least 1 is allowed")
            task = dataclasses.replace(task, epochs=arguments.epochs)
        profile = profile_task(task, progress=lambda line: print(line, file=sys.stderr, flush=True),
                               **{key: getattr(arguments, key) for key in (
                                   "tolerance", "fractions", "where", "seeds", "refine", "workers", "samples",
                                   "error_feedback")})
        if arguments.json and arguments.json != "-":
            with open(arguments.json, "w", encoding="utf-8") as out:
                json.dump(profile.to_json(), out, indent=1)
        if arguments.plot:
            draw(profile.figure(), arguments.plot)
        print(json.dumps(profile.to_json(), indent=1) if arguments.json == "-" else profile.table(), flush=True)
    except (ValueError, OSError) as error:
        print(f"thalweg tune bound: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
