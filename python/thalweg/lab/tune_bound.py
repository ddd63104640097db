"""`thalweg tune bound`: finds how much of a model's gradients may be lost (docs/convergence.md).

    python -m thalweg.lab.tune_bound --model digits-cnn [--tolerance 0.01] [--json]
                                     [--out FILE] [--plot FILE]

thalweg.loss_bound is the profiler.
"""
import argparse
import dataclasses
import difflib
import json
import os
import sys

if __name__ == "__main__":  # the program needs no network, so no backend either
    os.environ["THALWEG_BACKEND"] = "0"

try:
    import torch
except ImportError as problem:
    if __name__ != "__main__":
        raise
    raise SystemExit(f"thalweg tune bound: PyTorch cannot be loaded by {sys.executable}: "
                     f"{problem}; tools/setup installs it, THALWEG_PYTHON names another Python"
                     ) from problem

from thalweg.lab.progress import Progress
from thalweg.lab.tasks import TASKS, task_of
from thalweg.loss_bound import FRACTIONS, WORKERS, profile_task
from thalweg.lossy import WHERE


class _Parser(argparse.ArgumentParser):
    """A parser whose errors read like those of the program's other commands."""

    as_json = False

    def error(self, message):
        _, unknown, words = message.partition("unrecognized arguments: ")
        if unknown:
            word = words.split()[0].split("=")[0]
            near = difflib.get_close_matches(word, self._option_string_actions, 1)
            message = f"'{word}' is not one of its options" + (
                f"; did you mean '{near[0]}'?" if near else "")
        self.exit(report(message, self.as_json))


def report(message, as_json):
    """Prints an error on stderr and, with as_json, as JSON on stdout. Returns the exit code."""
    print(f"thalweg tune bound: {message}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": f"thalweg tune bound: {message}", "exit_code": 2}, indent=2),
              flush=True)
    return 2


def told_of(points):
    """Returns a function that prints a line for each point, and shows how many are left."""
    progress, made = Progress(), []

    def told(line):
        made.append(line)
        progress.say(line)
        if len(made) < points:
            progress.show(f"{len(made)} of {points} points", len(made) / points)

    return told


def _numbers(text):
    return [float(word.rstrip("%")) / (100 if word.endswith("%") else 1)
            for word in text.split(",")]


def main(words=None):
    parser = _Parser(
        prog="thalweg tune bound", description="how much of a model's gradients may be lost",
        epilog="Example: thalweg tune bound --model digits-cnn --json", allow_abbrev=False)
    parser.as_json = "--json" in (sys.argv[1:] if words is None else words)
    parser.add_argument("--model",
                        help=f"{', '.join(TASKS)}, or module:function, which returns a "
                        "thalweg.task.Task")
    parser.add_argument("--text", help="file that char-lm reads (default: licences of Debian)")
    parser.add_argument("--tolerance", type=float, default=0.01,
                        help="how much lower the final score may be (0.01)")
    parser.add_argument("--fractions", type=_numbers, default=FRACTIONS,
                        help="fractions of segments to lose: 1%%,10%%,0.3")
    parser.add_argument("--where", type=lambda text: text.split(","), default=WHERE,
                        help=f"which segments to lose: {', '.join(WHERE)}")
    parser.add_argument("--seeds", type=int, default=3, help="trainings per point (3)")
    parser.add_argument("--refine", type=int, default=0,
                        help="fractions to try closer to the bound (0)")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--samples", type=int,
                        help="samples to learn from, drawn at random (default: all)")
    parser.add_argument("--epochs", type=int, help="epochs per training (default: the model's own)")
    parser.add_argument("--error-feedback", action="store_true",
                        help="make up for what averages lacked")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--out", help="file for all numbers, as JSON")
    parser.add_argument("--plot", help="file for a figure: .svg, .png or .pdf")
    arguments = parser.parse_args(words)
    if arguments.model is None:  # not argparse's: an unknown option is named first
        parser.error("--model is required")
    torch.set_num_threads(1)
    try:
        if arguments.plot:
            from thalweg.lab.figures.draw import draw, format_of
            format_of(arguments.plot)
        task = task_of(arguments.model, arguments.text)
        if arguments.epochs is not None:
            if arguments.epochs < 1:
                raise ValueError(f"epochs: {arguments.epochs}; at least 1 is allowed")
            task = dataclasses.replace(task, epochs=arguments.epochs)
        points = 1 + len(arguments.where) * (len(set(arguments.fractions)) + arguments.refine)
        profile = profile_task(task, progress=told_of(points),
                               **{key: getattr(arguments, key) for key in (
                                   "tolerance", "fractions", "where", "seeds", "refine", "workers",
                                   "samples", "error_feedback")})
        if arguments.out:
            with open(arguments.out, "w", encoding="utf-8") as out:
                json.dump(profile.to_json(), out, indent=1)
        if arguments.plot:
            draw(profile.figure(), arguments.plot)
        print(json.dumps(profile.to_json(), indent=1) if arguments.json else profile.table(),
              flush=True)
    except (ValueError, OSError) as error:
        return report(error, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
