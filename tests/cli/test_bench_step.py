"""`thalweg bench step` with a few steps, so that it never rots. Speeds need a quiet machine."""
import json
import os
import signal
import subprocess

import pytest

from test_run import wait_until
from test_testbed import PROGRAM, ROOT, needs_namespaces

STAR = "single-switch:hosts=2,host=50M,delay=100us"
# ResNet-18 in 47 kB, which two hosts at 50 Mb/s exchange in 8 ms, and computed in 13 ms.
SMALL = ("--model", "resnet18", "--scale", "0.001", "--device-scale", "1000")
STEP = ("bench", "step", *SMALL)
EXACT = {"library", "p50_ms", "p99_ms", "mean_ms", "limit_ms", "simulated_ms", "steps", "wrong"}


def beds_of(pid):
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.splitlines()
    listed = json.loads(subprocess.run([PROGRAM, "testbed", "list", "--json"], capture_output=True,
                                       text=True).stdout)
    return ([name for name in names if name.startswith(f"step{pid}-")]
            + [one["name"] for one in listed if one["name"] == f"step{pid}"])


@pytest.mark.parametrize("arguments,words", [
    (("--testbed", STAR), ["--model", "missing", "resnet18"]),
    (("--testbed", STAR, "--model", "resnet19"), ["--model", "resnet19"]),
    (("--testbed", "single-switch:hosts=4", *SMALL), ["--testbed", "no rate", "host=50M"]),
    (("--testbed", "ring:hosts=4,host=50M", *SMALL), ["--testbed", "ring"]),
    (("--testbed", STAR, "--model", "resnet18", "--scale", 0), ["--scale", "0", "above 0"]),
    (("--testbed", STAR, "--model", "resnet18", "--scale", -1), ["--scale", "-1", "above 0"]),
    (("--testbed", STAR, "--model", "resnet18", "--scale", "nan"), ["--scale", "above 0"]),
    (("--testbed", STAR, "--model", "resnet18", "--device-scale", 0), ["--device-scale", "0.001"]),
    (("--testbed", STAR, *SMALL, "--priorities", 0), ["--priorities", "1 to 7"]),
    (("--testbed", STAR, *SMALL, "--priorities", 8), ["--priorities", "8", "1 to 7"]),
    (("--testbed", STAR, *SMALL, "--libraries", "nccl"), ["--libraries", "nccl", "dlcp", "rat"]),
    (("--testbed", STAR, *SMALL, "--libraries", "tcp+bound"), ["tcp+bound", "only for dlcp and auto"]),
    (("--testbed", STAR, *SMALL, "--libraries", "tcp,tcp"), ["tcp", "twice"]),
    (("--testbed", STAR, *SMALL, "--libraries", "dlcp+bound"), ["dlcp+bound", "--bound 1%"]),
    (("--testbed", STAR, *SMALL, "--libraries", "atp"), ["atp", "--aggregate"]),
    (("--testbed", STAR, *SMALL, "--aggregate", "moon"), ["moon"]),
    (("--testbed", STAR, *SMALL, "--against", "nccl"), ["--against", "nccl", "gloo"]),
    (("--testbed", STAR, *SMALL, "--ranks", 3), ["--ranks", "3", "2 hosts"]),
    (("--testbed", STAR, *SMALL, "--ranks", 1), ["--ranks", "1"]),
    (("--testbed", STAR, *SMALL, "--loss", "150%"), ["--loss", "150%"]),
    (("--testbed", STAR, *SMALL, "--bound", "1"), ["--bound", "1"]),
    (("--testbed", STAR, *SMALL, "--bucket", "0B"), ["--bucket", "above 0"]),
    (("--testbed", STAR, *SMALL, "--schedule", "random"), ["--schedule", "random", "layerwise"]),
    (("--testbed", STAR, *SMALL, "--steps", 0), ["--steps", "0"]),
    (("--testbed", STAR, *SMALL, "--timeout", "soon"), ["--timeout", "soon"]),
    (("--testbed", STAR, "--topology", STAR, *SMALL), ["--topology", "--testbed"]),
    ((*SMALL, "--loss", "1%"), ["--loss", "--testbed"]),
    ((*SMALL, "--libraries", "rat"), ["rat", "--topology"]),
    (SMALL, ["--testbed", "thalweg run"]),
])
def test_bad_input_is_named(thalweg, arguments, words):
    done = thalweg("bench", "step", *arguments)
    assert done.code == 2 and done.out == "", done.err
    for word in words:
        assert word in done.err, done.err


@pytest.mark.parametrize("layers,words", [
    ("layers: []", ["layers"]),
    ("layers: [{name: a, params: 8}]", ["forward_us"]),
    ("layers: [{name: a, params: 8, forward_us: 0, backward_us: 0}]", ["no times", "forward_us"])])
def test_a_model_that_cannot_be_replayed_is_refused(thalweg, tmp_path, layers, words):
    (tmp_path / "net.yaml").write_text(f"name: net\nbatch: 1\ndevice: none\n{layers}\n")
    done = thalweg("bench", "step", "--testbed", STAR, "--model", tmp_path / "net.yaml")
    assert done.code == 2 and "--model" in done.err
    for word in words:
        assert word in done.err, done.err


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_without_root_the_error_says_what_is_missing():
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = subprocess.run([*words, PROGRAM, *STEP, "--testbed", STAR, "--libraries", "tcp", "--steps", "1"], cwd=ROOT,
                          capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        pytest.skip("any user may make networks here")
    assert done.returncode == 2 and "--testbed" in done.stderr and "root" in done.stderr


def test_help_has_an_example(thalweg):
    done = thalweg("bench", "step", "--help")
    assert done.code == 0 and "--against gloo --loss 0.25%" in done.out


@needs_namespaces
def test_gloo_and_ours_on_a_lossy_testbed(thalweg):
    result = thalweg(*STEP, "--testbed", STAR, "--against", "gloo", "--loss", "0.25%", "--bound", "1%",
                     "--priorities", 7, "--libraries", "tcp,dlcp,dlcp+bound,dlcp+priority", "--steps", 6,
                     "--seed", 7, "--json", timeout=400).json()
    assert [row["library"] for row in result["rows"]] == ["gloo", "tcp", "dlcp", "dlcp+bound", "dlcp+priority"]
    assert result["model"] == "resnet18" and result["scale"] == 0.001 and result["loss"] == 0.0025
    assert result["seed"] == 7 and result["topology"] == STAR and result["ranks"] == 2
    assert result["bytes"] == sum(result["bucket_bytes"]) == pytest.approx(46758, abs=8)
    assert result["forward_ms"] + result["backward_ms"] == pytest.approx(13.49, abs=0.1)
    gloo = result["rows"][0]
    for row in result["rows"]:
        assert EXACT <= set(row) and row["steps"] == 6 and row["wrong"] == 0
        # The link's limit is no more than what was measured, but for a bucket that a token bucket lets through at once.
        assert 0.8 * row["limit_ms"] <= row["p50_ms"] <= row["p99_ms"]
        assert row["p50_ms"] < 40 * row["limit_ms"]
        assert 0.98 * row["limit_ms"] <= row["simulated_ms"] < 5 * row["limit_ms"]
        assert row["gloo_p50_over_this"] == pytest.approx(gloo["p50_ms"] / row["p50_ms"])
    # A bound lets less than everything arrive.
    limits = {row["library"]: row["limit_ms"] for row in result["rows"]}
    assert limits["dlcp+bound"] < limits["dlcp"] < 1.02 * limits["tcp"]


@needs_namespaces
def test_schemes_switch_and_layers_that_wait_for_themselves(thalweg):
    star = "single-switch:hosts=3,host=50M,delay=100us"
    result = thalweg(*STEP, "--testbed", star, "--aggregate", "switch0", "--libraries",
                     "tcp+priority,dlcp+priority,atp,rat,ps", "--schedule", "layerwise", "--bucket", "4MiB",
                     "--ranks", 3, "--steps", 4, "--json", timeout=300).json()
    rows = {row["library"]: row for row in result["rows"]}
    assert list(rows) == ["tcp+priority", "dlcp+priority", "atp", "rat", "ps"]
    assert len(result["bucket_bytes"]) > 6
    for row in rows.values():
        assert row["wrong"] == 0 and row["p50_ms"] >= 0.8 * row["limit_ms"]
        assert row["gloo_p50_over_this"] is None
    # The simulator's layers wait for themselves only where front layers go first.
    assert rows["tcp+priority"]["simulated_ms"] > 0 and rows["ps"]["simulated_ms"] is None


@needs_namespaces
def test_auto_says_what_it_chose(thalweg):
    # Two kinds of buckets that are large enough for trials.
    result = thalweg("bench", "step", "--model", "resnet18", "--scale", "0.003", "--device-scale", "300", "--testbed", STAR,
                     "--libraries", "tcp", "--auto", "--steps", 4, "--no-simulation", "--json", timeout=300).json()
    tcp, auto = result["rows"]
    assert tcp["library"] == "tcp" and tcp["chosen"] is None and tcp["why"] is None and tcp["trials_ms"] is None
    assert auto["library"] == auto["transport"] == "auto" and auto["wrong"] == 0 and auto["steps"] == 4
    assert auto["chosen"] and set(auto["chosen"]) == set(auto["why"])
    for kind, way in auto["chosen"].items():
        assert kind.startswith("allreduce of float32, mean, ")
        # DLCP was tried, too, and the way that was taken is among those whose times are told.
        assert f"{way} " in auto["why"][kind] and "ring over dlcp" in auto["why"][kind], auto["why"]
    assert 0 <= auto["trials_extra_ms"] < auto["trials_ms"]


def test_ranks_of_a_launcher():
    """Without a topology there is no limit, and no forecast."""
    done = subprocess.run([PROGRAM, "run", "-n", "2", "--no-prefix", "--", PROGRAM, *STEP, "--libraries", "tcp", "--steps",
                           "3", "--json"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["ranks"] == 2 and result["testbed"] is False
    [row] = result["rows"]
    assert row["library"] == "tcp" and row["limit_ms"] is None and row["simulated_ms"] is None
    assert row["p50_ms"] >= result["forward_ms"] + result["backward_ms"]


def test_a_topology_that_the_launcher_does_not_fill_is_refused():
    done = subprocess.run([PROGRAM, "run", "-n", "2", "--", PROGRAM, *STEP, "--topology",
                           "single-switch:hosts=4,host=1G"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "4 hosts" in done.stderr and "2 ranks" in done.stderr


@needs_namespaces
@pytest.mark.parametrize("how,code", [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_command_that_is_ended_leaves_nothing(how, code):
    command = subprocess.Popen([PROGRAM, *STEP, "--testbed", STAR, "--libraries", "tcp", "--steps", "10000"], cwd=ROOT,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ranks = ["pgrep", "-f", f"testbed/step{command.pid}/results"]
    wait_until(lambda: len(subprocess.run(ranks, capture_output=True, text=True).stdout.split()) >= 2, 60)
    command.send_signal(how)
    assert command.wait(60) == code
    wait_until(lambda: beds_of(command.pid) == [], 60)
    wait_until(lambda: subprocess.run(ranks, capture_output=True, text=True).stdout == "", 60)


@needs_namespaces
def test_a_deadline_ends_it_and_leaves_nothing():
    command = subprocess.Popen([PROGRAM, *STEP, "--testbed", STAR, "--libraries", "tcp", "--steps", "10000", "--timeout",
                                "5s"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    _, errors = command.communicate(timeout=90)
    assert command.returncode == 2 and "--timeout" in errors
    assert beds_of(command.pid) == []
