"""Processes that end with the thread that started them, for thalweg.testbed."""
import ctypes
import signal
import subprocess
from collections.abc import Iterable
from typing import Any

DOWN_LIMIT = 60  # seconds
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


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
