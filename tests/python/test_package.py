"""What pip runs to build the package, with a CMake that only notes how it is called."""
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CMAKE = """#!/bin/sh
echo "$*" >> "$NOTES"
for word in "$@"; do
  case "$word" in
    -DTHALWEG_PYTHON_OUTPUT=*) echo "${word#*=}" > "$NOTES.output" ;;
    --build) mkdir -p "$(cat "$NOTES.output")" && cd "$(cat "$NOTES.output")" && touch "_C$SUFFIX" "_one$SUFFIX" "_other$SUFFIX" ;;
  esac
done
exit "${STATUS:-0}"
"""


@pytest.fixture
def checkout(tmp_path):
    """What the build reads of a checkout, a torch to build for, and the environment of a build."""
    for name in ("setup.py", "pyproject.toml", "README.md", "python/packaging/build_backend.py",
                 "python/thalweg/__init__.py", "python/thalweg/bench/ddp.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("torch", "tools", "python/csrc_one", "python/csrc_other"):
        (tmp_path / name).mkdir()
    (tmp_path / "torch/version.py").write_text("__version__ = '2.13.0'\n")
    return tmp_path


def build(checkout, tools, **environment):
    environment = {"PATH": str(tools), "NOTES": str(checkout / "notes"), "THALWEG_TORCH": str(checkout / "torch"),
                   "SUFFIX": sysconfig.get_config_var("EXT_SUFFIX"), **environment}
    return subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace"], cwd=checkout, env=environment,
                          capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def tools(checkout):
    cmake = checkout / "tools/cmake"
    cmake.write_text(CMAKE)
    cmake.chmod(0o755)
    return f"{cmake.parent}{os.pathsep}{os.environ['PATH']}"


def test_in_place__all_modules_by_one_build(checkout, tools):
    run = build(checkout, tools)
    assert run.returncode == 0, run.stderr
    made = {path.name.split(".")[0] for path in (checkout / "python/thalweg").glob("*.so")}
    assert made == {"_C", "_one", "_other"}
    assert (checkout / "notes").read_text().count("--build") == 1


def test_what_is_missing__is_named_with_its_cure(checkout, tools):
    for run in (build(checkout, checkout / "torch"), build(checkout, tools, STATUS="1")):
        assert run.returncode == 1 and "run tools/setup" in run.stderr and "Traceback" not in run.stderr, run.stderr


def test_a_folder_without_pytorch__is_named(checkout, tools):
    run = build(checkout, tools, THALWEG_TORCH="/nowhere")
    assert run.returncode == 1 and "THALWEG_TORCH: /nowhere; the folder of a torch package" in run.stderr, run.stderr
    assert not (checkout / "notes").exists()
