"""`thalweg sim run --trace --plot`: timelines that a viewer can open, plots, and errors."""
import json
import sys
from collections import defaultdict

import pytest

LINK_FAILURE = "scenarios/link-failure.yaml"
SMALL_JOBS = """
name: two small jobs
topology: leaf-spine:racks=2,hosts=2,spines=1,host=10G,uplink=10G
transport: {kind: dctcp, rto_min: 10ms}
network: {port_buffer: 512KiB, mark_above: 97500B}
connections: {at_once: 0}
jobs:
  - {name: one, model: alexnet, scheme: ring, iterations: 2}
  - {name: two, model: googlenet, scheme: ring, iterations: 2, start: 1ms}
"""


@pytest.fixture
def small_jobs(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SMALL_JOBS)
    return path


def events_of(path):
    return json.loads(path.read_text())["traceEvents"]


def names(events, kind):
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == kind}


def assert_no_overlap(events):
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert tracks
    for spans in tracks.values():
        spans.sort()
        # Times are decimal microseconds with six places; their sum may be off in the last bit.
        assert all(a[1] <= b[0] + 1e-6 for a, b in zip(spans, spans[1:]))


def test_trace_of_jobs(thalweg, small_jobs, tmp_path):
    trace = tmp_path / "trace.json"
    result = thalweg("sim", "run", small_jobs, "--json", "--trace", trace).json()
    events = events_of(trace)
    assert_no_overlap(events)
    hosts = {f"rack{r}-host{h}" for r in range(2) for h in range(2)}
    assert set(names(events, "process_name").values()) == hosts | {"network"}
    threads = names(events, "thread_name")
    for pid, name in ((pid, name) for (pid, _), name in names(events, "process_name").items() if name in hosts):
        of_host = {thread for (p, _), thread in threads.items() if p == pid}
        assert {"compute (one)", "compute (two)"} <= of_host, name
        assert any(thread.startswith("to rack") for thread in of_host), name
    flows = [e for e in events if e["ph"] == "X" and "bytes" in e["args"]]
    assert len(flows) == result["flow_completion_ms"]["count"]
    assert {e["name"] for e in flows} == {"one", "two"}
    marks = [e["name"] for e in events if e["ph"] == "i"]
    assert sorted(marks) == sorted(f"{job}: iteration {i} begins" for job in ("one", "two") for i in (1, 2))
    end = result["simulated_ms"] * 1000
    assert all(e["ts"] + e["dur"] <= end + 1e-3 for e in events if e["ph"] == "X")
    assert any(e["ph"] == "C" and e["name"].startswith("queue leaf") for e in events)


def test_trace_of_single_flows_and_faults(thalweg, tmp_path):
    trace = tmp_path / "trace.json"
    assert thalweg("sim", "run", LINK_FAILURE, "--trace", trace).code == 0
    events = events_of(trace)
    assert_no_overlap(events)
    # The trace includes hosts that only receive.
    assert len(names(events, "process_name")) == 8 + 1
    assert [(e["name"], e["ts"]) for e in events if e["ph"] == "i"] == [
        ("leaf0–spine0 down", 5000), ("leaf0–spine0 up", 12000)]
    deepest = max(e["args"]["value"] for e in events if e["ph"] == "C" and e["name"].startswith("queue"))
    assert 500_000 < deepest <= 512 * 1024


def test_trace_as_lines(thalweg, tmp_path):
    lines, text = tmp_path / "trace.jsonl", tmp_path / "trace.txt"
    assert thalweg("sim", "run", LINK_FAILURE, "--trace", lines).code == 0
    assert thalweg("sim", "run", LINK_FAILURE, "--trace", text).code == 0
    events = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [e["event"] for e in events].count("transfer") == 4
    starts = [e.get("start_us", e.get("at_us")) for e in events]
    assert starts == sorted(starts)
    assert len(text.read_text().splitlines()) == len(events)


@pytest.mark.parametrize("ending,start", [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_plot(thalweg, tmp_path, ending, start):
    plot, again = tmp_path / f"plot.{ending}", tmp_path / f"again.{ending}"
    assert thalweg("sim", "run", LINK_FAILURE, "--plot", plot).code == 0
    assert thalweg("sim", "run", LINK_FAILURE, "--plot", again).code == 0
    assert plot.read_bytes().startswith(start) and plot.read_bytes() == again.read_bytes()


def test_queues_of_a_plot__are_quantiles_over_ports(thalweg, small_jobs, tmp_path, monkeypatch):
    """What draw.py is asked for: never more curves than can be read, the deepest port above the others."""
    asked = tmp_path / "request.json"
    spy = tmp_path / "python"
    spy.write_text(f'#!/bin/sh\ncase "$*" in *--check*) exit 0;; esac\ncat > {asked}\nprintf "3\\nabc"\n')
    spy.chmod(0o755)
    monkeypatch.setenv("THALWEG_PYTHON", str(spy))
    assert thalweg("sim", "run", small_jobs, "--plot", tmp_path / "p.svg").code == 0
    (panel,) = [one for one in json.loads(asked.read_text())["figures"][0]["figure"]["panels"]
                if one["title"].startswith("Queues of")]
    ports = int(panel["title"].split()[2])
    curves = {one["name"]: one for one in panel["series"]}
    assert list(curves) == ["deepest port", *["p90 of the ports"] * (ports >= 10), "median port"]
    assert "longest at leaf" in panel["title"]
    for deep, middle in zip(curves["deepest port"]["y"], curves["median port"]["y"]):
        assert deep >= middle
    assert max(curves["deepest port"]["y"]) > max(curves["median port"]["y"]) > 0
    assert len(curves["deepest port"]["x"]) <= 81


def test_same_json_with_and_without(thalweg, small_jobs, tmp_path):
    for scenario in [LINK_FAILURE, small_jobs]:
        plain = thalweg("sim", "run", scenario, "--json").out
        pictures = ["--trace", tmp_path / "t.json", "--plot", tmp_path / "p.svg"]
        assert thalweg("sim", "run", scenario, "--json", *pictures).out == plain


def test_run_that_does_not_finish(thalweg, tmp_path):
    trace, plot = tmp_path / "t.json", tmp_path / "p.svg"
    done = thalweg("sim", "run", LINK_FAILURE, "--set", "until=6ms", "--trace", trace, "--plot", plot)
    assert done.code == 1 and plot.exists()
    flows = [e for e in events_of(trace) if e["ph"] == "X"]
    assert len(flows) == 4 and all(e["ts"] + e["dur"] <= 6000 + 1e-3 for e in flows)


@pytest.mark.parametrize("option,path,words", [
    ("--plot", "p.gif", ["--plot", "p.gif", ".svg", ".png", ".pdf"]),
    ("--plot", "p", ["--plot", ".svg"]),
    ("--trace", "t.csv", ["--trace", "t.csv", ".json", ".jsonl", ".txt"]),
])
def test_bad_ending(thalweg, tmp_path, option, path, words):
    done = thalweg("sim", "run", LINK_FAILURE, option, tmp_path / path, "--flows", tmp_path / "flows.csv")
    assert done.code == 2 and done.out == ""
    for word in words:
        assert word in done.err
    assert list(tmp_path.iterdir()) == []


def test_all_or_nothing(thalweg, tmp_path):
    done = thalweg("sim", "run", LINK_FAILURE, "--trace", tmp_path / "t.json", "--plot", tmp_path / "no/p.svg")
    assert done.code == 2 and "no/p.svg" in done.err
    assert list(tmp_path.iterdir()) == []


def test_not_for_a_sweep(thalweg, tmp_path):
    done = thalweg("sim", "run", LINK_FAILURE, "--sweep", "seed=[1, 2]", "--plot", tmp_path / "p.svg")
    assert done.code == 2 and "--plot" in done.err and "sweep" in done.err


def test_without_python_or_matplotlib(thalweg, tmp_path, monkeypatch):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    for interpreter, words in [(bare, ["matplotlib", "tools/setup"]), ("/no/python", ["/no/python", "tools/setup"])]:
        monkeypatch.setenv("THALWEG_PYTHON", str(interpreter))
        done = thalweg("sim", "run", LINK_FAILURE, "--plot", tmp_path / "p.svg")
        assert done.code == 2 and done.out == ""
        for word in words:
            assert word in done.err
    monkeypatch.delenv("THALWEG_PYTHON")
    monkeypatch.setenv("THALWEG_HOME", str(tmp_path))
    done = thalweg("sim", "run", LINK_FAILURE, "--plot", tmp_path / "p.svg")
    assert done.code == 2 and "THALWEG_HOME" in done.err


def test_summary_names_the_busiest_links(thalweg):
    out = thalweg("sim", "run", LINK_FAILURE).out
    table = out[out.index("busiest links"):].splitlines()
    assert "leaf0 → spine0" in "\n".join(table[1:6])
    used = [float(line.split()[-2]) for line in table[1:6]]
    assert used == sorted(used, reverse=True) and 0 < used[0] <= 100
    assert "goodput" in out and "% lost" in out
