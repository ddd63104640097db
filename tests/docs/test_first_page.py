"""README.md shows the numbers of its measurements: tools/first_page, by data of the repository and by made-up data."""
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = "docs/measurements/first-page.json"
BENCH = '''#!{python}
import json, sys
words = sys.argv[1:]
assert words[:2] == ["bench", "allreduce"] and words[-1] == "--json", words
lossy = "--netns" in words
names = [("thalweg", "dlcp", 1), ("thalweg", "tcp", 2)] if lossy else [("thalweg", "tcp", 1)]
rows = [dict(size=size, library=library, transport=transport, p50_us=size / 100 * slow, p99_us=size / 50 * slow)
        for size in (65536, 4194304) for library, transport, slow in names + [("gloo", "tcp", 4), ("openmpi", "tcp", 3)]]
print(json.dumps(dict(ranks=2, rows=rows, loss=0.005 * lossy, loss_bound=0.01 * lossy, rate_gbps=1.0 if lossy else None,
                      environment=dict(tcp_congestion_control="cubic"))))
'''


def tool(root, *words):
    return subprocess.run([sys.executable, root / "tools/first_page", *words], capture_output=True, text=True, timeout=120,
                          check=False)


@pytest.fixture
def copy(tmp_path):
    """What the tool reads and writes of the repository."""
    for name in ("tools/first_page", "README.md", "docs/measurements", "docs/images", "python/thalweg"):
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(source, target)
    return tmp_path


def readme_numbers(root):
    """The table of results: value, peer and page of each row."""
    rows = re.findall(r"^\| \[([^\]]+)\]\(([^)]+)\) \| ([^|]+) \| \*\*([\d.]+)\*\* \|$", (root / "README.md").read_text(),
                      re.MULTILINE)
    return [{"value": value, "peer": peer, "what": what, "page": page} for what, page, peer, value in rows]


def json_numbers(root):
    return [{key: one[key] for key in ("value", "peer", "what", "page")}
            for one in json.loads((root / NUMBERS).read_text())["numbers"]]


def test_the_readme_has_the_numbers():
    assert len(json_numbers(ROOT)) == 6
    assert readme_numbers(ROOT) == json_numbers(ROOT)


def test_numbers_and_drawings_belong_to_the_data():
    check = tool(ROOT, "draw", "--check")
    assert check.returncode == 0, check.stderr


def test_data_names_machine_date_and_command():
    for what in ("clean", "lossy"):
        data = json.loads((ROOT / f"docs/measurements/data/first-page-{what}.json").read_text())
        assert data["machine"] and re.fullmatch(r"\d{4}-\d\d-\d\d", data["date"]), what
        assert data["command"].startswith("thalweg bench allreduce"), what


@pytest.mark.parametrize("name,old,new", [
    ("README.md", r"\*\*[\d.]+\*\*", "**99**"),
    (NUMBERS, r'"value": "[\d.]+"', '"value": "99"'),
    ("docs/measurements/data/first-page-clean.json", r'"p50_us": [\d.]+', '"p50_us": 1.5'),
    ("docs/measurements/2026-11-18-demo.md", r"\| 368 \| 378 \|", "| 906 | 378 |"),
    ("docs/images/first-page-hero-dark.svg", r"data [0-9a-f]{16}", "data 0000000000000000"),
])
def test_a_number_that_differs__is_found(copy, name, old, new):
    assert tool(copy, "draw", "--check").returncode == 0
    text = (copy / name).read_text()
    changed = re.sub(old, new, text, count=1)
    assert changed != text
    (copy / name).write_text(changed)
    check = tool(copy, "draw", "--check")
    assert check.returncode == 1 and "tools/first_page draw" in check.stderr


def test_measure_and_draw(copy):
    bench = copy / "bench"
    bench.write_text(BENCH.format(python=sys.executable))
    bench.chmod(0o755)
    for what, options in (("clean", []), ("lossy", ["--congestion-control", "cubic"])):
        run = tool(copy, "measure", what, "--program", str(bench), "--machine", "a machine", *options)
        assert run.returncode == 0, run.stderr
    assert tool(copy, "draw", "--check").returncode == 1
    drawn = tool(copy, "draw")
    assert drawn.returncode == 0, drawn.stderr
    assert tool(copy, "draw", "--check").returncode == 0
    assert [one["value"] for one in readme_numbers(copy)][:3] == ["4.0", "3.0", "4.0"]
    assert "a machine" in (copy / "README.md").read_text()
    for theme in ("light", "dark"):
        text = (copy / f"docs/images/first-page-hero-{theme}.svg").read_text()
        assert text.startswith("<?xml") and "<svg" in text
    assert (copy / "docs/images/first-page-hero-light.svg").read_text() != (copy / "docs/images/first-page-hero-dark.svg").read_text()


def test_a_benchmark_that_fails__is_said(copy):
    run = tool(copy, "measure", "clean", "--program", "/bin/false")
    assert run.returncode == 1 and "code 1" in run.stderr


def test_data_without_a_peer__is_said(copy):
    file = copy / "docs/measurements/data/first-page-clean.json"
    data = json.loads(file.read_text())
    data["result"]["rows"] = [row for row in data["result"]["rows"] if row["library"] != "gloo"]
    file.write_text(json.dumps(data))
    check = tool(copy, "draw", "--check")
    assert check.returncode == 1 and "--against" in check.stderr
