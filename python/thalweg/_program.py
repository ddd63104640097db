"""Runs the `thalweg` program for the modules that are an API over it: thalweg.plan, thalweg.sim and
thalweg.testbed."""
import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any


class ProgramError(ValueError):
    """The program refused what it was asked for, or failed. The text is the program's own.

    Attributes
    ----------
    exit_code
        The program's exit code: 2 if an argument or a file is wrong.
    """

    def __init__(self, message: str, exit_code: int = 2):
        super().__init__(message)
        self.exit_code = exit_code


class Rows(list):
    """A list of dicts, one for each row of a table. Jupyter shows it as a table."""

    def frame(self) -> Any:
        """Makes a pandas DataFrame of the rows.

        Returns
        -------
        pandas.DataFrame
            One row for each dict.

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("Rows.frame() needs pandas: pip install pandas") from error
        return pandas.DataFrame(list(self))

    def columns(self) -> list[str]:
        """Lists the keys of the rows.

        Returns
        -------
        list of str
            Each key once, in the order in which they first come.
        """
        return list(dict.fromkeys(key for row in self for key in row))

    def _repr_html_(self) -> str:
        columns = self.columns()
        head = "".join(f"<th>{_escaped(column)}</th>" for column in columns)
        body = "".join("<tr>" + "".join(f"<td>{_escaped(_shown(row.get(column, '')))}</td>" for column in columns) + "</tr>"
                       for row in self)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def program() -> str:
    """Returns the path of the program.

    THALWEG_PROGRAM names it. Otherwise it is that of the checkout that holds this module, or that
    of the environment into which pip installed it, or that of the PATH.
    """
    named = os.environ.get("THALWEG_PROGRAM")
    if named:
        if not os.access(named, os.X_OK):
            raise ProgramError(f"THALWEG_PROGRAM: {named}; a program that can be run is allowed")
        return named
    places = [Path(__file__).resolve().parents[2] / "build/release/thalweg",
              Path(sysconfig.get_path("scripts")) / "thalweg"]
    found = next((str(place) for place in places if os.access(place, os.X_OK)), None) or shutil.which("thalweg")
    if found is None:
        raise ProgramError("the program `thalweg` is not installed: a wheel has it (make wheel), and so has a checkout after "
                           "`make build`; THALWEG_PROGRAM names another")
    return found


def answer(*words: object, timeout: float | None = None, also: tuple[int, ...] = ()) -> Any:
    """Runs a subcommand with --json. Returns what it printed.

    also: exit codes besides 0 that come with an answer.
    """
    command = [program(), *map(str, words), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"thalweg {' '.join(command[1:3])}: not done after {timeout} s") from None
    if done.returncode != 0 and done.returncode not in also:
        raise ProgramError(_reason(done), done.returncode)
    return json.loads(done.stdout)


def written(option: str, suffix: str, *words: object, timeout: float | None = None) -> str:
    """Runs a subcommand that writes a file by `option`. Returns the file's content."""
    with tempfile.TemporaryDirectory(prefix="thalweg-") as folder:
        file = Path(folder) / f"out{suffix}"
        answer(*words, option, file, timeout=timeout, also=(1,))
        return file.read_text()


def size_text(size: str | int) -> str:
    """Returns a size as the program takes it; a number is one of bytes."""
    return f"{size}B" if isinstance(size, int) else size


def plan_subject(topology: object, size: str | int, collective: str, root: int | None, element_bytes: int | None,
                 alpha: str | None, follow_up: str | None) -> list[str]:
    """Returns the words that say for what a plan is made."""
    words = ["--topology", str(topology), "--size", size_text(size), "--collective", collective]
    options = {"--root": root, "--element-bytes": element_bytes, "--alpha": alpha, "--follow-up": follow_up}
    for name, value in options.items():
        if value is not None:
            words += [name, str(value)]
    return words


def _reason(done: subprocess.CompletedProcess) -> str:
    try:
        return json.loads(done.stdout)["error"]
    except (ValueError, KeyError, TypeError):
        lines = done.stderr.strip().splitlines()
        return lines[-1].removeprefix("thalweg: ") if lines else f"thalweg ended with code {done.returncode}"


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
