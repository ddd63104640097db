"""The Dockerfile's steps in a chroot of a bare Debian 12: the image trains on two ranks, without a library of Debian's that
Thalweg is built with. `make test-image` runs both stages, `make test-wheel` the second one with the wheel that it has built."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_wheel import wheel  # noqa: F401: a fixture

ROOT = Path(__file__).resolve().parents[2]
BOTH = "THALWEG_TEST_IMAGE" in os.environ
pytestmark = pytest.mark.skipif(not BOTH and "THALWEG_TEST_WHEEL" not in os.environ,
                                reason="make test-image and make test-wheel build images")
# What the image must be able to do, as the user that it names.
COMMANDS = """
torchrun --standalone --nproc-per-node 2 examples/ddp_digits.py --backend thalweg
thalweg plan schemes
ldd /opt/thalweg/bin/thalweg /opt/thalweg/lib/python3*/site-packages/thalweg/*.so
dpkg-query --show --showformat '${Package} is installed\\n'
id --user
""".strip().splitlines()
# Not libbpf, which comes with iproute2.
OURS = re.compile(r"lib(fmt|yaml-cpp|pugixml|hwy|coin|clp|isal)\S* is installed|(g\+\+|gcc|cmake|clang\S*) is installed")
PYTORCH_OR_EVERYWHERE = re.compile(r"linux-vdso\.so\.1|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so\.\d+|.*/ld-linux.*|"
                                   r"lib(c10|torch|torch_cpu|torch_python)\.so")


def built(*words):
    if os.geteuid() != 0:
        pytest.skip("chroot and mounts need root")
    runs = [word for command in COMMANDS for word in ("--run", command)]
    done = subprocess.run([sys.executable, ROOT / "tests/install/dockerfile.py", ROOT / "build/image", *words, *runs],
                          text=True, capture_output=True, timeout=7200, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


def check(out):
    right = re.search(r"thalweg, 2 ranks: (\d+\.\d)% of the test images right", out)
    assert right and float(right.group(1)) > 90, out
    assert "rat-weighted" in out
    linked = re.findall(r"^\t(\S+) (?:=>|\()", out, re.MULTILINE)
    assert len(linked) > 20 and {name for name in linked if not PYTORCH_OR_EVERYWHERE.fullmatch(name)} == set()
    assert "python3 is installed" in out and OURS.findall(out) == []
    assert out.rstrip().endswith("\n1000")


@pytest.mark.skipif(BOTH, reason="make test-image runs both stages")
def test_last_stage__trains_with_the_wheel(wheel):  # noqa: F811
    check(built("--take", f"build=/thalweg/build/wheel={wheel.parent}"))


@pytest.mark.skipif(not BOTH, reason="make test-image runs both stages")
def test_both_stages__build_and_train():
    check(built())
