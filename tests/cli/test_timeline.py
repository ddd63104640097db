"""THALWEG_TIMELINE, `thalweg trace merge`, THALWEG_DEBUG and the Grafana dashboard, on real ranks."""
import json
import os
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from test_chakra import play

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/thalweg"
DASHBOARD = ROOT / "examples/grafana/thalweg.json"


def on_two_ranks(*command, timeout=300, **environment):
    """Runs a program on two ranks. Returns what it printed, and on standard error."""
    done = subprocess.run([PROGRAM, "run", "-n", "2", "--", *map(str, command)], cwd=ROOT, text=True, timeout=timeout,
                          capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT / "python")} | environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def events_with(file, key):
    """The events that have this argument: "call", "step" or "loss"."""
    return [event for event in json.loads(file.read_text())["traceEvents"] if key in event["args"]]


def calls(file):
    return events_with(file, "call")


@pytest.fixture(scope="module")
def ddp(tmp_path_factory):
    """The folder of the timelines of a DDP training on two ranks, and its debug log."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("timeline")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port),
         ROOT / "examples/ddp_digits.py", "--backend", "thalweg", "--epochs", "1"],
        cwd=folder, text=True, timeout=600, capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python"), "THALWEG_TIMELINE": "run.json", "THALWEG_DEBUG": "INFO"})
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stderr


def test_timeline__of_a_ddp_training(ddp):
    folder, _ = ddp
    for rank in range(2):
        file = folder / f"run.{rank}.json"
        notes = json.loads(file.read_text())["otherData"]
        assert notes["rank"] == rank and notes["size"] == 2 and notes["left_out"] == 0
        reductions = [call for call in calls(file) if call["name"] == "allreduce"]
        assert len(reductions) > 10
        for call in reductions:
            assert call["dur"] > 0 and call["args"]["bytes"] > 0 and call["args"]["scheme"]
            assert call["args"]["transport"] == "tcp" and call["args"]["outcome"] == "ok"
        assert any(call["args"]["bytes"] > 10_000 for call in reductions), "a bucket of gradients"


def test_timeline__has_the_steps_of_every_allreduce(ddp):
    """Each transfer is within its call, and the ranks' files agree on what moved between them."""
    folder, _ = ddp
    moved = {}
    for rank in range(2):
        file = folder / f"run.{rank}.json"
        assert json.loads(file.read_text())["otherData"]["calls_without_steps"] == 0
        by_call = {(call["args"]["group"], call["args"]["number"]): call for call in calls(file) if "number" in call["args"]}
        steps = [event for event in events_with(file, "step") if event["args"]["step"] != "stall"]
        for step in steps:
            call = by_call[step["args"]["group"], step["args"]["number"]]
            assert step["args"]["rank"] == rank and step["args"]["peer"] == 1 - rank and step["dur"] >= 0
            assert call["ts"] <= step["ts"] and step["ts"] + step["dur"] <= call["ts"] + call["dur"] + 1
            way = (step["args"]["step"], step["args"]["group"], step["args"]["number"])
            moved[rank, *way] = moved.get((rank, *way), 0) + step["args"]["bytes"]
        reductions = {place for place, call in by_call.items() if call["name"] == "allreduce"}
        assert len(reductions) > 10
        for kind in ("send", "receive"):
            assert reductions <= {(group, number) for of, what, group, number in moved if of == rank and what == kind}
    for rank, step, group, number in moved:
        other = (1 - rank, "receive" if step == "send" else "send", group, number)
        assert moved[rank, step, group, number] == moved[other]


def test_timeline__of_a_training_runs_in_the_simulator_and_in_bench_step(ddp, thalweg, tmp_path):
    """As a Chakra trace, whose steps end where the optimizer did its step."""
    folder, _ = ddp
    made = thalweg("trace", "chakra", folder / "run.0.json", folder / "run.1.json", "--out", tmp_path)
    assert made.code == 0, made.err
    iterations = int(re.search(r"timeline\.0\.et: rank 0, .*, (\d+) iterations", made.out).group(1))
    gradients = sum(call["args"]["bytes"] for call in calls(folder / "run.0.json") if call["name"] == "allreduce")
    assert iterations > 10
    trace = tmp_path / "timeline.0.et"
    played = play(trace)
    assert sum(played["bucket_bytes"]) * iterations == gradients and played["backward_ms"] > 0
    (tmp_path / "job.yaml").write_text("topology: single-switch:hosts=4,host=1G\ntransport: {kind: dctcp}\n"
                                       f"jobs: [{{model: {trace}, scheme: ring, iterations: 2}}]\n")
    result = thalweg("sim", "run", tmp_path / "job.yaml", "--json").json()
    wire_ms = sum(played["bucket_bytes"]) * 8 * 1.5 / 1e6  # a ring of four at 1 Gb/s
    assert all(time > max(wire_ms, played["backward_ms"]) for time in result["jobs"][0]["iterations_ms"])


def test_merge__ranks_of_one_host_share_a_clock(ddp, thalweg, tmp_path):
    folder, _ = ddp
    merged = thalweg("trace", "merge", folder / "run.0.json", folder / "run.1.json", "--out", tmp_path / "all.json",
                     "--json")
    assert merged.code == 0, merged.err
    ranks = json.loads(merged.out)["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1] and ranks[1]["by"] == "the clock of their machine"
    assert_causal(tmp_path / "all.json")


def assert_causal(file, slack_us=2):
    """No rank's allreduce is over before the other rank has made its call."""
    by_number = {}
    for call in calls(file):
        if call["args"]["call"] == "allreduce":
            by_number.setdefault((call["args"]["group"], call["args"]["number"]), []).append(call)
    pairs = [pair for pair in by_number.values() if len(pair) == 2]
    assert len(pairs) > 10
    for one, other in pairs:
        for first, second in ((one, other), (other, one)):
            assert first["ts"] <= second["ts"] + second["dur"] + slack_us


def test_merge__clocks_that_differ_are_found_by_calls(ddp, thalweg, tmp_path):
    """Rank 1's file as another machine would have written it, whose clocks are wrong by minutes."""
    folder, _ = ddp
    other = json.loads((folder / "run.1.json").read_text())
    for event in other["traceEvents"]:
        if "ts" in event:
            event["ts"] += 123_456_789
    other["otherData"] |= {"boot": "another", "host": "elsewhere", "realtime_us": 0, "monotonic_us": 0}
    (tmp_path / "other.json").write_text(json.dumps(other))
    assert thalweg("trace", "merge", folder / "run.0.json", folder / "run.1.json", "--out", tmp_path / "true.json").code == 0
    merged = thalweg("trace", "merge", tmp_path / "other.json", folder / "run.0.json", "--out", tmp_path / "all.json",
                     "--json")
    assert merged.code == 0, merged.err
    found = json.loads(merged.out)["ranks"][1]
    assert found["by"] == "calls that both made"
    assert_causal(tmp_path / "all.json", slack_us=found["error_us"] + 2)

    def first_of_rank_1(name):
        return min(call["ts"] for call in calls(tmp_path / name) if call["args"]["rank"] == 1)

    # The error that it claims holds, and is far below what the clocks were wrong by.
    assert abs(first_of_rank_1("all.json") - first_of_rank_1("true.json")) <= found["error_us"] + 2
    assert found["error_us"] < 1_000_000


def test_merge__refuses(ddp, thalweg, tmp_path):
    folder, _ = ddp
    (tmp_path / "noise.json").write_text("{}")
    noise = thalweg("trace", "merge", tmp_path / "noise.json", "--out", tmp_path / "all.json")
    assert noise.code == 2 and "noise.json: this is no timeline of Thalweg" in noise.err
    twice = thalweg("trace", "merge", folder / "run.0.json", folder / "run.0.json", "--out", tmp_path / "all.json")
    assert twice.code == 2 and "are both of rank 0" in twice.err
    assert not (tmp_path / "all.json").exists()


def test_debug_log__tells_what_was_chosen_in_few_lines(ddp):
    _, err = ddp
    lines = [line for line in err.splitlines() if re.search(r"thalweg \S+:\d+ \[[01]\] (INFO|WARN): ", line)]
    assert 10 < len(lines) < 60, err
    text = "\n".join(lines)
    for words in ("of 2 by", "listens at 127.0.0.1", "transport tcp", "connected,", "shared memory", "allreduce of ", ", by "):
        assert words in text, words
    for rank in range(2):
        assert f"[{rank}] INFO: rank {rank} of 2" in text


def test_debug_log__traces_every_call_and_names_bad_values():
    _, err = on_two_ranks(ROOT / "build/release/examples/allreduce", THALWEG_DEBUG="TRACE")
    assert re.search(r"TRACE: allreduce of .*: over after [0-9.]+ ms", err), err
    bad = subprocess.run([PROGRAM, "run", "-n", "2", "--", ROOT / "build/release/examples/allreduce"], text=True,
                         capture_output=True, timeout=120, env=os.environ | {"THALWEG_DEBUG": "ALL"})
    assert bad.returncode != 0 and "THALWEG_DEBUG: 'ALL' is not allowed: WARN, INFO or TRACE" in bad.stdout + bad.stderr


def test_failure__is_in_the_log_and_in_the_timeline_of_a_process_that_does_not_end_well(tmp_path):
    (tmp_path / "lose.py").write_text(
        "import numpy, os, thalweg\n"
        "thalweg.allreduce(numpy.ones(8))\n"
        "if thalweg.rank() == 0:\n"
        "    try:\n"
        "        thalweg.allreduce(numpy.ones(1000))\n"
        "    except thalweg.Error as error:\n"
        "        print('lost', error.rank, flush=True)\n"
        "os._exit(0)\n")
    out, err = on_two_ranks(sys.executable, tmp_path / "lose.py", THALWEG_BACKEND="0", THALWEG_DEBUG="WARN",
                            THALWEG_TIMELINE=str(tmp_path / "%r.json"))
    assert "lost 1" in out
    assert re.search(r"\[0\] WARN: the communicator is broken: .*rank 1", err), err
    assert "INFO" not in err
    outcomes = [call["args"]["outcome"] for call in calls(tmp_path / "0.json")]
    assert outcomes[0] == "ok" and outcomes[-1] == "failed"


def test_debug_log__silent_without_the_variable():
    _, err = on_two_ranks(ROOT / "build/release/examples/allreduce")
    assert "INFO" not in err and "TRACE" not in err


def test_timeline__that_cannot_be_written_is_an_error():
    bad = subprocess.run([PROGRAM, "run", "-n", "2", "--", ROOT / "build/release/examples/allreduce"], text=True,
                         capture_output=True, timeout=120, env=os.environ | {"THALWEG_TIMELINE": "/nowhere/run.json"})
    assert bad.returncode != 0 and "THALWEG_TIMELINE: cannot write /nowhere/run." in bad.stdout + bad.stderr


def exported_metrics(tmp_path):
    """The names that a rank answers with."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = tmp_path / "scrape.py"
    script.write_text("import numpy, sys, thalweg, urllib.request\n"
                      "thalweg.init()\nthalweg.allreduce(numpy.ones(8))\n"
                      f"print(urllib.request.urlopen('http://127.0.0.1:{port}/metrics', timeout=60).read().decode())\n")
    done = subprocess.run([sys.executable, script], text=True, capture_output=True, timeout=120,
                          env=os.environ | {"PYTHONPATH": str(ROOT / "python"), "THALWEG_BACKEND": "0",
                                            "THALWEG_METRICS": f":{port}"})
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"^# TYPE (thalweg_\w+)", done.stdout, re.MULTILINE))


def test_top__with_a_key(thalweg, tmp_path):
    """A rank with a job key answers only those who have its token, as Prometheus or by `thalweg top`."""
    keys = [tmp_path / name for name in ("key", "other")]
    for key, digit in zip(keys, "ab"):
        key.write_text(digit * 32)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    script = tmp_path / "rank.py"
    script.write_text("import numpy, sys, thalweg\nthalweg.init()\nthalweg.allreduce(numpy.ones(8))\n"
                      "print('ready', flush=True)\nsys.stdin.read()\n")
    rank = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            env=os.environ | {"PYTHONPATH": str(ROOT / "python"), "THALWEG_BACKEND": "0",
                                              "THALWEG_METRICS": place, "THALWEG_KEY_FILE": str(keys[0])})
    try:
        assert rank.stdout.readline() == "ready\n"
        assert thalweg("top", place, "--once", "--key-file", keys[0]).code == 0
        without = thalweg("top", place, "--once")
        assert without.code == 1 and "the job has a key" in without.out
        other = thalweg("top", place, "--once", "--key-file", keys[1])
        assert other.code == 1 and "wrong key" in other.out
        token = thalweg("top", "--print-token", "--key-file", keys[0]).out.strip()
        assert re.fullmatch("[0-9a-f]{32}", token) and token != "a" * 32
        asked = urllib.request.Request(f"http://{place}/metrics", headers={"Authorization": f"Bearer {token}"})
        assert b"thalweg_operations_total" in urllib.request.urlopen(asked, timeout=60).read()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"http://{place}/metrics", timeout=60)
        nothing = thalweg("top", "--print-token")
        assert nothing.code == 2 and "--key-file" in nothing.err
    finally:
        rank.communicate(timeout=60)


def test_dashboard__names_only_metrics_that_exist_and_all_of_them(tmp_path):
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [variable["query"] for variable in dashboard["templating"]["list"]]
    named = set(re.findall(r"thalweg_\w+", " ".join(expressions)))
    exported = exported_metrics(tmp_path)
    assert len(exported) > 5
    assert named - exported == set(), "the dashboard names metrics that no rank exports"
    assert exported - named == set(), "the dashboard shows nothing of these metrics"
    identifiers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(identifiers)) == len(identifiers)
