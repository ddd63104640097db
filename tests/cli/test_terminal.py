"""Colour and progress: on a terminal, without colour, on a dumb terminal, and in a pipe."""
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/thalweg"
LONG = ("bench", "switch", "--workers", "2", "--seconds", "0.6")  # four measurements
SHORT = (*LONG[:-1], "0.3")
ESCAPE = "\x1b["
sys.path.insert(0, str(ROOT / "python"))


def on_terminal(words, columns=80, **variables):
    """What a terminal of so many columns gets from the program, and the program's exit code."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    process = subprocess.Popen([PROGRAM, *words], cwd=ROOT, stdin=its, stdout=its, stderr=its,
                               env={**environment, "TERM": "xterm", **variables})
    os.close(its)
    got = b""
    try:
        while piece := os.read(ours, 65536):
            got += piece
    except OSError:  # EIO: the program has closed its end
        pass
    os.close(ours)
    return got.decode().replace("\r\n", "\n"), process.wait(timeout=60)


def test_terminal__has_a_bar_with_the_time_left_that_is_erased():
    text, code = on_terminal(LONG)
    assert code == 0, text
    bars = [line for line in text.split("\r") if "━" in line]
    assert bars and all(line.startswith(f"{ESCAPE}K") for line in bars), text
    assert any(re.search(r"50 %|75 %", line) for line in bars), text
    assert any(re.search(r"\d:\d\d left  ", line) for line in bars), text
    table = text[text.rindex(f"\r{ESCAPE}K") + 4:]  # nothing of the bar is left before the table
    assert table.startswith(f"{ESCAPE}1mof one core") and "━" not in table, table


def test_no_color__leaves_the_bar_and_takes_the_colour_also_on_a_narrow_terminal():
    text, code = on_terminal(SHORT, columns=30, NO_COLOR="1")
    assert code == 0 and "━" in text, text
    assert set(re.findall(r"\x1b\[[0-9;]*[A-Za-z]", text)) == {f"{ESCAPE}K"}, text
    drawn = [line.removeprefix(f"{ESCAPE}K") for line in text.split("\r") if "━" in line]
    assert all(len(line) < 30 for line in drawn), drawn


def test_dumb_terminal_and_pipe__get_no_escape(thalweg):
    text, code = on_terminal(SHORT, TERM="dumb")
    assert code == 0 and ESCAPE not in text and "━" not in text, text
    done = thalweg(*SHORT)
    assert done.code == 0 and ESCAPE not in done.out + done.err and "━" not in done.err, done.err


@pytest.mark.parametrize("words,painted", [
    (("--help",), f"{ESCAPE}1mExplore networks:{ESCAPE}0m"),
    (("plan", "show", "--help"), f"{ESCAPE}1mExamples:{ESCAPE}0m"),
    (("paln",), f"{ESCAPE}31mthalweg:{ESCAPE}0m 'paln'"),
    (("plan", "compare", "--topology", "two-racks", "--size", "1MB"), f"{ESCAPE}1mscheme"),
])
def test_headings_and_errors__have_colour_on_a_terminal_alone(thalweg, words, painted):
    text, _ = on_terminal(words)
    assert painted in text, text
    plain, _ = on_terminal(words, NO_COLOR="1")
    assert ESCAPE not in plain, plain
    done = thalweg(*words)
    assert ESCAPE not in done.out + done.err


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_in_python__looks_the_same(monkeypatch):
    from thalweg.lab.progress import Progress, clock_text
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    now = [0.0]
    stream = Terminal()
    progress = Progress(stream, lambda: now[0])
    progress.show("too early", 0.1)
    assert stream.getvalue() == ""
    now[0] = 10
    progress.show("4 of 8 points", 0.5)
    assert stream.getvalue() == f"\r{ESCAPE}K━━━━━━━━━━━━────────────  50 %  0:10 left  4 of 8 points"
    progress.say("a line")
    assert stream.getvalue().endswith(f"\r{ESCAPE}Ka line\n")
    pipe = io.StringIO()
    plain = Progress(pipe, lambda: now[0])
    for now[0] in (11, 14, 15, 20):
        plain.show("x", (now[0] - 10) / 20)
    assert pipe.getvalue() == "x: 20 %, 0:16 left\nx: 50 %, 0:10 left\n"
    assert [clock_text(one) for one in (0, 6.2, 754, 3723)] == ["0:00", "0:07", "12:34", "1:02:03"]
