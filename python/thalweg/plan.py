"""Plans of collectives: how long each scheme takes on a network, which is best, and proofs.

    import thalweg.plan as p
    network = p.Topology.of("leaf-spine", racks=2, hosts=4, spines=1, host="10G", uplink="10G")
    print(p.best(topology=network, size="97MB"))
    p.plan(network, "97MB", scheme="rat")        # Jupyter draws it

The planner is that of the `thalweg` program, and answers are the program's (docs/python.md).
"""
import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from thalweg._program import ProgramError, Rows, answer, plan_subject, size_text, written

__all__ = ["Parameter", "Plan", "ProgramError", "Rows", "Scheme", "Topology", "Verdict", "best", "compare", "plan",
           "schemes", "verify"]


@dataclass(frozen=True)
class Topology:
    """A network. Nothing is read before a plan is asked for.

    Parameters
    ----------
    text
        A shorthand ("single-switch:hosts=8,host=10G"), the path of a file, or the name of one of
        Thalweg's own ("two-racks").
    """

    text: str

    @classmethod
    def of(cls, kind: str, **parameters: object) -> "Topology":
        """Makes the shorthand of a kind: Topology.of("single-switch", hosts=8, host="10G").

        Parameters
        ----------
        kind
            "single-switch", "leaf-spine", or another that docs/topology-format.md lists.
        **parameters
            The parameters of that kind, with `_` for each `-` of their names.

        Returns
        -------
        Topology
            The network. Whether the program knows the kind shows when a plan is asked for.
        """
        return cls(f"{kind}:" + ",".join(f"{name.replace('_', '-')}={value}" for name, value in parameters.items()))

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Plan:
    """A plan that was proved, on a network, with its predicted cost. plan() and best() make it.

    A drawing or another form of it that the program cannot make is a ProgramError.

    Attributes
    ----------
    scheme
        The scheme with its parameters, as "rat:trees=8".
    topology
        The network that it was made for.
    size
        The size of the tensor, as a text.
    predicted_ms
        The predicted time, as packets that are passed on in messages.
    fluid_ms
        The predicted time of the bytes alone.
    limit_ms
        What the slowest link needs for its bytes.
    limiting_link
        That link.
    steps
        The length of the longest chain of transfers of which each waits for the one before.
    numbers
        All that the program says of the plan, by name.
    command
        The words after `thalweg` that make this plan again.
    reason
        Why best() chose it; otherwise empty.
    candidates
        What best() looked at besides; otherwise empty.
    """

    scheme: str
    topology: Topology
    size: str
    predicted_ms: float
    fluid_ms: float
    limit_ms: float
    limiting_link: str
    steps: int
    numbers: Mapping[str, Any] = field(repr=False)
    command: tuple[str, ...] = field(repr=False, compare=False)
    reason: str = ""
    candidates: Rows = field(default_factory=Rows, repr=False)

    @cached_property
    def svg(self) -> str:
        """The plan drawn on its network, made when it is first asked for."""
        return written("--svg", ".svg", *self.command)

    @cached_property
    def dot(self) -> str:
        """The same drawing for Graphviz."""
        return written("--dot", ".dot", *self.command)

    @cached_property
    def transfers(self) -> dict[str, Any]:
        """The plan itself: chunks and transfers (docs/plan-format.md). verify() takes it."""
        return json.loads(written("--plan", ".json", *self.command))

    @cached_property
    def timeline(self) -> str:
        """The predicted transfers as a Chrome trace, for ui.perfetto.dev."""
        return written("--timeline", ".json", *self.command)

    @cached_property
    def msccl(self) -> str:
        """The plan as XML of MSCCL."""
        return written("--xml", ".xml", *self.command)

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        text = (f"{self.scheme}: {self.predicted_ms:.3g} ms for {self.size} on {self.topology}, {self.steps} steps; "
                f"{self.limiting_link} needs {self.limit_ms:.3g} ms")
        return f"{text}\n{self.reason}" if self.reason else text


@dataclass(frozen=True)
class Parameter:
    """A parameter of a scheme.

    Attributes
    ----------
    name
        As in "rat:trees=8".
    default
        The value that holds where none is named, as a text.
    meaning
        What it does, in a sentence.
    """

    name: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Scheme:
    """A scheme that the planner knows.

    Attributes
    ----------
    name
        As plan() takes it.
    summary
        How it works, in a sentence.
    collectives
        The collectives that it makes plans for.
    parameters
        What can be set after its name.
    """

    name: str
    summary: str
    collectives: tuple[str, ...]
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class Verdict:
    """Whether a plan is right. It is true in conditions if the plan is.

    Attributes
    ----------
    correct
        Whether every rank ends with what the collective promises.
    error
        What is wrong; empty if nothing is.
    numbers
        All that the program says, by name; with a network also the cost.
    """

    correct: bool
    error: str
    numbers: Mapping[str, Any] = field(repr=False)

    def __bool__(self) -> bool:
        return self.correct


def plan(topology: Topology | str, size: str | int, scheme: str, *, pipeline: int | None = None,
         collective: str = "allreduce", root: int | None = None, element_bytes: int | None = None,
         alpha: str | None = None, follow_up: str | None = None, timeout: float | None = None) -> Plan:
    """Makes the plan of a scheme.

    Parameters
    ----------
    topology
        The network: a Topology, a shorthand, the path of a file, or the name of one of Thalweg's own.
    size
        The size of the tensor: "97MB", "64KiB", or a number of bytes.
    scheme
        The scheme, with parameters after a colon: "ring", "rat:trees=8".
    pipeline
        The number of parts that every chunk is cut into. None: the program's default.
    collective
        What is planned; schemes() says which scheme makes plans for which collective.
    root
        The rank of the root of a reduce, broadcast, gather or scatter. None: the program's default.
    element_bytes
        The size of one element, 1 to 16. None: the program's default.
    alpha
        What a message on an idle connection costs, as "20us". None: the program's default.
    follow_up
        What one more message on a busy connection costs. None: the program's default.
    timeout
        The most seconds that it may take. None: no limit.

    Returns
    -------
    Plan
        The plan, which was proved, and its predicted cost.

    Raises
    ------
    ProgramError
        The program refused the network, the size, the scheme or another argument, and says why.
    TimeoutError
        It took longer than `timeout`.
    """
    words = ["plan", "show", *plan_subject(topology, size, collective, root, element_bytes, alpha, follow_up), "--scheme",
             scheme]
    if pipeline is not None:
        words += ["--pipeline", str(pipeline)]
    return _plan_of(answer(*words, timeout=timeout), topology, size, words)


def best(topology: Topology | str, size: str | int, *, collective: str = "allreduce", root: int | None = None,
         element_bytes: int | None = None, alpha: str | None = None, follow_up: str | None = None,
         timeout: float | None = None) -> Plan:
    """Finds the plan that is predicted to be the fastest.

    Parameters
    ----------
    topology
        The network: a Topology, a shorthand, the path of a file, or the name of one of Thalweg's own.
    size
        The size of the tensor: "97MB", "64KiB", or a number of bytes.
    collective
        What is planned; schemes() says which scheme makes plans for which collective.
    root
        The rank of the root of a reduce, broadcast, gather or scatter. None: the program's default.
    element_bytes
        The size of one element, 1 to 16. None: the program's default.
    alpha
        What a message on an idle connection costs, as "20us". None: the program's default.
    follow_up
        What one more message on a busy connection costs. None: the program's default.
    timeout
        The most seconds that it may take. None: no limit.

    Returns
    -------
    Plan
        The plan, with the reason for it and the other candidates.

    Raises
    ------
    ProgramError
        The program refused the network, the size, the scheme or another argument, and says why.
    TimeoutError
        It took longer than `timeout`.
    """
    words = ["plan", "best", *plan_subject(topology, size, collective, root, element_bytes, alpha, follow_up)]
    return _plan_of(answer(*words, timeout=timeout), topology, size, words)


def compare(topology: Topology | str, size: str | int, *, schemes: Iterable[str] = (), simulate: bool = False,
            collective: str = "allreduce", root: int | None = None, element_bytes: int | None = None,
            alpha: str | None = None, follow_up: str | None = None, timeout: float | None = None) -> Rows:
    """Predicts what every scheme costs.

    Parameters
    ----------
    topology
        The network: a Topology, a shorthand, the path of a file, or the name of one of Thalweg's own.
    size
        The size of the tensor: "97MB", "64KiB", or a number of bytes.
    schemes
        Only these, each with its parameters: ["ring", "rat:trees=8"]. Empty: all.
    simulate
        Also runs every scheme packet by packet; rows then have `simulated_ms`.
    collective
        What is planned; schemes() says which scheme makes plans for which collective.
    root
        The rank of the root of a reduce, broadcast, gather or scatter. None: the program's default.
    element_bytes
        The size of one element, 1 to 16. None: the program's default.
    alpha
        What a message on an idle connection costs, as "20us". None: the program's default.
    follow_up
        What one more message on a busy connection costs. None: the program's default.
    timeout
        The most seconds that it may take. None: no limit.

    Returns
    -------
    Rows
        One row for every scheme. `.frame()` makes it a pandas DataFrame.

    Raises
    ------
    ProgramError
        The program refused the network, the size, the scheme or another argument, and says why.
    TimeoutError
        It took longer than `timeout`.
    """
    words = ["plan", "compare", *plan_subject(topology, size, collective, root, element_bytes, alpha, follow_up)]
    for scheme in [schemes] if isinstance(schemes, str) else schemes:
        words += ["--scheme", scheme]
    if simulate:
        words.append("--simulate")
    return Rows(answer(*words, timeout=timeout))


def verify(transfers: Plan | Mapping[str, Any] | str | Path, topology: Topology | str | None = None, *,
           timeout: float | None = None) -> Verdict:
    """Proves that a plan is right, or says what is wrong with it.

    Parameters
    ----------
    transfers
        A Plan, the dict of one (Plan.transfers), or the path of a file.
    topology
        Also counts the plan's cost on this network. None: only the proof.
    timeout
        The most seconds that it may take. None: no limit.

    Returns
    -------
    Verdict
        True in conditions if the plan is right.

    Raises
    ------
    ProgramError
        The program cannot read the plan or the network. A plan that is wrong raises nothing.
    TimeoutError
        It took longer than `timeout`.
    """
    if isinstance(transfers, (str, Path)):
        return _verdict(Path(transfers), topology, timeout)
    content = transfers.transfers if isinstance(transfers, Plan) else transfers
    with tempfile.TemporaryDirectory(prefix="thalweg-") as folder:
        file = Path(folder) / "plan.json"
        file.write_text(json.dumps(dict(content)))
        return _verdict(file, topology, timeout)


def schemes() -> list[Scheme]:
    """Lists the schemes that the planner knows.

    Returns
    -------
    list of Scheme
        Each with its collectives and parameters.

    Raises
    ------
    ProgramError
        There is no program (docs/python.md says where it is looked for).
    """
    return [Scheme(each["scheme"], each["summary"], tuple(each["collectives"]),
                   tuple(Parameter(p["name"], p["default"], p["meaning"]) for p in each.get("parameters", ())))
            for each in answer("plan", "schemes")]


def _plan_of(numbers: dict[str, Any], topology: Topology | str, size: str | int, words: list[str]) -> Plan:
    return Plan(scheme=numbers["scheme"], topology=Topology(str(topology)), size=size_text(size),
                predicted_ms=numbers["predicted_ms"], fluid_ms=numbers["fluid_ms"], limit_ms=numbers["limit_ms"],
                limiting_link=numbers["limiting_link"], steps=numbers["steps"], numbers=numbers, command=tuple(words),
                reason=numbers.get("reason", ""), candidates=Rows(numbers.get("candidates", ())))


def _verdict(file: Path, topology: Topology | str | None, timeout: float | None) -> Verdict:
    network = [] if topology is None else ["--topology", str(topology)]
    numbers = answer("plan", "verify", file, *network, timeout=timeout, also=(1,))
    return Verdict(numbers["verified"], numbers.get("error", ""), numbers)
