"""The notebooks of examples/notebooks, cell by cell as a kernel would run and show them."""
import ast
import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(Path(__file__).parent))

from test_testbed_module import needs_namespaces  # noqa: E402

NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))
pandas = pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="pandas is not installed: tools/setup")


def cells_of(name):
    notebook = json.loads((ROOT / f"examples/notebooks/{name}.ipynb").read_text())
    assert notebook["nbformat"] == 4
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def shown(value):
    """What Jupyter would show of a value, of the forms that our own classes have."""
    for form in ("_repr_svg_", "_repr_html_"):
        if hasattr(value, form):
            return getattr(value, form)()
    return repr(value)


def run(name):
    """Returns the names that a notebook leaves, and what its cells show."""
    names, all_shown = {}, []
    for cell in cells_of(name):
        tree = ast.parse("".join(cell["source"]), f"{name}.ipynb")
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"{name}.ipynb", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"{name}.ipynb", "eval"), names)
            all_shown.append("" if value is None else shown(value))
    return names, all_shown


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_notebook__stores_no_output_that_could_be_out_of_date(file):
    cells = cells_of(file.stem)
    assert len(cells) >= 5
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    assert len(file.read_text()) < 20_000


def test_planning():
    names, all_shown = run("planning")
    assert names["chosen"].scheme and len(names["rows"]) == 4
    assert any("<svg" in text for text in all_shown) and any("<table" in text for text in all_shown)


@pandas
def test_simulating():
    names, all_shown = run("simulating")
    assert names["result"].finished and len(names["frame"]) == 12
    assert (names["slowdown"] > 1).all() and set(names["slowdown"].index) == {"ring", "halving-doubling"}
    assert any("<svg" in text for text in all_shown)
    lines = {line.get_label(): list(line.get_ydata()) for line in names["axes"].get_lines()}
    assert lines == {scheme: list(names["table"][scheme]) for scheme in ("halving-doubling", "ring")}


@needs_namespaces
def test_testbed(monkeypatch):
    pytest.importorskip("numpy")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))  # for the ranks
    names, all_shown = run("testbed")
    assert [row["network"] for row in names["rows"]] == ["as it is", "5 Mb/s", "2 % lost"]
    assert names["rows"][1]["median_ms"] > names["limit_ms"] > 0
    assert names["rows"][0]["lost"] == 0 < names["rows"][2]["lost"]
    assert any("<table" in text for text in all_shown)
