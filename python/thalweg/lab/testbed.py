"""What experiments do with a testbed (thalweg.testbed): ask it by its control socket, watch its counters, and leave
nothing behind.
"""
import json
import math
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from thalweg.testbed import Testbed, TestbedError, end, start  # noqa: F401  for those who use a testbed

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "build/release/thalweg"
ANSWER_LIMIT = 60  # seconds


def end_on_signals():
    """Makes SIGTERM and Ctrl-C raise an exception, so that every `with` block is left."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


class Control:
    """A connection to the control socket in a testbed's folder. Only one thread may use it."""

    def __init__(self, folder):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_LIMIT)
        self._socket.connect(str(Path(folder) / "control"))
        self._lines = self._socket.makefile("rw")

    def ask(self, do, **fields):
        """Sends a request, and returns the answer."""
        print(json.dumps({"do": do, **fields}), file=self._lines, flush=True)
        answer = json.loads(self._lines.readline()
                            or '{"error": "the testbed ended before it answered"}')
        if "error" in answer:
            raise TestbedError(answer["error"])
        return answer

    def close(self):
        self._lines.close()
        self._socket.close()


class Watch:
    """Samples a testbed's counters until stop(), as a list of (seconds, statistics)."""

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
            except (TestbedError, OSError, ValueError):  # the testbed has been taken down
                return
            self.samples.append((time.monotonic() - self._started,
                                 {key: now[key] for key in ("links", "frames")}))

    def stop(self):
        self._over.set()
        self._thread.join()
        self._control.close()
        return self.samples


def lost(before, after):
    """Returns how many frames were sent and how many were lost between two statistics."""
    moved = {key: after["frames"][key] - before["frames"][key] for key in after["frames"]}
    return moved["sent"], (moved["dropped_full"] + moved["dropped_fault"]
                           + moved["dropped_selective"])


def percentile(values, part):
    """Returns the smallest of the values that at least this part of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * part) - 1)]
