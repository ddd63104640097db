"""Shows what lost gradient segments do to training, in figures like DLCP's 4, 5 and 15.

    python -m thalweg.lab.bench.lossy_convergence [--full] [--out FOLDER] [--seeds N]
                                                  [--models digits-resnet,char-lm] [--where all]

Four workers train a small residual network on handwritten digits, and a GRU on the characters of
licences: exactly, and with 1, 10 and 30 % of the segments lost (thalweg.lossy), anywhere, in the
front or back layers only, and among the small or large gradients only. Prints a table for each
model. FOLDER gets convergence-NAME.json and .svg. The short form takes a minute or two on one core:
it trains two seeds for three epochs on a part of the data. --full trains three seeds on all data.
"""
import argparse
import dataclasses
import json
import os
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    os.environ["THALWEG_BACKEND"] = "0"

import torch

from thalweg.lab.figures.draw import draw
from thalweg.lab.tasks import task_of
from thalweg.loss_bound import profile_task

MODELS = ("digits-resnet", "char-lm")
FRACTIONS = (0.01, 0.1, 0.3)
WHERE = ("all", "front", "back", "small", "large")
SHORT_EPOCHS, SHORT_SAMPLES = 3, 512


def table(profile):
    """Returns a Markdown table of final scores, their spread, and epochs to the target."""
    def cell(point):
        epochs = point.epochs_to(profile.targets)
        reached = "never" if epochs is None else f"{epochs:.1f}"
        return f"{point.mean:.3f} ± {point.spread:.3f}, {reached}"
    head = ["lost", *(f"{fraction:.0%}" for fraction in FRACTIONS)]
    rows = [[where, *(cell(point) for point in profile.at(where))] for where in profile.where]
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    title = (f"{profile.name}: exact {cell(profile.exact)}; {profile.score}, then epochs to within "
             f"{profile.tolerance:g} of exact")
    return "\n".join([title, "", *lines])


def study(name, full, seeds, where, progress):
    task = task_of(name)
    if not full:
        task = dataclasses.replace(task, epochs=SHORT_EPOCHS)
    return profile_task(task, fractions=FRACTIONS, where=where, seeds=seeds or (3 if full else 2),
                        samples=None if full else SHORT_SAMPLES, progress=progress)


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("build/convergence"))
    parser.add_argument("--seeds", type=int, default=0, help="3, or 2 in the short form")
    parser.add_argument("--models", type=lambda text: text.split(","), default=MODELS)
    parser.add_argument("--where", type=lambda text: text.split(","), default=WHERE,
                        help=",".join(WHERE))
    arguments = parser.parse_args(words)
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.models:
        started = time.time()
        try:
            profile = study(name, arguments.full, arguments.seeds, arguments.where,
                            lambda line: print(line, file=sys.stderr, flush=True))
        except ValueError as error:
            parser.error(str(error))
        stem = arguments.out / f"convergence-{name.replace(':', '-')}"
        stem.with_suffix(".json").write_text(json.dumps(profile.to_json(), indent=1),
                                             encoding="utf-8")
        draw(profile.figure(), f"{stem}.svg")
        print(f"{table(profile)}\n\nin {time.time() - started:.0f} s; {stem}.json, .svg\n",
              flush=True)


if __name__ == "__main__":
    main()
