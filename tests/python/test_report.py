"""The page of `make demo`, from made-up runs: one file, whole, with every drawing in it."""
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from thalweg import report  # noqa: E402

LINKS = [("a", "left"), ("b", "right"), ("left", "top"), ("right", "top")]


def network(carried=0):
    return {"hosts": [{"name": "a", "address": "10.77.0.1"}, {"name": "b", "address": "10.77.0.2"}],
            "links": [{"name": f"{x}-{y}", "rate_bps": 100_000_000, "arcs": [
                {"from": x, "bytes": carried, "queued": 500}, {"from": y, "bytes": 0, "queued": 0}]} for x, y in LINKS]}


def run(name):
    samples = [(0.05 * i, network(carried=200_000 * max(0, i - 50))) for i in range(100)]
    return {"name": name, "steps": [0.1, 0.2, 0.4], "accuracy": [(1.0, 0.8), (2.0, 0.9)], "samples": samples}


def test_page_is_whole_and_needs_nothing_else():
    runs = [run("Gloo"), run("Thalweg <&>")]
    rows = [{"library": one["name"], "p50_ms": 100, "p99_ms": 400, "total_s": 7, "accuracy": 0.9, "frames": 1234, "lost": 5}
            for one in runs]
    page = report.page(network(), runs, rows, "0.5%")
    assert page.count("<svg") == page.count("</svg>") == 1 + 2 + len(runs)
    assert not re.search(r'(src|href)\s*=\s*"(https?:)?//', page) and "<script" not in page
    assert "Thalweg &lt;&amp;&gt;" in page and "1,234" in page
    topology = ElementTree.fromstring(report.topology_svg(network(), "0.5%"))
    texts = "".join(topology.itertext())
    for name in ("a", "b", "left", "right", "top", "10.77.0.2", "100 Mb/s, 0.5% lost"):
        assert name in texts


def test_timeline_is_of_the_training_alone():
    figure = report.timeline(network(), run("Gloo"))
    flows = figure["panels"][0]["series"]
    assert [one["name"] for one in flows] == ["left to top", "right to top"]
    # 200 kB in 50 ms; of the 50 samples before it a few are left.
    assert len(flows[0]["x"]) < 65 and abs(max(flows[0]["y"]) - 32) < 1e-6
