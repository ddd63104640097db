"""The packet-level simulator: a scenario, a run, a sweep.

    import thalweg.sim as s
    result = s.run(s.Scenario("loss"), {"jobs.0.scheme": "rat"})
    print(result.jobs[0]["mean_iteration_ms"])
    rows = s.sweep("loss", {"seed": [1, 2, 3]})  # rows.frame(): a pandas DataFrame

The simulator is that of the `thalweg` program, and answers are the program's (docs/python.md).
"""
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from thalweg._program import ProgramError, Rows, answer, written

__all__ = ["ProgramError", "Result", "Rows", "Scenario", "run", "sweep"]


@dataclass(frozen=True)
class Scenario:
    """A scenario (docs/scenario-format.md): a file or a text, with changes.

    Parameters
    ----------
    file
        The path of a file, or the name of one of Thalweg's own.
    text
        The scenario itself, in YAML; then there is no file.
    settings
        Changes of it, by path: {"jobs.0.scheme": "ring", "seed": 3}.

    Raises
    ------
    ValueError
        Neither a file nor a text is given, or both are.
    """

    file: str | Path = ""
    text: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.file) == bool(self.text):
            raise ValueError("Scenario: give a file or a text, one of both")

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Scenario":
        """Makes a scenario from a dict.

        Parameters
        ----------
        content
            A dict of the same shape as a file.

        Returns
        -------
        Scenario
            The scenario. Whether it is right shows when it runs.
        """
        return cls(text=json.dumps(content))  # JSON is YAML

    def changed(self, settings: Mapping[str, Any]) -> "Scenario":
        """Makes the same scenario with further settings.

        Parameters
        ----------
        settings
            Changes, by path. They replace earlier ones of the same path.

        Returns
        -------
        Scenario
            A new scenario; this one stays as it is.
        """
        return Scenario(self.file, self.text, {**self.settings, **settings})


@dataclass(frozen=True)
class Result:
    """What a run gave. `result[name]` is one of its numbers.

    A drawing or a trace that the program cannot make is a ProgramError.

    Attributes
    ----------
    finished
        Whether all jobs were done by the scenario's `until`.
    simulated_ms
        The simulated time at which the run ended.
    jobs
        One dict for each job, with its iterations and its goodput.
    numbers
        All that the program says, by name.
    scenario
        What ran, with all settings.
    models
        The folder of its layer tables, if they are not Thalweg's.
    """

    finished: bool
    simulated_ms: float
    jobs: list[dict[str, Any]]
    numbers: Mapping[str, Any] = field(repr=False)
    scenario: Scenario = field(repr=False, compare=False)
    models: str | None = field(default=None, repr=False, compare=False)

    @cached_property
    def svg(self) -> str:
        """Goodput, queues, losses and completion times, drawn. Runs the scenario again; needs matplotlib."""
        with _words(self.scenario, self.models) as words:
            return written("--plot", ".svg", *words)

    @cached_property
    def timeline(self) -> str:
        """Every event as a Chrome trace, for ui.perfetto.dev. Runs the scenario again."""
        with _words(self.scenario, self.models) as words:
            return written("--trace", ".json", *words)

    def _repr_svg_(self) -> str:
        return self.svg

    def __getitem__(self, name: str) -> Any:
        return self.numbers[name]


def run(scenario: Scenario | str | Path, settings: Mapping[str, Any] | None = None, *, models: str | None = None,
        timeout: float | None = None) -> Result:
    """Runs a scenario.

    Parameters
    ----------
    scenario
        A Scenario, the path of a file, or the name of one of Thalweg's own.
    settings
        Changes on top of the scenario's own, by path. None: no changes.
    models
        The folder of the layer tables, if they are not Thalweg's.
    timeout
        The most seconds that it may take. None: no limit.

    Returns
    -------
    Result
        What the run gave, also if its jobs were not done by the scenario's `until`.

    Raises
    ------
    ProgramError
        The program refused the scenario or a setting, and says why.
    TimeoutError
        It took longer than `timeout`.
    """
    chosen = _scenario(scenario).changed(settings or {})
    with _words(chosen, models) as words:
        numbers = answer(*words, timeout=timeout, also=(1,))
    return Result(numbers["finished"], numbers["simulated_ms"], numbers["jobs"], numbers, chosen, models)


def sweep(scenario: Scenario | str | Path, axes: Mapping[str, Iterable[Any]], settings: Mapping[str, Any] | None = None, *,
          models: str | None = None, jobs: int = 0, timeout: float | None = None) -> Rows:
    """Runs a scenario at every combination of the axes' values.

    Parameters
    ----------
    scenario
        A Scenario, the path of a file, or the name of one of Thalweg's own.
    axes
        The values of each setting that varies, by path: {"seed": [1, 2, 3]}.
    settings
        Changes that hold at every point, by path. None: no changes.
    models
        The folder of the layer tables, if they are not Thalweg's.
    jobs
        The number of runs at once. 0: one on each core.
    timeout
        The most seconds that the whole sweep may take. None: no limit.

    Returns
    -------
    Rows
        One row for each point: the axes, and the numbers of its result. Numbers of the jobs have the
        job's name before them if there are several. `.frame()` makes it a pandas DataFrame.

    Raises
    ------
    ValueError
        There is no axis, or one without a value.
    ProgramError
        The program refused the scenario or a setting, and says why.
    TimeoutError
        It took longer than `timeout`.
    """
    values = {name: list(each) for name, each in axes.items()}
    if not values or not all(values.values()):
        raise ValueError("axes: give at least one, each with a value")
    with _words(_scenario(scenario).changed(settings or {}), models) as words:
        for name, each in values.items():
            words += ["--sweep", f"{name}={json.dumps(each)}"]
        found = answer(*words, "-j", jobs, timeout=timeout, also=(1,))
    rows = Rows()
    for point in found["points"]:
        row = {name: _of(values[name], text) for name, text in point["at"].items()}
        rows.append({**row, **_flat(point["result"])})
    return rows


def _scenario(scenario: Scenario | str | Path) -> Scenario:
    return scenario if isinstance(scenario, Scenario) else Scenario(scenario)


@contextmanager
def _words(scenario: Scenario, models: str | None) -> Iterator[list[str]]:
    """The command that runs a scenario. The file of one that has none is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="thalweg-") as folder:
        file = str(scenario.file)
        if scenario.text:
            file = f"{folder}/scenario.yaml"
            Path(file).write_text(scenario.text)
        words = ["sim", "run", file]
        for name, value in scenario.settings.items():
            words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
        if models is not None:
            words += ["--models", models]
        yield words


def _of(values: list[Any], text: str) -> Any:
    """The value of an axis that the program shows as `text`."""
    return next((value for value in values if text in (str(value), json.dumps(value))), text)


def _flat(result: Mapping[str, Any]) -> dict[str, Any]:
    """The single numbers and words of a result, by name."""
    flat = {name: value for name, value in result.items() if not isinstance(value, (dict, list))}
    jobs = result.get("jobs", [])
    for job in jobs:
        before = f"{job['name']}." if len(jobs) > 1 else ""
        flat.update({before + name: value for name, value in job.items()
                     if name != "name" and not isinstance(value, (dict, list))})
    return flat
