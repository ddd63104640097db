"""`thalweg reproduce e2e`: trained over a testbed, in short."""
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from test_run import wait_until
from test_testbed import PROGRAM, ROOT, needs_namespaces

sys.path.insert(0, str(ROOT / "python"))
from thalweg import e2e  # noqa: E402

EXPERIMENTS = sorted((ROOT / "experiments/e2e").glob("*.yaml"))


def namespaces_of(pid):
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.splitlines()
    return [name for name in names if name.startswith(f"e2e{pid}-")]


@needs_namespaces
def test_quick_trains_with_every_library_it_names(tmp_path):
    done = subprocess.run([PROGRAM, "reproduce", "e2e", "--quick", "--json", "--output", tmp_path], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["experiment"] == "e2e/dlcp"
    rows = {row["library"]: row for row in found["rows"]}
    assert set(rows) == {"Gloo", "Thalweg, bound 1 %", "Thalweg, ATP"}
    for row in rows.values():
        # A step moves 0.6 MB at 100 Mb/s: no less than 50 ms can do.
        assert row["steps"] == 6 and 50 < row["p50_ms"] <= row["p99_ms"]
        assert row["packets"] > 1000 and row["accuracy"] > 0.2
    assert rows["Gloo"]["gloo_p50_over_ours"] == 1
    assert [Path(path).read_text(encoding="utf-8").count("</svg>") for path in found["plots"]] == [1]


@needs_namespaces
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_killed_command_leaves_nothing(how):
    command = subprocess.Popen([PROGRAM, "reproduce", "e2e/tail-3", "--no-plots"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    # Its process is replaced by the script's, which has the same number.
    wait_until(lambda: len(namespaces_of(command.pid)) == 4)
    os.kill(command.pid, how)
    code = command.wait(120)
    assert code == (143 if how == signal.SIGTERM else -signal.SIGKILL)
    wait_until(lambda: namespaces_of(command.pid) == [] and not is_listed(command.pid))


def is_listed(pid):
    """Whether the command's testbed, or something of it, is there."""
    listed = json.loads(subprocess.run([PROGRAM, "testbed", "list", "--json"], capture_output=True, text=True).stdout)
    return any(one["name"] == f"e2e{pid}" for one in listed)


def test_experiments_are_listed_and_sound():
    listed = subprocess.run([PROGRAM, "reproduce", "--list"], capture_output=True, text=True, check=True).stdout
    for path in EXPERIMENTS:
        experiment = e2e.read_experiment(path, quick=False)
        assert experiment.name in listed and experiment.title in listed
        assert "gloo" in experiment.libraries
    assert len(EXPERIMENTS) == 5


@pytest.mark.parametrize("change,words", [
    ("libraries: [gloo, nccl]", ["nccl", "dssync"]),
    ("steps: many", ["steps", "many", "int"]),
    ("speed: 3", ["speed", "unknown", "libraries"]),
    ("steps: 0", ["steps", "1 or more"])])
def test_bad_field_is_named(tmp_path, change, words):
    key = change.split(":")[0]
    lines = [line for line in (ROOT / "experiments/e2e/tail-3.yaml").read_text().splitlines() if not line.startswith(key)]
    (tmp_path / "bad.yaml").write_text("\n".join([*lines, change]))
    done = subprocess.run([sys.executable, "-m", "thalweg.e2e", tmp_path / "bad.yaml"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "THALWEG_BACKEND": "0"})
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr


def test_settings_of_simulations_are_refused():
    done = subprocess.run([PROGRAM, "reproduce", "e2e", "--set", "network.loss=1"], capture_output=True, text=True)
    assert done.returncode == 2 and "--set" in done.stderr
