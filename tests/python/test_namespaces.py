"""Hosts of benchmarks and examples: nothing is left of them, however they end."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PACKAGES = str(Path(__file__).resolve().parents[2] / "python")
sys.path.insert(0, PACKAGES)

from thalweg.lab.namespaces import missing  # noqa: E402

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

PROGRAM = """
import subprocess, sys, time
from thalweg.lab.namespaces import hosts, own_world
own_world()
with hosts(2, 1) as ends:
    asleep = subprocess.Popen(["ip", "netns", "exec", ends[0], "sleep", sys.argv[1]])
    assert subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.count(ends[0]) == 1
    print("there", flush=True)
    time.sleep(300)
"""
PATIENCE_SECONDS = 60


def processes_with(word):
    """Numbers of processes that have the word on their command lines."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                if word.encode() in file.read().split(b"\0"):
                    found.append(int(entry))
        except (OSError, ValueError):
            pass
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_own_world__killed__leaves_neither_namespaces_nor_processes(how):
    mark = f"300.0{os.getpid()}"  # seconds, and a word of its own
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, mark], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": PACKAGES})
    assert program.stdout.readline() == "there\n"
    assert processes_with(mark)
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert "tw-bench-1-" not in names  # of process 1 in a world of its own
    program.send_signal(how)
    program.wait()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while processes_with(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not processes_with(mark)
