"""thalweg.nccl: where NCCL's plugin is, for NCCL_NET_PLUGIN. tests/install/test_wheel.py loads the one of a wheel."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = "libnccl-net-thalweg.so"


@pytest.fixture
def package(tmp_path):
    """The module in a package of its own, in folders as in an environment."""
    folder = tmp_path / "lib/site-packages/thalweg"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "python/thalweg/nccl.py", folder)
    (folder / "__init__.py").touch()
    return folder


def asked(folder):
    return subprocess.run([sys.executable, "-m", "thalweg.nccl"], cwd=folder, capture_output=True, text=True, timeout=60,
                          env=os.environ | {"PYTHONPATH": str(folder.parent)}, check=False)


def test_plugin__is_the_one_beside_the_module(package):
    (package / LIBRARY).touch()
    assert asked(package).stdout == f"{package / LIBRARY}\n"


def test_plugin__is_that_of_a_checkout(package):
    built = package.parents[1] / "build/release" / LIBRARY
    built.parent.mkdir(parents=True)
    built.touch()
    assert asked(package).stdout == f"{built}\n"


def test_plugin__that_is_not_there_is_named_with_its_cure(package):
    done = asked(package)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == ("thalweg.nccl: libnccl-net-thalweg.so is not installed: a wheel has it (make wheel), and so has a "
                           "checkout after `make build`\n")


def test_plugin__at_a_path_that_nccl_would_cut(package):
    folder = package.parent / ("x" * 200) / "thalweg"
    shutil.copytree(package, folder)
    (folder / LIBRARY).touch()
    done = asked(folder)
    assert done.returncode == 1 and "NCCL takes paths of at most 254" in done.stderr
