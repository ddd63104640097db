"""A network of this machine's own: hosts in namespaces, and real programs on them.

    import thalweg.testbed as t
    with t.Testbed("single-switch:hosts=4,host=50M,delay=1ms") as bed:
        bed.set("host0-switch0", loss="1%")
        job = bed.run(["python", "train.py"], hosts="0-3", timeout=60)
        print(job.code, job.output)
        print(bed.links())            # Jupyter shows a table; .frame(): a pandas DataFrame

Every frame between the hosts goes through the simulator's switches (docs/testbed.md). The testbed is
that of the `thalweg` program. It needs root, or a machine that allows user namespaces. It ends with
this process, however this process ends.
"""
import ctypes
import itertools
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thalweg import _program
from thalweg._program import ProgramError, Rows

__all__ = ["Host", "Job", "ProgramError", "Rows", "Statistics", "Testbed", "TestbedError", "testbeds"]

UP_LIMIT, DOWN_LIMIT = 120, 60  # seconds
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
_numbers = itertools.count()


class TestbedError(ProgramError):
    """What `thalweg testbed` refused, or why a testbed ended. The text is the program's own."""

    __test__ = False  # tells pytest that this is no test, whatever its name


@dataclass(frozen=True)
class Host:
    """A host: its number, its name in the topology and its IP address."""

    rank: int
    name: str
    address: str


@dataclass(frozen=True)
class Job:
    """A job that is over: its exit code, and what its ranks wrote to standard output and standard error."""

    code: int
    output: str


@dataclass(frozen=True)
class Statistics:
    """What a testbed has counted since it is up.

    Attributes
    ----------
    frames: counts of frames by what became of them ("sent", "delivered", "dropped_fault", …).
    numbers: all that the program says, by name (docs/testbed.md).
    """

    frames: Mapping[str, int]
    numbers: Mapping[str, Any] = field(repr=False)

    @property
    def lost(self) -> int:
        """Frames that were dropped: at random, by a link that is down, by a full or a selective queue."""
        return sum(self.frames[name] for name in ("dropped_full", "dropped_fault", "dropped_selective"))

    def since(self, before: "Statistics") -> "Statistics":
        """Returns what was counted after `before`. Only frames are subtracted."""
        return Statistics({name: count - before.frames[name] for name, count in self.frames.items()}, self.numbers)


class Testbed:
    """A testbed, up within a `with` statement, or between up() and down().

    Parameters
    ----------
    topology: a shorthand, the path of a file, or the name of one of Thalweg's own.
    name: under which `thalweg testbed` knows it. Default: one that no other has.
    scale: factor of all rates; delays are divided by it.
    mtu: of the hosts' devices.
    settings: of the switches, as in a scenario's `network` ({"mark_above": "30KB"}).
    aggregate: switches that sum gradients of ATP, or "all".
    program: the path of the program `thalweg`, if it is not the one that this package finds.

    Call it from a thread that lives as long as the testbed is to: the kernel ends its processes with
    the thread that started them.
    """

    __test__ = False

    def __init__(self, topology: object, *, name: str | None = None, scale: float | None = None, mtu: int | None = None,
                 settings: Mapping[str, object] | None = None, aggregate: str | Iterable[str] = (),
                 program: str | Path | None = None):
        self.name = name or f"py{os.getpid()}-{next(_numbers)}"
        self.program = str(program or _program.program())
        self.hosts: list[Host] = []
        self.folder = ""  # of its control socket
        self.said = ""    # what the program printed when it was up
        self._process: subprocess.Popen[str] | None = None
        self._others: list[subprocess.Popen[str]] = []  # programs that start() started on its hosts
        self._words = ["testbed", "up", str(topology), "--name", self.name, "--foreground"]
        if scale is not None:
            self._words += ["--scale", str(scale)]
        if mtu is not None:
            self._words += ["--mtu", str(mtu)]
        for key, value in (settings or {}).items():
            self._words += ["--set", f"{key}={value}"]
        for switch in [aggregate] if isinstance(aggregate, str) else aggregate:
            self._words += ["--aggregate", switch]

    def __enter__(self) -> "Testbed":
        return self.up()

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self) -> "Testbed":
        """Makes the hosts and the network between them. Returns this testbed."""
        if self._process is not None:
            raise TestbedError(f"the testbed {self.name} is up already")
        self._process = start([self.program, *self._words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        try:
            self.said = self._hear()
            numbers = self.stats().numbers
        except BaseException:
            process, self._process = self._process, None
            end(process)
            if process.returncode != 0:  # a killed testbed leaves its namespaces
                self.command("down", check=False)
            raise
        self.folder = numbers["state"]
        self.hosts = [Host(host["rank"], host["name"], host["address"]) for host in numbers["hosts"]]
        return self

    def down(self) -> None:
        """Ends the network and all programs on its hosts. Does nothing if the testbed is not up."""
        process, self._process = self._process, None
        if process is None:
            return
        for other in self._others:
            end(other)
        self._others.clear()
        end(process)
        if process.returncode != 0:
            self.command("down", check=False)
            raise TestbedError(f"the testbed ended with {process.returncode}: {process.stderr.read().strip()}",
                               process.returncode)

    def stats(self) -> Statistics:
        """Returns what the testbed has counted."""
        numbers = json.loads(self.command("stats", "--json"))
        return Statistics(numbers["frames"], numbers)

    def links(self) -> Rows:
        """Returns a row for each direction of each link: rate, bytes carried, bytes queued, frames dropped."""
        return Rows({"link": link["name"], "from": arc["from"], "rate_mbps": link["rate_bps"] / 1e6, "bytes": arc["bytes"],
                     "queued": arc["queued"], "drops": arc["drops"]}
                    for link in self.stats().numbers["links"] for arc in link["arcs"])

    def set(self, link: str, **changes: object) -> None:
        """Changes a link ("host0-switch0", or "all"): rate, delay, loss, burst, or up (True or False)."""
        self.command("set", "link", link, *(f"{key}={_word(value)}" for key, value in changes.items()))

    def restart(self, switch: str) -> None:
        """Lets a switch lose all that waits in it."""
        self.command("restart", switch)

    def pause(self, host: str) -> None:
        """Lets a host send nothing until resume()."""
        self.command("pause", host)

    def resume(self, host: str) -> None:
        self.command("resume", host)

    def stall(self, every: str, length: str, seed: int = 1) -> None:
        """Lets a random host send nothing for `length`, at random moments with a mean of `every` between them."""
        self.command("stall", "--every", every, "--for", length, "--seed", seed)

    def calm(self) -> None:
        """Ends stall()."""
        self.command("stall", "--off")

    def start(self, host: int | str, words: Sequence[object], **options: Any) -> "subprocess.Popen[str]":
        """Starts a program on a host. It ends with the testbed at the latest.

        options: those of subprocess.Popen.
        """
        process = start([self.program, "testbed", "exec", "--name", self.name, str(host), "--", *words], **options)
        self._others.append(process)
        return process

    def execute(self, host: int | str, words: Sequence[object], *, timeout: float = 60) -> Job:
        """Runs a program on a host, and returns what it printed. One that takes longer is ended: TimeoutError."""
        return _finished(self.start(host, words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True), timeout, f"the program on host {host}")

    def run(self, words: Sequence[object], *, hosts: str | None = None, timeout: float = 600,
            environment: Mapping[str, object] | None = None) -> Job:
        """Runs a job with one rank on each of the hosts ("0-3,6"; default: all), and returns what they printed.

        A job that takes longer than `timeout` seconds is ended, and has the exit code 124.
        """
        process = self.start_job(words, hosts=hosts, timeout=timeout, environment=environment)
        return _finished(process, timeout + DOWN_LIMIT, "the job")

    def start_job(self, words: Sequence[object], *, hosts: str | None = None, timeout: float = 600, prefix: bool = True,
                  environment: Mapping[str, object] | None = None, **options: Any) -> "subprocess.Popen[str]":
        """Starts a job as run() does, and returns its process. Its output is a pipe.

        prefix: whether lines of output begin with "[rank]".
        options: those of subprocess.Popen.
        """
        command: list[object] = [self.program, "testbed", "run", "--name", self.name, "--timeout", f"{timeout}s"]
        command += [] if prefix else ["--no-prefix"]
        command += ["--hosts", hosts] if hosts else []
        for name, value in (environment or {}).items():
            command += ["-x", f"{name}={value}"]
        return start([*command, "--", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                      stderr=subprocess.STDOUT, text=True, **options)

    def command(self, word: str, *words: object, check: bool = True) -> str:
        """Runs `thalweg testbed WORD` for this testbed, and returns what it prints."""
        done = subprocess.run([self.program, "testbed", word, "--name", self.name, *map(str, words)], text=True,
                              capture_output=True, timeout=DOWN_LIMIT, check=False)
        if check and done.returncode != 0:
            raise TestbedError(done.stderr.strip().removeprefix("thalweg: "), done.returncode)
        return done.stdout

    def _hear(self) -> str:
        """Returns what the testbed prints when it is up: a line about itself, one of titles, one for each host."""
        process = self._process
        alarm = threading.Timer(UP_LIMIT, process.kill)
        alarm.start()
        try:
            lines = [process.stdout.readline()]
            words = lines[0].split()
            hosts = int(words[2]) if len(words) > 2 and words[0] == "testbed" else -1
            lines += [process.stdout.readline() for _ in range(hosts + 1)]
        finally:
            alarm.cancel()
        if not lines[-1]:
            said = process.stderr.read().strip().removeprefix("thalweg: ")
            raise TestbedError(said or "the testbed did not come up")
        return "".join(lines)

    def _repr_html_(self) -> str:
        return self.links()._repr_html_() if self._process is not None else f"testbed {self.name}, not up"


def testbeds() -> Rows:
    """Returns a row for each testbed of this user on this machine, with its name and its state."""
    return Rows(_program.answer("testbed", "list"))


def _word(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def start(words: Iterable[object], **options: Any) -> "subprocess.Popen[str]":
    """Starts a process that gets SIGTERM when the thread that calls this ends."""
    return subprocess.Popen([str(word) for word in words], preexec_fn=_end_with_parent, **options)


def end(process: "subprocess.Popen[str]") -> None:
    """Ends a process, by SIGKILL if it ignores SIGTERM, and waits for it."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(DOWN_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _finished(process: "subprocess.Popen[str]", timeout: float, what: str) -> Job:
    try:
        output = process.communicate(timeout=timeout)[0]
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{what}: not done after {timeout} s") from None
    finally:
        end(process)
    return Job(process.returncode, output)
