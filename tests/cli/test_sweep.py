"""Sweeps of `sim run`, on several cores and under mpirun, and `reproduce`."""
import csv
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/thalweg"

SCENARIO = """variables: {hosts: 4, scheme: ring}
topology: single-switch:hosts=${hosts},host=10G
transport: newreno
network: {port_buffer: 256KiB}
jobs:
  - {size: 1MB, scheme: "${scheme}", iterations: 2}
background:
  - {pattern: random, size: 20kB, load: 0.3}
sweep:
  scheme: [ring, ps]
  hosts: [2, 4]
"""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(SCENARIO)
    return path


def test_points_and_their_order(thalweg, scenario):
    result = thalweg("sim", "run", scenario, "--json").json()
    assert result["axes"] == ["scheme", "hosts"]
    assert [p["at"] for p in result["points"]] == [
        {"scheme": s, "hosts": h} for s in ("ring", "ps") for h in ("2", "4")]
    for point in result["points"]:
        assert point["result"]["finished"] and point["result"]["jobs"][0]["done"]
        assert point["result"]["background"][0]["flow_completion_ms"]["count"] > 0


def test_same_json_at_any_number_of_processes(thalweg, scenario):
    one = thalweg("sim", "run", scenario, "--json", "-j1").out
    assert json.loads(one)
    for at_once in ("-j2", "-j3"):
        assert thalweg("sim", "run", scenario, "--json", at_once).out == one


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun")
@pytest.mark.parametrize("ranks", [2, 3])
def test_same_json_under_mpirun(thalweg, scenario, ranks):
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        ["mpirun", "--oversubscribe", "-np", str(ranks), PROGRAM, "sim", "run", scenario, "--json"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == thalweg("sim", "run", scenario, "--json", "-j1").out


def test_flags_set_and_sweep(thalweg, scenario):
    result = thalweg("sim", "run", scenario, "--json", "--set", "jobs.0.iterations=1",
                     "--sweep", "scheme=[rat]", "--sweep", "seed=[1, 2]").json()
    assert result["axes"] == ["scheme", "hosts", "seed"]
    assert len(result["points"]) == 4
    assert all(len(p["result"]["jobs"][0]["iterations_ms"]) == 1 for p in result["points"])


def test_csv_has_a_line_a_point(thalweg, scenario, tmp_path):
    path = tmp_path / "out.csv"
    assert thalweg("sim", "run", scenario, "--csv", path).code == 0
    rows = list(csv.DictReader(path.open()))
    assert [(r["scheme"], r["hosts"]) for r in rows] == [
        ("ring", "2"), ("ring", "4"), ("ps", "2"), ("ps", "4")]
    assert all(float(r["jobs.0.mean_iteration_ms"]) > 0 for r in rows)


@pytest.mark.parametrize("arguments,words", [
    (["--set", "hosts"], ["--set", "key=value"]),
    (["--set", "network.nothing.at=3"], ["network.nothing.at", "port_buffer"]),
    (["--set", "network.prot_buffer=3kB"], ["prot_buffer", "port_buffer"]),
    (["--sweep", "hosts=4"], ["--sweep", "[value, value]"]),
    (["--sweep", "hosts=[0]"], ["hosts=0"]),
    (["--sweep", "scheme=[ring, nothing]"], ["nothing", "scheme"]),
    (["-j", "-1"], ["-j"]),
    (["--flows", "f.csv"], ["--flows"]),
    (["--trace", "t.json"], ["--trace"]),
])
def test_bad_flags(thalweg, scenario, arguments, words):
    done = thalweg("sim", "run", scenario, *arguments)
    assert done.code == 2, done.out
    for word in words:
        assert word in done.err, done.err


def start_long_sweep(scenario, errors):
    """Starts a long sweep with two processes at a time; returns it and the ids of the two."""
    process = subprocess.Popen(
        [PROGRAM, "sim", "run", scenario, "--set", "jobs.0.size=1GB", "-j2"],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors, text=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 20
    pids = []
    while len(pids) < 2 and time.monotonic() < deadline:
        pids = children.read_text().split()
        time.sleep(0.02)
    assert len(pids) == 2
    return process, pids


def test_killed_parent_leaves_no_child(scenario):
    process, pids = start_long_sweep(scenario, subprocess.DEVNULL)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_killed_point_is_an_error_that_names_it(scenario):
    process, pids = start_long_sweep(scenario, subprocess.PIPE)
    os.kill(int(pids[0]), signal.SIGKILL)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "signal 9" in errors and "scheme=" in errors


def test_list_of_experiments(thalweg):
    done = thalweg("reproduce", "--list")
    assert done.code == 0, done.err
    for name in ("dlcp/fig2", "rat/fig4", "rat/fig5", "atp/fig06", "atp/fig12"):
        assert name in done.out


def test_reproduce_quick(thalweg, tmp_path):
    result = thalweg("reproduce", "rat/fig4", "--quick", "--json", "--output", tmp_path).json()
    assert result["experiment"] == "rat/fig4"
    by_name = {c["claim"]: c for c in result["claims"]}
    over_ps = by_name["PS over RAT (mean)"]
    assert over_ps["paper"] == 25
    assert over_ps["ours"] > 1  # RAT is faster than PS even with little oversubscription
    assert over_ps["ratio"] == pytest.approx(over_ps["ours"] / 25)
    assert result["unfinished"] == []
    for plot in result["plots"]:
        assert Path(plot).read_text().startswith("<?xml")


def test_reproduce_with_training__joins_accuracy_and_speed(thalweg):
    result = thalweg("reproduce", "ds-sync/fig9", "--quick", "--json", "--no-plots", "--set", "jobs.0.part=0.02").json()
    training = {point["at"]["strategy"]: point["result"]["training"] for point in result["points"]}
    pace = {point["at"]["strategy"]: point["result"]["jobs"][0]["pace_ms"] for point in result["points"]}
    assert training["DS-Sync"]["best_accuracy"] > training["AR"]["best_accuracy"] - 1
    for name in ("AR", "DS-Sync"):
        one = training[name]
        assert one["seconds_to_target"] == pytest.approx(one["iterations_to_target"] * pace[name] / 1000)
    stale = training["ASP"]["iterations_to_target"]
    assert stale is None or stale > training["AR"]["iterations_to_target"]


def test_reproduce_claim_without_a_number(thalweg):
    result = thalweg("reproduce", "atp/fig09", "--quick", "--json", "--no-plots").json()
    first, second = result["claims"][2:]
    assert first["paper"] is None and first["ratio"] is None
    assert first["ours"] == pytest.approx(second["ours"], rel=0.02)  # equal shares


def test_reproduce_same_json_at_any_number_of_processes(thalweg):
    runs = [thalweg("reproduce", "dlcp/fig2", "--quick", "--json", "--no-plots", j).out
            for j in ("-j1", "-j2")]
    assert json.loads(runs[0])["points"] and runs[0] == runs[1]


def test_reproduce_unknown(thalweg):
    done = thalweg("reproduce", "rat/fig9")
    assert done.code == 2 and "rat/fig9" in done.err and "rat/fig4" in done.err


def test_reproduce_unfinished_points_are_named(thalweg):
    done = thalweg("reproduce", "rat/fig4", "--quick", "--json", "--no-plots", "--set", "until=1us")
    assert done.code == 1, done.err
    result = json.loads(done.out)
    assert len(result["unfinished"]) == len(result["points"]) > 0


def test_reproduce_reads_all_points_before_the_first_runs(thalweg, tmp_path, monkeypatch):
    experiment = tmp_path / "experiments/some/figure.yaml"
    experiment.parent.mkdir(parents=True)
    experiment.write_text("""title: the first point takes hours, the last cannot be read
scenario:
  variables: {hosts: 8, last: 3}
  topology: single-switch:hosts=${hosts},host=10G
  transport: newreno
  until: 3600s
  jobs: [{size: 40GB, scheme: ring, iterations: 100, hosts: [host0, "host${last}"]}]
sweep: {hosts: [8, 4], last: [3, 7]}
claims: []
""")
    monkeypatch.setenv("THALWEG_HOME", str(tmp_path))
    done = thalweg("reproduce", "--no-plots", "-j1", timeout=60)
    assert done.code == 2, done.out
    assert "some/figure at hosts=4, last=7" in done.err
