"""The archive of the sources. `make test-wheel` also builds from it."""
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command, cwd):
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_sdist__holds_what_git_knows(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    archive = Path(run(ROOT / "tools/sdist", cwd=ROOT).strip())
    with tarfile.open(ROOT / archive) as files:
        names = {member.name.removeprefix("thalweg-0.1.0/") for member in files if not member.isdir()}
        files.extractall(tmp_path)
    known = set(filter(None, run("git", "-c", "safe.directory=*", "ls-files", "-z", cwd=ROOT).split("\0")))
    assert names == known | {"PKG-INFO"}
    assert run(sys.executable, "setup.py", "--version", cwd=tmp_path / "thalweg-0.1.0").split()[-1] == "0.1.0"
