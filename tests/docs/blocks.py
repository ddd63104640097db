"""The fenced blocks of a Markdown page, and how each is run as a reader would run it.

    sh      by bash, in a folder that looks like the repository; what it writes stays in that folder
    python  as a program of two ranks (thalweg run)
    diff    what the change leaves, as a program of one rank
    cpp     compiled against include/, without code

A block below a line `<!-- not run: REASON -->` is left out.
"""
import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
THALWEG = "build/release/thalweg"
LIMIT_S = 300  # for a busy machine; all blocks of README.md together take well under a minute
FENCE = re.compile(r"^(?:<!-- not run: (?P<reason>[^\n]*?) -->\n)?```(?P<language>[^\n]*)\n(?P<text>.*?)^```$",
                   re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    text: str
    reason: str | None  # why it is not run


def blocks_of(page: str) -> list[Block]:
    return [Block(page.count("\n", 0, found.start("language")) + 1, found["language"].strip(), found["text"], found["reason"])
            for found in FENCE.finditer(page)]


def after(diff: str) -> str:
    """What a change leaves: its lines without those that it takes away."""
    return "".join(line[1:] or "\n" for line in diff.splitlines(True) if not line.startswith("-"))


def checkout(folder: Path) -> Path:
    """A folder whose entries are the repository's, so that commands find everything and change nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in ROOT.iterdir():
        (folder / entry.name).symlink_to(entry)
    return folder


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def environment() -> dict[str, str]:
    """What a reader has after `make build`, `source .venv/bin/activate` and `pip install .`."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", "PET_MASTER_PORT": str(free_port())}


def problem_of(block: Block, folder: Path) -> str | None:
    """Runs a block. Returns what went wrong, or None."""
    if block.reason is not None:
        return None if block.reason.strip() else "no reason is given why it is not run"
    where = checkout(folder)
    program = where / "block.py"
    if block.language == "sh":
        command = ["bash", "-euo", "pipefail", "-c", block.text]
    elif block.language == "python":
        program.write_text(block.text)
        command = [THALWEG, "run", "-n", "2", "--", sys.executable, str(program)]
    elif block.language == "diff":
        program.write_text(after(block.text))
        command = [THALWEG, "run", "-n", "1", "--", sys.executable, str(program)]
    elif block.language == "cpp":
        (where / "block.cc").write_text(block.text)
        command = [shutil.which("c++") or "g++", "-std=c++20", "-Wall", "-Werror", "-fsyntax-only", "-Iinclude", "block.cc"]
    else:
        return f"nobody knows how to run '{block.language}'"
    try:
        run = subprocess.run(command, cwd=where, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"it does not end within {LIMIT_S} s"
    return None if run.returncode == 0 else f"code {run.returncode}: {run.stdout[-2000:]}"
