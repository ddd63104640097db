"""The wheel in a fresh environment: the program, its data, training on two ranks, and what its files are linked to."""
import fcntl
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

# A wheel's own libraries take minutes to compile, so `make test` leaves the wheel out; `make test-wheel` tests it.
pytestmark = pytest.mark.skipif("THALWEG_TEST_WHEEL" not in os.environ, reason="make test-wheel tests the wheel")

ROOT = Path(__file__).resolve().parents[2]
# `make test-wheel TORCH="2.7.1 2.9.1"`: PyTorch versions that the wheel is tested with beside that of .venv. Each takes
# several GB of downloads and of disk while its test runs.
OTHERS = os.environ.get("THALWEG_TEST_TORCH", "").split()
# What every machine with Python and PyTorch has.
EVERYWHERE = re.compile(r"linux-vdso\.so\.1|lib(c|m|dl|rt|pthread)\.so\.\d+|libstdc\+\+\.so\.6|libgcc_s\.so\.1|ld-linux.*")
PYTORCH = re.compile(r"libc10\.so|libtorch(_cpu|_python)?\.so")


def run(*command, cwd=None, timeout=600, code=0, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("THALWEG_", "PYTHONPATH"))}
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=timeout,
                          env=kept | environment)
    assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="session")
def wheel():
    """The wheel of the release build. Where several processes run tests, the first of them makes it."""
    # The first time the archives are compiled, which takes minutes.
    stamp = ROOT / "build/wheel.stamp"
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with open(ROOT / "build/wheel.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != session:
            own = run(sys.executable, "-c", "import torch; print(torch.__version__.split('+')[0])").strip()
            run(ROOT / "tools/wheel", *OTHERS, *([own] if OTHERS and own not in OTHERS else []), timeout=7200)
            stamp.write_text(session)
    found = list((ROOT / "build/wheel").glob("*.whl"))
    assert len(found) == 1
    return found[0]


@pytest.fixture(scope="session")
def environment(wheel, tmp_path_factory):
    """A fresh virtual environment with the wheel. PyTorch and NumPy are those of .venv, which take minutes to copy."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    run(sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--no-deps", "--no-index",
        "--disable-pip-version-check", wheel)
    packages = next(folder.glob("lib/python3*/site-packages"))
    (packages / "pytorch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def linked(file):
    names = [line.split()[0] for line in run("ldd", file).splitlines()]
    return {Path(name).name for name in names}


def test_files__are_linked_to_what_every_machine_has(environment):
    modules = [path for path in environment.glob("lib/python3*/site-packages/thalweg/*.so") if not path.name.startswith("lib")]
    names = {path.name.split(".")[0] for path in modules}
    backends = {name for name in names if re.fullmatch(r"_C_torch2_\d+", name)}
    assert names == backends | {"_arrays", "_ps", "_sync"} and len(backends) >= max(1, len(OTHERS)), names
    stubs = {path.name for path in (ROOT / "python/thalweg").glob("*.pyi")}
    assert stubs | {"py.typed"} <= {path.name for path in modules[0].parent.iterdir()}
    for file in [environment / "bin/thalweg", *modules]:
        others = {name for name in linked(file) if not EVERYWHERE.fullmatch(name)}
        assert {name for name in others if not PYTORCH.fullmatch(name)} == set(), file
        assert bool(others) == file.name.startswith("_C_"), "only the backend is linked to PyTorch"


def test_a_library_of_debian__would_be_found():
    """The program of the build folder is linked to some."""
    assert any(name.startswith("libfmt") and not EVERYWHERE.fullmatch(name) for name in linked(ROOT / "build/release/thalweg"))


def test_wheel__names_its_platform_and_needs(wheel, environment):
    # Debian 12 has glibc 2.36: a wheel that was built here may run on older systems, and never needs a newer one.
    platform = re.fullmatch(r"thalweg-0\.1\.0-cp3\d+-cp3\d+-manylinux_2_(\d+)_\w+\.whl", wheel.name)
    assert platform and int(platform.group(1)) <= 36, wheel.name
    needs = run(environment / "bin/python", "-c", "import importlib.metadata as m; print(m.requires('thalweg'))")
    assert re.search(r"torch==\d+\.\d+\.\*|torch[^']*<2\.\d+,.*>=2\.\d+", needs) and "numpy" in needs


def test_program__runs_and_finds_its_data(environment, tmp_path):
    program, network = environment / "bin/thalweg", "leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G"
    ours = ROOT / "build/release/thalweg"
    assert "rat-weighted" in run(program, "plan", "schemes", cwd=tmp_path)
    # rat-weighted is solved by the wheel's own Clp, and sums are those of its own Highway and ISA-L.
    compare = ("plan", "compare", "--topology", network, "--size", "97MB")
    assert run(program, *compare, cwd=tmp_path) == run(ours, *compare, cwd=tmp_path)
    scenario = environment / "share/thalweg/scenarios/loss.yaml"
    assert run(program, "sim", "run", scenario, cwd=tmp_path) == run(ours, "sim", "run", scenario, cwd=tmp_path)
    for folder in ("models", "scenarios", "topologies", "experiments"):
        listed = {path.name for path in (ROOT / folder).iterdir() if path.is_file()}
        assert listed <= {path.name for path in (environment / "share/thalweg" / folder).iterdir()}, folder
    notices = {path.name for path in (environment / "share/doc/thalweg").iterdir()}
    assert {"LICENSE", "licenses.md", "libfmt-dev.copyright", "coinor-libclp-dev.copyright"} <= notices


def test_program__starts_the_python_beside_it(environment, tmp_path):
    """Thalweg's Python and what it needs are in the environment, which the PATH need not name."""
    out = run(environment / "bin/thalweg", "tune", "bound", "--help", cwd=tmp_path, PATH="/usr/bin:/bin")
    assert "error-feedback" in out, out


def test_digits__are_learnt_on_two_ranks(environment, tmp_path):
    out = run(environment / "bin/python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2,
              ROOT / "examples/ddp_digits.py", "--backend", "thalweg", cwd=tmp_path)
    right = re.search(r"(\d+(?:\.\d+)?) ?%", out)
    assert right and float(right.group(1)) > 90, out


def check_collectives(environment, folder):
    out = run(environment / "bin/python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2,
              ROOT / "tests/install/collectives.py", cwd=folder)
    assert out.count("fine 2.") == 2, out
    return out


def test_collectives__are_right_on_two_ranks(environment, tmp_path):
    check_collectives(environment, tmp_path)


@pytest.mark.parametrize("version", OTHERS)
def test_another_version__has_a_module_of_its_own(wheel, tmp_path, version):
    """In an environment that pip fills from PyPI: the wheel with that PyTorch and all that it needs."""
    folder = ROOT / f"build/trial-{version}"
    try:
        run(sys.executable, "-m", "venv", "--clear", folder)
        run(folder / "bin/python", "-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check", wheel,
            f"torch=={version}", "numpy", timeout=3600)
        assert f"fine {version}" in check_collectives(folder, tmp_path)
        test_digits__are_learnt_on_two_ranks(folder, tmp_path)
        check_unknown_version(folder, tmp_path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_program__starts_ranks_that_sum_arrays(environment, tmp_path):
    (tmp_path / "sum.py").write_text("import numpy, thalweg\nprint('sum', thalweg.allreduce(numpy.ones(3)).sum())\n")
    out = run(environment / "bin/thalweg", "run", "-n", 2, "--", environment / "bin/python", "sum.py", cwd=tmp_path,
              THALWEG_BACKEND="0")
    assert out.count("sum 6.0") == 2, out


def test_planner_in_python__runs_the_program_of_the_environment(environment, tmp_path):
    code = ("import thalweg._program, thalweg.plan as p; print(thalweg._program.program()); "
            "print(p.best('single-switch:hosts=4,host=10G', '1MB').scheme)")
    where, scheme = run(environment / "bin/python", "-c", code, cwd=tmp_path, THALWEG_BACKEND="0").split()
    assert Path(where) == environment / "bin/thalweg" and scheme


def test_nccl_plugin__is_found_by_one_variable(environment, tmp_path):
    """NCCL gives the value of NCCL_NET_PLUGIN to dlopen() as it stands, and then looks for the newest table that it knows."""
    out = subprocess.run(["sh", "-c", 'export NCCL_NET_PLUGIN=$(python -m thalweg.nccl); echo "$NCCL_NET_PLUGIN"'], cwd=tmp_path,
                         env={"PATH": f"{environment / 'bin'}:/usr/bin:/bin", "THALWEG_BACKEND": "0"}, capture_output=True,
                         text=True, timeout=120, check=True).stdout
    plugin = Path(out.strip())
    assert plugin.is_absolute() and plugin.is_relative_to(environment) and plugin.name == "libnccl-net-thalweg.so", out
    loaded = ("import ctypes, os; library = ctypes.CDLL(os.environ['NCCL_NET_PLUGIN'], os.RTLD_NOW | os.RTLD_LOCAL); "
              "print([version for version in range(8, 12) if ctypes.c_char_p.in_dll(library, f'ncclNetPlugin_v{version}').value "
              "== b'Thalweg'])")
    assert run(environment / "bin/python", "-c", loaded, cwd=tmp_path, NCCL_NET_PLUGIN=str(plugin)).strip() == "[8, 9, 10, 11]"
    assert {name for name in linked(plugin) if not name.startswith(("linux-vdso", "ld-linux"))} == {"libc.so.6", "libm.so.6"}


def test_another_pytorch__is_named_with_its_cure(environment, tmp_path):
    check_unknown_version(environment, tmp_path)


def check_unknown_version(environment, tmp_path):
    """At import a warning, and an error where a process group is made."""
    faked = "import torch; torch.__version__ = '2.99.1'; import thalweg"
    warned = subprocess.run([environment / "bin/python", "-c", faked], cwd=tmp_path, capture_output=True, text=True,
                            timeout=300, check=True)
    assert "RuntimeWarning: thalweg: built for PyTorch 2." in warned.stderr and "but this is 2.99.1" in warned.stderr
    assert "pip install 'torch==2." in warned.stderr
    error = run(environment / "bin/python", "-W", "ignore", "-c", faked + ".backend; thalweg.backend.native()",
                cwd=tmp_path, code=1)
    assert "RuntimeError: thalweg: built for PyTorch 2." in error and "but this is 2.99.1" in error
    quiet = subprocess.run([environment / "bin/python", "-c", "import torch, thalweg"], cwd=tmp_path, capture_output=True,
                           text=True, timeout=300, check=True)
    assert "thalweg" not in quiet.stderr


def test_sdist__builds(tmp_path):
    """test_sdist.py looks at what is in it."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    run(ROOT / "tools/sdist")
    with tarfile.open(ROOT / "build/sdist/thalweg-0.1.0.tar.gz") as archive:
        archive.extractall(tmp_path)
    source, build = tmp_path / "thalweg-0.1.0", tmp_path / "build"
    run("cmake", "-S", source, "-B", build, "-G", "Ninja", "-DTHALWEG_PRECOMPILE=OFF")
    run("cmake", "--build", build, "--target", "thalweg_base")
