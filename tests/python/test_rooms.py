"""The rooms of the Python package: thalweg/ is the API, and thalweg/lab/ only uses it."""
import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "python/thalweg"


def imported(source):
    """The full names that a source imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def of_lab(source):
    return sorted(name for name in imported(source) if f"{name}.".startswith("thalweg.lab."))


def test_api__imports_nothing_of_the_lab():
    files = sorted(PACKAGE.glob("*.py"))
    assert len(files) > 10
    assert {file.name: of_lab(file.read_text()) for file in files} == {file.name: [] for file in files}


def test_imports_of_the_lab__would_be_found():
    for line in ("import thalweg.lab.testbed", "from thalweg import lab", "from thalweg.lab import e2e",
                 "def f():\n    from thalweg.lab.figures.draw import draw"):
        assert len(of_lab(line)) == 1
    assert of_lab("from thalweg import labels\nimport thalweg.torch") == []
