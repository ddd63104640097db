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
import itertools
import json
import os
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from thalweg import _program
from thalweg._processes import DOWN_LIMIT, end, start
from thalweg._program import ProgramError, Rows
from thalweg._testbed_parts import Faults, Host, Job, Statistics, TestbedError

__all__ = ["Host", "Job", "ProgramError", "Rows", "Statistics", "Testbed", "TestbedError", "testbeds"]

UP_LIMIT = 120  # seconds
_numbers = itertools.count()


class Testbed(Faults):
    """A testbed, up within a `with` statement, or between up() and down().

    Call it from a thread that lives as long as the testbed is to: the kernel ends its processes with
    the thread that started them. What `thalweg testbed` refuses is a TestbedError in every call.

    Parameters
    ----------
    topology
        A shorthand, the path of a file, or the name of one of Thalweg's own.
    name
        The name under which `thalweg testbed` knows it. None: one that no other has.
    scale
        A factor of all rates; delays are divided by it. None: 1.
    mtu
        The MTU of the hosts' devices. None: the program's default.
    settings
        Settings of the switches, as in a scenario's `network` ({"mark_above": "30KB"}).
    aggregate
        The switches that sum gradients of ATP, or "all".
    program
        The path of the program `thalweg`. None: the one that this package finds.

    Raises
    ------
    ProgramError
        There is no program.
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
        """Makes the hosts and the network between them.

        Returns
        -------
        Testbed
            This testbed.

        Raises
        ------
        TestbedError
            It is up already, or the program refused it or ended.
        """
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
        """Ends the network and all programs on its hosts. Does nothing if the testbed is not up.

        Raises
        ------
        TestbedError
            It had ended by itself, and why.
        """
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
        """Asks what the testbed has counted.

        Returns
        -------
        Statistics
            The counts since it is up.

        Raises
        ------
        TestbedError
            The testbed is not up.
        """
        numbers = json.loads(self.command("stats", "--json"))
        return Statistics(numbers["frames"], numbers)

    def links(self) -> Rows:
        """Asks what each link does.

        Returns
        -------
        Rows
            A row for each direction of each link: rate, bytes carried, bytes queued, frames dropped.

        Raises
        ------
        TestbedError
            The testbed is not up.
        """
        return Rows({"link": link["name"], "from": arc["from"], "rate_mbps": link["rate_bps"] / 1e6, "bytes": arc["bytes"],
                     "queued": arc["queued"], "drops": arc["drops"]}
                    for link in self.stats().numbers["links"] for arc in link["arcs"])

    def start(self, host: int | str, words: Sequence[object], **options: Any) -> "subprocess.Popen[str]":
        """Starts a program on a host. It ends with the testbed at the latest.

        Parameters
        ----------
        host
            Its number or its name.
        words
            The program and its arguments.
        **options
            Options of subprocess.Popen.

        Returns
        -------
        subprocess.Popen
            The process. If there is no such host, it ends with code 2 and says so.
        """
        process = start([self.program, "testbed", "exec", "--name", self.name, str(host), "--", *words], **options)
        self._others.append(process)
        return process

    def execute(self, host: int | str, words: Sequence[object], *, timeout: float = 60) -> Job:
        """Runs a program on a host until it is over.

        Parameters
        ----------
        host
            Its number or its name.
        words
            The program and its arguments.
        timeout
            The most seconds that it may take.

        Returns
        -------
        Job
            Its exit code and what it printed.

        Raises
        ------
        TimeoutError
            It took longer, and was ended.
        """
        return _finished(self.start(host, words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True), timeout, f"the program on host {host}")

    def run(self, words: Sequence[object], *, hosts: str | None = None, timeout: float = 600,
            environment: Mapping[str, object] | None = None) -> Job:
        """Runs a job with one rank on each of some hosts until it is over.

        Parameters
        ----------
        words
            The program and its arguments.
        hosts
            The numbers of the hosts, as "0-3,6". None: all.
        timeout
            The most seconds that it may take. A job that takes longer is ended, and has the exit code
            124.
        environment
            Further variables of the ranks' environment.

        Returns
        -------
        Job
            Its exit code and what all ranks printed.

        Raises
        ------
        TimeoutError
            The launcher itself did not end, a minute after the job's limit.
        """
        process = self.start_job(words, hosts=hosts, timeout=timeout, environment=environment)
        return _finished(process, timeout + DOWN_LIMIT, "the job")

    def start_job(self, words: Sequence[object], *, hosts: str | None = None, timeout: float = 600, prefix: bool = True,
                  environment: Mapping[str, object] | None = None, **options: Any) -> "subprocess.Popen[str]":
        """Starts a job as run() does, and does not wait for it.

        Parameters
        ----------
        words, hosts, timeout, environment
            As for run().
        prefix
            Whether lines of output begin with "[rank]".
        **options
            Options of subprocess.Popen.

        Returns
        -------
        subprocess.Popen
            The process. Its output is a pipe.
        """
        command: list[object] = [self.program, "testbed", "run", "--name", self.name, "--timeout", f"{timeout}s"]
        command += [] if prefix else ["--no-prefix"]
        command += ["--hosts", hosts] if hosts else []
        for name, value in (environment or {}).items():
            command += ["-x", f"{name}={value}"]
        return start([*command, "--", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                      stderr=subprocess.STDOUT, text=True, **options)

    def command(self, word: str, *words: object, check: bool = True) -> str:
        """Runs `thalweg testbed WORD` for this testbed.

        Parameters
        ----------
        word, *words
            The subcommand and its arguments.
        check
            Whether a failure is an exception.

        Returns
        -------
        str
            What it printed.

        Raises
        ------
        TestbedError
            It failed.
        """
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
    """Lists the testbeds of this user on this machine.

    Returns
    -------
    Rows
        A row for each, with its name and its state.

    Raises
    ------
    ProgramError
        There is no program.
    """
    return Rows(_program.answer("testbed", "list"))


def _finished(process: "subprocess.Popen[str]", timeout: float, what: str) -> Job:
    try:
        output = process.communicate(timeout=timeout)[0]
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{what}: not done after {timeout} s") from None
    finally:
        end(process)
    return Job(process.returncode, output)
