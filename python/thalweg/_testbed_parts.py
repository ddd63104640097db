"""What thalweg.testbed is made of: its values, and what can be done to its network."""
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from thalweg._program import ProgramError


class TestbedError(ProgramError):
    """What `thalweg testbed` refused, or why a testbed ended. The text is the program's own."""

    __test__ = False  # tells pytest that this is no test, whatever its name


@dataclass(frozen=True)
class Host:
    """A host of a testbed.

    Attributes
    ----------
    rank
        Its number.
    name
        Its name in the topology.
    address
        Its IP address.
    """

    rank: int
    name: str
    address: str


@dataclass(frozen=True)
class Job:
    """A job or a program that is over.

    Attributes
    ----------
    code
        Its exit code.
    output
        What it wrote to standard output and standard error; of a job, that of all ranks.
    """

    code: int
    output: str


@dataclass(frozen=True)
class Statistics:
    """What a testbed has counted since it is up.

    Attributes
    ----------
    frames
        Counts of frames by what became of them ("sent", "delivered", "dropped_fault", …).
    numbers
        All that the program says, by name (docs/testbed.md).
    """

    frames: Mapping[str, int]
    numbers: Mapping[str, Any] = field(repr=False)

    @property
    def lost(self) -> int:
        """Frames that were dropped: at random, by a link that is down, by a full or a selective queue."""
        return sum(self.frames[name] for name in ("dropped_full", "dropped_fault", "dropped_selective"))

    def since(self, before: "Statistics") -> "Statistics":
        """Says what was counted after an earlier moment.

        Parameters
        ----------
        before
            The statistics of that moment.

        Returns
        -------
        Statistics
            The frames since then. The other numbers are those of the later moment.
        """
        return Statistics({name: count - before.frames[name] for name, count in self.frames.items()}, self.numbers)


class Faults:
    """What can be done to a testbed's network while programs use it."""

    def command(self, word: str, *words: object, check: bool = True) -> str:
        raise NotImplementedError

    def set(self, link: str, **changes: object) -> None:
        """Changes a link.

        Parameters
        ----------
        link
            Its name ("host0-switch0"), or "all".
        **changes
            Its new rate, delay, loss or burst, or up (True or False).

        Raises
        ------
        TestbedError
            There is no such link, or the change is not allowed.
        """
        self.command("set", "link", link, *(f"{key}={_word(value)}" for key, value in changes.items()))

    def restart(self, switch: str) -> None:
        """Lets a switch lose all that waits in it.

        Parameters
        ----------
        switch
            Its name.

        Raises
        ------
        TestbedError
            There is no such switch.
        """
        self.command("restart", switch)

    def pause(self, host: str) -> None:
        """Lets a host send nothing until resume().

        Parameters
        ----------
        host
            Its number or its name.

        Raises
        ------
        TestbedError
            There is no such host.
        """
        self.command("pause", host)

    def resume(self, host: str) -> None:
        """Lets a host send again after pause().

        Parameters
        ----------
        host
            Its number or its name.

        Raises
        ------
        TestbedError
            There is no such host.
        """
        self.command("resume", host)

    def stall(self, every: str, length: str, seed: int = 1) -> None:
        """Lets a random host send nothing for a while, again and again, until calm().

        Parameters
        ----------
        every
            The mean time between the moments, which are random: "2s".
        length
            How long the host sends nothing: "100ms".
        seed
            The seed of the random numbers.

        Raises
        ------
        TestbedError
            A time is not allowed.
        """
        self.command("stall", "--every", every, "--for", length, "--seed", seed)

    def calm(self) -> None:
        """Ends stall().

        Raises
        ------
        TestbedError
            The testbed is not up.
        """
        self.command("stall", "--off")


def _word(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
