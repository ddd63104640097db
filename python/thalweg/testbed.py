"""A testbed (`thalweg testbed`, docs/testbed.md) for programs: it is up as long as a `with` block lasts.

    with Testbed("topologies/demo.yaml", name="mine") as bed:
        bed.set("leaf0-spine0", "loss=1%")
        process = bed.run([sys.executable, "train.py"], limit=60)

Its processes end with this one, however that ends. Needs root, or a machine that allows user namespaces.
"""
import ctypes
import json
import math
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/thalweg"
UP_LIMIT, DOWN_LIMIT, ANSWER_LIMIT = 120, 60, 60  # seconds
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class TestbedError(RuntimeError):
    """What the program said."""

    __test__ = False  # for pytest, by whose rules the name is one of a test


def end_on_signals():
    """SIGTERM and Ctrl-C end this program as an exception does, so that every `with` block is left."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def _end_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def start(words, **options):
    """A process that is told to end when this one has."""
    return subprocess.Popen([str(word) for word in words], preexec_fn=_end_with_parent, **options)


def end(process):
    """Ends a process, and waits for it."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(DOWN_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Control:
    """The control socket of a testbed, in its folder. For one thread."""

    def __init__(self, folder):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_LIMIT)
        self._socket.connect(str(Path(folder) / "control"))
        self._lines = self._socket.makefile("rw")

    def ask(self, do, **fields):
        print(json.dumps({"do": do, **fields}), file=self._lines, flush=True)
        answer = json.loads(self._lines.readline() or '{"error": "the testbed ended before it answered"}')
        if "error" in answer:
            raise TestbedError(answer["error"])
        return answer

    def close(self):
        self._lines.close()
        self._socket.close()


class Testbed:
    """`options`: of `thalweg testbed up`."""

    __test__ = False

    def __init__(self, topology, *, name, options=(), program=PROGRAM):
        self.name, self.program = name, program
        self._words = [program, "testbed", "up", topology, "--name", name, "--foreground", *options]
        self._others = []  # programs on its hosts

    def __enter__(self):
        self._process = start(self._words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            self.said = self._hear()
            self.folder = self.stats()["state"]
        except BaseException:
            end(self._process)
            if self._process.returncode != 0:  # killed, it leaves namespaces
                self.command("down", check=False)
            raise
        return self

    def _hear(self):
        """What it says when it is up: a line about itself, one of titles, and one a host."""
        alarm = threading.Timer(UP_LIMIT, self._process.kill)
        alarm.start()
        try:
            lines = [self._process.stdout.readline()]
            words = lines[0].split()
            hosts = int(words[2]) if len(words) > 2 and words[0] == "testbed" else -1
            lines += [self._process.stdout.readline() for _ in range(hosts + 1)]
        finally:
            alarm.cancel()
        if not lines[-1]:
            raise TestbedError(self._process.stderr.read().strip() or "the testbed did not come up")
        return "".join(lines)

    def __exit__(self, *_):
        for process in self._others:
            end(process)
        end(self._process)
        if self._process.returncode != 0:
            self.command("down", check=False)
            raise TestbedError(f"the testbed ended with {self._process.returncode}: {self._process.stderr.read().strip()}")

    def command(self, word, *words, check=True):
        done = subprocess.run([str(self.program), "testbed", word, "--name", self.name, *map(str, words)], text=True,
                              capture_output=True, timeout=DOWN_LIMIT)
        if check and done.returncode != 0:
            raise TestbedError(done.stderr.strip())
        return done.stdout

    def stats(self):
        return json.loads(self.command("stats", "--json"))

    def set(self, link, *changes):
        self.command("set", "link", link, *changes)

    def execute(self, host, words, **options):
        """A program on a host, until it ends or the testbed is taken down."""
        process = start([self.program, "testbed", "exec", "--name", self.name, host, "--", *words], **options)
        self._others.append(process)
        return process

    def run(self, words, *, limit, hosts=None, prefix=False, **options):
        """A job, a rank a host, with its output in a pipe; killed after so many seconds."""
        some = ["--hosts", hosts] if hosts else []
        return start([self.program, "testbed", "run", "--name", self.name, *some, "--timeout", f"{limit}s",
                      *([] if prefix else ["--no-prefix"]), "--", *words], stdout=subprocess.PIPE,
                     stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, **options)


class Watch:
    """Looks at a testbed's counters until it is told to stop: `samples` are (seconds, statistics)."""

    BETWEEN_LOOKS = 0.05  # seconds

    def __init__(self, folder):
        self.samples, self._over = [], threading.Event()
        self._control = Control(folder)
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._over.wait(self.BETWEEN_LOOKS):
            try:
                now = self._control.ask("stats")
            except (TestbedError, OSError, ValueError):  # it has been taken down
                return
            self.samples.append((time.monotonic() - self._started, {key: now[key] for key in ("links", "frames")}))

    def stop(self):
        self._over.set()
        self._thread.join()
        self._control.close()
        return self.samples


def lost(before, after):
    """Frames sent and frames lost between two statistics."""
    moved = {key: after["frames"][key] - before["frames"][key] for key in after["frames"]}
    return moved["sent"], moved["dropped_full"] + moved["dropped_fault"] + moved["dropped_selective"]


def percentile(values, part):
    """The value that so large a part of all does not exceed: the nearest that is there."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * part) - 1)]
