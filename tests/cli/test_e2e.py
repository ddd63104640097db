"""`thalweg reproduce e2e`: short trainings over a testbed."""
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
from thalweg.lab import e2e  # noqa: E402

EXPERIMENTS = sorted((ROOT / "experiments/e2e").glob("*.yaml"))


def namespaces_of(pid):
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.splitlines()
    return [name for name in names if name.startswith(f"e2e{pid}-")]


@needs_namespaces
def test_quick_trains_two_jobs_with_every_library_it_names(tmp_path):
    """Both jobs share the switch that aggregates. Their process groups have the same name in PyTorch, but are two jobs at
    the switch."""
    done = subprocess.run([PROGRAM, "reproduce", "e2e", "--quick", "--json", "--output", tmp_path], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["experiment"] == "e2e/atp"
    rows = {(row["library"], row["job"]): row for row in found["rows"]}
    assert set(rows) == {(library, job) for library in ("Gloo", "Thalweg, bound 1 %", "Thalweg, ATP") for job in (0, 1)}
    for row in rows.values():
        # A step moves 0.6 MB at 100 Mb/s, which takes at least 48 ms.
        assert row["steps"] == 6 and 48 < row["p50_ms"] <= row["p99_ms"]
        assert row["packets"] > 1000 and row["accuracy"] > 0.2
    assert rows["Gloo", 1]["gloo_p50_over_ours"] == 1
    assert [Path(path).read_text(encoding="utf-8").count("</svg>") for path in found["plots"]] == [1]


@needs_namespaces
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_killed_command_leaves_nothing(how):
    command = subprocess.Popen([PROGRAM, "reproduce", "e2e/tail-3", "--no-plots"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    # The command replaces itself by the script (exec), so the process id stays the same.
    wait_until(lambda: len(namespaces_of(command.pid)) == 4)
    os.kill(command.pid, how)
    code = command.wait(120)
    assert code == (143 if how == signal.SIGTERM else -signal.SIGKILL)
    wait_until(lambda: namespaces_of(command.pid) == [] and not is_listed(command.pid))


def is_listed(pid):
    """Whether the command's testbed, or a part of it, exists."""
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
    done = subprocess.run([sys.executable, "-m", "thalweg.lab.e2e", tmp_path / "bad.yaml"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "THALWEG_BACKEND": "0"})
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr


def test_settings_of_simulations_are_refused():
    done = subprocess.run([PROGRAM, "reproduce", "e2e", "--set", "network.loss=1"], capture_output=True, text=True)
    assert done.returncode == 2 and "--set" in done.stderr
