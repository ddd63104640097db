"""The package says that it is typed (py.typed): what users call of the planner, the simulator, the testbed and with arrays has a type
for every parameter and result; and proof that what is missing is found."""
import ast
import json
import os
import subprocess
import sys
from pathlib import Path

from docstrings import functions_of

PACKAGE = Path(__file__).resolve().parents[2] / "python/thalweg"
MODULES = ("__init__", "plan", "sim", "testbed", "nccl", "options", "arrays", "_program", "_processes", "_testbed_parts")


def untyped(text):
    found = []
    for (scope, name), function in functions_of([ast.parse(text)]):
        if name.startswith("_") and not name.startswith("__"):
            continue
        where = f"{scope}.{name}" if scope else name
        listed = function.args
        arguments = [*listed.posonlyargs, *listed.args, *listed.kwonlyargs, *filter(None, (listed.vararg, listed.kwarg))]
        found += [f"{where}: {one.arg}" for one in arguments if one.annotation is None and one.arg not in ("self", "cls")]
        if function.returns is None and name != "__init__":
            found.append(f"{where}: what it returns")
    return found


def test_everything_that_users_call_has_types():
    assert {name: found for name in MODULES if (found := untyped((PACKAGE / f"{name}.py").read_text()))} == {}
    assert (PACKAGE / "py.typed").exists()


def test_names_that_are_found_late__are_those_that_type_checkers_see():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    [seen] = [node for node in tree.body if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"]
    given = {alias.name: node.module for node in seen.body for alias in node.names}
    found = subprocess.run([sys.executable, "-c", "import thalweg, json; print(json.dumps(thalweg._LATER))"], capture_output=True, text=True,
                           check=True, timeout=60, env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), "THALWEG_BACKEND": "0"})
    late = json.loads(found.stdout)
    given = {name: module for name, module in given.items() if name in late or name != "DistributedOptimizer"}  # needs PyTorch
    assert given == late and len(late) > 15


def test_what_has_no_type__is_found():
    text = "class C:\n    def __init__(self, a): pass\n    def f(self, b: int, *c, d=1, **e): pass\ndef g() -> None: pass\n"
    assert untyped(text) == ["C.__init__: a", "C.f: d", "C.f: c", "C.f: e", "C.f: what it returns"]
