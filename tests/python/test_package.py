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
                 "python/thalweg/__init__.py", "python/thalweg/lab/bench/ddp.py"):
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


def test_old_strings__are_named_with_their_cure(checkout, tools):
    """A PyTorch may have another C++ ABI than Debian's libraries, as PyPI's 2.6 had."""
    config = checkout / "torch/share/cmake/Torch/TorchConfig.cmake"
    config.parent.mkdir(parents=True)
    config.write_text('set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")\n')
    (checkout / "torch/version.py").write_text("__version__ = '2.7.0+own'\n")
    run = build(checkout, tools)
    assert run.returncode == 1 and "PyTorch 2.7.0" in run.stderr and "old C++ ABI" in run.stderr, run.stderr
    assert not (checkout / "notes").exists()


@pytest.mark.parametrize(("torches", "wanted"), [
    ("2.13", "torch==2.13.*"),
    ("2.7 2.8 2.9", "torch<2.10,>=2.7"),
    ("2.10 2.6 2.8", "torch!=2.7.*,!=2.9.*,<2.11,>=2.6"),
])
def test_wheel__needs_a_version_that_it_has_a_module_for(checkout, torches, wanted):
    (checkout / "python/thalweg/lab/data").mkdir(parents=True, exist_ok=True)
    (checkout / "python/thalweg/lab/figures").mkdir(exist_ok=True)
    subprocess.run([sys.executable, "setup.py", "-q", "egg_info"], cwd=checkout, check=True, timeout=60, capture_output=True,
                   env={**os.environ, "THALWEG_STANDALONE": str(checkout), "THALWEG_TORCHES": torches})
    needs = (checkout / "python/thalweg.egg-info/requires.txt").read_text().split()
    assert needs[0] == wanted and needs[1].startswith("numpy"), needs


@pytest.mark.parametrize(("asked", "reason"), [
    (["2.5.1"], "TORCH: '2.5.1'; 'all' or versions such as"),
    (["newest"], "TORCH: 'newest'; 'all' or versions such as"),
    (["2.9.0", "2.9.1"], "TORCH: 2.9 twice"),
])
def test_torches__refuses_what_is_no_version(tmp_path, asked, reason):
    run = subprocess.run([sys.executable, ROOT / "python/packaging/torches.py", tmp_path, *asked], capture_output=True,
                         text=True, timeout=60, check=False)
    assert run.returncode == 1 and reason in run.stderr, run.stderr
    assert list(tmp_path.iterdir()) == []


def test_torches__names_the_abi_of_each_version(tmp_path):
    """tools/wheel compiles all that a module is linked to a second time for a PyTorch with the old C++ ABI."""
    for version, flags in (("2.6.0", "-D_GLIBCXX_USE_CXX11_ABI=0"), ("2.9.1", "-D_GLIBCXX_USE_CXX11_ABI=1")):
        folder = tmp_path / version / "torch"
        (folder / "share/cmake/Torch").mkdir(parents=True)
        (folder / "share/cmake/Torch/TorchConfig.cmake").write_text(f'set(TORCH_CXX_FLAGS "{flags}")\n')
        (folder / "version.py").write_text(f"__version__ = '{version}+cu124'\n")
    listed = subprocess.run([sys.executable, ROOT / "python/packaging/torches.py", tmp_path, "2.6.0", "2.9.1"], text=True,
                            capture_output=True, timeout=60, check=True).stdout
    assert listed == f"2.6 old {tmp_path}/2.6.0/torch\n2.9 new {tmp_path}/2.9.1/torch\n"


def test_import__takes_the_module_of_the_pytorch_that_runs(tmp_path):
    """In a copy of the package whose module has a name as in a wheel, and in which another version has one that is empty."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    package = tmp_path / "thalweg"
    shutil.copytree(ROOT / "python/thalweg", package, ignore=shutil.ignore_patterns("*.so", "__pycache__", "lab"))
    version = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True,
                             check=True, timeout=120).stdout
    own = package / f"_C_torch{'_'.join(version.split('.')[:2])}{suffix}"
    shutil.copy(ROOT / f"python/thalweg/_C{suffix}", own)
    (package / f"_C_torch2_5{suffix}").write_bytes(b"")
    code = ("import sys, thalweg.backend as b; m = b.native(); assert m is b.native() is sys.modules['thalweg._C']; "
            "print(m.__file__, m.Backend.__module__)")
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
                         env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert run.stdout.split() == [str(own), "thalweg._C"], run.stderr
    faked = subprocess.run([sys.executable, "-c", "import torch; torch.__version__ = '2.99.0'; import thalweg"], cwd=tmp_path,
                           capture_output=True, text=True, timeout=120, check=True,
                           env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert f"built for PyTorch 2.5 and {'.'.join(version.split('.')[:2])}, but this is 2.99.0" in faked.stderr
