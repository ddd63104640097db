"""What users of the planner, the simulator, the testbed and the process groups call says what it takes, returns and raises; and
proof that what is missing is found."""
from pathlib import Path

from docstrings import docstring_problems, sections

PACKAGE = Path(__file__).resolve().parents[2] / "python/thalweg"
MODULES = ("plan", "sim", "testbed", "nccl", "options", "torchft", "state_transport", "torch", "_program", "_processes",
           "_testbed_parts")
# Modules of which users meet these names only, or that have other docstrings.
ONLY = {"torch": {"auto_choices"}, "_program": {"ProgramError", "Rows"}, "_processes": set()}


def test_docstrings__have_the_sections_of_their_signatures():
    assert docstring_problems({name: (PACKAGE / f"{name}.py").read_text() for name in MODULES}, ONLY) == []


def test_docstrings__modules_that_are_read_have_what_users_call():
    """A reader that finds nothing would find no violation either."""
    text = (PACKAGE / "plan.py").read_text().replace("    Returns\n    -------\n", "    Gives\n    -----\n")
    found = docstring_problems({"plan": text, "_program": (PACKAGE / "_program.py").read_text()}, ONLY)
    assert {f"plan.{name}: no section Returns" for name in ("plan", "best", "compare", "verify", "schemes")} <= set(found)


PLANTED = '''
from dataclasses import dataclass


def _helper():
    raise KeyError("x")


def right(first, *rest, timeout=None, **options):
    """Does it.

    Parameters
    ----------
    first, *rest
        What is
        summed.
    timeout
        Seconds.
    **options
        Others.

    Returns
    -------
    int
        The sum.

    Raises
    ------
    KeyError
        There is none.
    """
    _helper()
    return 1


def bare(x):
    pass


def forgets(a, b) -> int:
    """Does it.

    Parameters
    ----------
    a
        The first
    c
        The third.
    """
    return _helper()


def gives_nothing():
    """Does it.

    Returns
    -------
    int
        Nothing.
    """


@dataclass
class Point:
    """A point.

    Attributes
    ----------
    x
        To the right.
    """

    x: int
    y: int

    @property
    def far(self) -> bool:
        """Whether it is far."""
        return True

    def moved(self, by) -> "Point":
        """Moves it."""
        return self
'''


def test_docstrings__what_is_missing_is_found():
    assert docstring_problems({"m": PLANTED}) == [
        "m.bare: no docstring",
        "m.forgets: Parameters: missing ['b'], not in the signature ['c']",
        "m.forgets: no section Returns",
        "m.forgets: Raises: missing ['KeyError']",
        "m.forgets: Parameters: a has no sentence that says what it is",
        "m.gives_nothing: Returns, but it returns nothing",
        "m.Point: missing ['y'], no field []",
        "m.Point.moved: Parameters: missing ['by'], not in the signature []",
        "m.Point.moved: no section Returns"]


def test_sections__are_read():
    assert sections("Does it.\nNotes\n---\n\nReturns\n-------\nint, or None\n    The sum\n    of all.\n") == {
        "Returns": {"int": "The sum of all.", "or None": "The sum of all."}}
