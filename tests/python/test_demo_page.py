"""The page of `make demo`, from made-up runs: one file, whole, with every drawing in it."""
import argparse
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
from thalweg.lab import demo, demo_page  # noqa: E402

LINKS = [("a", "left"), ("b", "right"), ("left", "top"), ("right", "top")]


def network(carried=0):
    return {"hosts": [{"name": "a", "address": "10.77.0.1"}, {"name": "b", "address": "10.77.0.2"}],
            "links": [{"name": f"{x}-{y}", "rate_bps": 100_000_000, "arcs": [
                {"from": x, "bytes": carried, "queued": 500}, {"from": y, "bytes": 0, "queued": 0}]} for x, y in LINKS]}


def run(name):
    samples = [(0.05 * i, network(carried=200_000 * max(0, i - 50))) for i in range(100)]
    return {"name": name, "steps": [0.1, 0.2, 0.4], "accuracy": [(1.0, 0.8), (2.0, 0.9)], "samples": samples}


def row(name, **changes):
    return {"library": name, "steps": 63, "p50_ms": 300, "mean_ms": 310, "p99_ms": 700, "total_s": 7, "accuracy": 0.9,
            "frames": 1234, "lost": 5, "busy": 0.4, "planned": False, **changes}


def first_words(text):
    """What a reader sees first: the text of the first heading."""
    return html.unescape(re.search(r"<h1>(.*?)</h1>", text)[1])


def test_page_is_whole_and_needs_nothing_else():
    runs = [run("Gloo"), run("Thalweg <&>")]
    rows = [row("Gloo"), row("Thalweg <&>", planned=True, p50_ms=200, mean_ms=155, p99_ms=350)]
    page = demo_page.page(network(), runs, rows, "0.5 %")
    assert page.count("<svg") == page.count("</svg>") == 1 + 3 + len(runs)
    assert not re.search(r'(src|href)\s*=\s*"(https?:)?//', page) and "<script" not in page
    assert "Thalweg &lt;&amp;&gt;" in page and "1,234" in page
    topology = ElementTree.fromstring(demo_page.topology_svg(network(), "0.25 %"))
    texts = "".join(topology.itertext())
    for name in ("a", "b", "left", "right", "top", "10.77.0.2", "100 Mb/s, 0.25 % lost"):
        assert name in texts


def test_first_line__has_the_numbers_of_the_table():
    rows = [row("Gloo"), row("Thalweg", planned=True, p50_ms=200, mean_ms=155, p99_ms=350)]
    page = demo_page.page(network(), [run("Gloo"), run("Thalweg")], rows, "0.5 %")
    assert first_words(page) == ("Training steps were 2 times as fast as over Gloo with 0.5 % of the packets between racks lost, "
                                 "and at the slowest (p99) 2 times; the same accuracy.")
    assert "median 1.5, mean 2, p99 2 (Gloo / Thalweg)" in page
    assert "is not ahead" not in page and "busy, other programs" not in page


@pytest.mark.parametrize("changes,first,why", [
    ({"p99_ms": 900}, "ahead of Gloo at the mean and the median", "is not ahead at the p99. The processors were 40% busy"),
    ({"p99_ms": 900, "busy": 0.95}, "ahead of Gloo at the mean and the median", "run it again on a machine"),
    ({"p50_ms": 300, "mean_ms": 310, "p99_ms": 700}, "Thalweg was not faster than Gloo", "at the mean and the median and the p99"),
    ({"accuracy": 0.85}, "accuracy 85.0% against 90.0%", None),
])
def test_first_line__is_true_when_gloo_wins(changes, first, why):
    rows = [row("Gloo"), row("Thalweg", **{"planned": True, "p50_ms": 200, "mean_ms": 155, "p99_ms": 350, **changes})]
    page = demo_page.page(network(), [run("Gloo"), run("Thalweg")], rows, "0.5 %")
    assert first in first_words(page)
    assert (why is None) == ("is not ahead" not in page)
    assert why is None or why in page


def test_share():
    assert demo.share("0.5%") == 0.005
    for wrong in ("0.5", "x%", "-1%", "100%", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="a percentage"):
            demo.share(wrong)


def test_processors__of_the_time_between_two_looks():
    assert demo.used_share((10, 100), (40, 160)) == 0.5
    assert demo.used_share(None, None) == demo.used_share((1, 2), None) == 0
    busy, all_of_it = demo.processor_time()
    assert 0 < busy < all_of_it


def test_slowest_link__is_that_of_the_topology():
    rates = [float(rate) for rate in re.findall(r"rate: (\d+)M", demo.TOPOLOGY.read_text())]
    assert min(rates) / 1000 == demo.SLOWEST_LINK_GBPS


def test_timeline_is_of_the_training_alone():
    figure = demo_page.timeline(network(), run("Gloo"))
    flows = figure["panels"][0]["series"]
    assert [one["name"] for one in flows] == ["left to top", "right to top"]
    # 200 kB in 50 ms; of the 50 samples before it a few are left, and every fifth is drawn.
    assert 5 < len(flows[0]["x"]) < 65 / 5 and abs(max(flows[0]["y"]) - 32) < 1e-6


BROWSER = shutil.which("chromium-headless-shell")
# Appended to a page: how large its drawings are, where the browser has laid them out.
MEASURE = """<script>document.body.dataset.sizes = JSON.stringify([...document.querySelectorAll("svg")].map(
  drawing => { const box = drawing.getBoundingClientRect(); return [box.width, box.height]; }));</script>"""


def opened(page, folder, width=1200):
    """A page in a browser: the sizes of its drawings, and what the browser's console says."""
    (folder / "page.html").write_text(page.replace("</body>", MEASURE + "</body>"), encoding="utf-8")
    done = subprocess.run([BROWSER, "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--window-size={width},900",
                           f"--user-data-dir={folder / 'profile'}", "--dump-dom", (folder / "page.html").as_uri()],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    sizes = json.loads(html.unescape(re.search(r'data-sizes="([^"]*)"', done.stdout)[1]))
    return sizes, [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


def test_page_in_a_browser(tmp_path):
    """Every drawing is there, of a size to look at, and the browser has nothing to complain about."""
    assert BROWSER, "there is no chromium-headless-shell: tools/setup installs it"
    runs = [run("Gloo"), run("Thalweg")]
    page = demo_page.page(network(), runs, [row("Gloo"), row("Thalweg", planned=True)], "0.5 %")
    for width in (1200, 500):
        sizes, complaints = opened(page, tmp_path, width)
        assert complaints == []
        assert len(sizes) == 1 + 3 + len(runs)
        assert all(300 < across < width and height > 150 for across, height in sizes), sizes
    # The same look at a page with faults sees them.
    sizes, complaints = opened('<html><body><svg width="5" height="5"></svg><script>missing()</script></body></html>', tmp_path)
    assert sizes == [[5, 5]] and any("missing is not defined" in line for line in complaints)
