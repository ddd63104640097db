"""Jobs under real launchers: ranks of net_test find each other by their environment variables."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MEET = [ROOT / "build/release/net_test", "--gtest_filter=Meeting.*", "--gtest_brief=1"]


def run(command, **variables):
    clean = {k: v for k, v in os.environ.items() if not re.match("THALWEG_|OMPI|PMI|SLURM|RANK|WORLD|MASTER", k)}
    done = subprocess.run([*map(str, command)], cwd=ROOT, env={**clean, **variables}, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(re.findall("met as (rank .*)", done.stdout))


def all_ranks(size, launcher):
    return [f"rank {r} of {size} under '{launcher}'" for r in range(size)]


def test_alone():
    assert run(MEET) == all_ranks(1, "")


def test_thalweg_run():
    assert run([ROOT / "build/release/thalweg", "run", "-n", "4", "--", *MEET]) == all_ranks(4, "thalweg")


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun")
def test_mpirun():
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    assert run(["mpirun", "--oversubscribe", "-np", "4", *MEET], **allowed) == all_ranks(4, "mpirun")


def test_torchrun():
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", "--no-python"]
    assert run([*command, *MEET]) == all_ranks(3, "torchrun")


@pytest.mark.parametrize("interface,code", [("lo", 0), ("nic9", 1)])
def test_named_interface(interface, code):
    done = subprocess.run(MEET, env={**os.environ, "THALWEG_INTERFACE": interface}, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == code
    assert (code == 0) or "interface 'nic9' does not exist; there are: " in done.stdout


def test_ranks_of_slurm():
    """Sets the environment as srun does for its tasks, since the tests have no Slurm."""
    step = {"SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "3",
            "SLURM_NODEID": "0", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}
    script = " & ".join(f"SLURM_PROCID={r} SLURM_LOCALID={r} {' '.join(map(str, MEET))}" for r in (2, 1, 0))
    assert run(["bash", "-c", script + " & wait"], **step) == all_ranks(3, "srun")
