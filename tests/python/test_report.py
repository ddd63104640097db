"""The page of `make demo`, from made-up runs: one file, whole, with every drawing in it."""
import html
import json
import re
import shutil
import subprocess
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


BROWSER = shutil.which("chromium-headless-shell")
# Appended to a page: how large its drawings are, where the browser has laid them out.
MEASURE = """<script>document.body.dataset.sizes = JSON.stringify([...document.querySelectorAll("svg")].map(
  drawing => { const box = drawing.getBoundingClientRect(); return [box.width, box.height]; }));</script>"""


def opened(page, folder):
    """A page in a browser: the sizes of its drawings, and what the browser's console says."""
    (folder / "page.html").write_text(page.replace("</body>", MEASURE + "</body>"), encoding="utf-8")
    done = subprocess.run([BROWSER, "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--window-size=1200,900",
                           f"--user-data-dir={folder / 'profile'}", "--dump-dom", (folder / "page.html").as_uri()],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    sizes = json.loads(html.unescape(re.search(r'data-sizes="([^"]*)"', done.stdout)[1]))
    return sizes, [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


def test_page_in_a_browser(tmp_path):
    """Every drawing is there, of a size to look at, and the browser has nothing to complain about."""
    assert BROWSER, "there is no chromium-headless-shell: tools/setup installs it"
    runs = [run("Gloo"), run("Thalweg")]
    rows = [{"library": one["name"], "p50_ms": 100, "p99_ms": 400, "total_s": 7, "accuracy": 0.9, "frames": 1234, "lost": 5}
            for one in runs]
    sizes, complaints = opened(report.page(network(), runs, rows, "0.5%"), tmp_path)
    assert complaints == []
    assert len(sizes) == 1 + 2 + len(runs)
    assert all(width > 300 and height > 150 for width, height in sizes), sizes
    # The same look at a page with faults sees them.
    sizes, complaints = opened('<html><body><svg width="5" height="5"></svg><script>missing()</script></body></html>', tmp_path)
    assert sizes == [[5, 5]] and any("missing is not defined" in line for line in complaints)
