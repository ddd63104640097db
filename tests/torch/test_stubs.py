"""The type stubs of the native modules name what the modules have, with the same parameters; and proof that what differs is found."""
import ast
import importlib
import re
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "python/thalweg"
sys.path.insert(0, str(PACKAGE.parent))
STUBS = sorted(PACKAGE.glob("*.pyi"))


def parameters_of(function):
    """The parameters of a stub's function without self: name, and whether it has a default."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [False] * (len(plain) - len(arguments.defaults)) + [True] * len(arguments.defaults)
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    listed = [(one.arg, default) for one, default in zip(plain, defaults, strict=True)]
    return [one for one in listed if one[0] != "self"] + [(one.arg, default is not None) for one, default in named]


def of_stub(text):
    """What a stub names: "Class.method" or "function" with its parameters, None for what is no function."""
    found = {}

    def note(place, nodes):
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                found[node.name] = None
                note(f"{node.name}.", node.body)
            elif isinstance(node, ast.FunctionDef):
                is_property = any(isinstance(one, ast.Name) and one.id == "property" for one in node.decorator_list)
                found[place + node.name] = None if is_property else parameters_of(node)
            elif isinstance(node, ast.AnnAssign):
                found[place + node.target.id] = None

    note("", ast.parse(text).body)
    return found


def words_of(signature):
    """The parameters in a line such as "f(self: m.C, a: dict[str, int], *, b: float = 2.0) -> None"."""
    inside = signature[signature.index("(") + 1:signature.rindex(") -> ")]
    parts, depth = [""], 0
    for letter in inside:
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    parts = [part.strip() for part in parts if part.strip() not in ("", "*")]
    return [(re.match(r"\w+", part)[0], " = " in part) for part in parts if not part.startswith("self:")]


def of_module(module):
    """The same of a module that was loaded. pybind11 writes signatures into docstrings."""
    found = {}

    def note(place, owner, names):
        for name in names:
            member = getattr(owner, name)
            if isinstance(member, type):
                found[name] = None
                note(f"{name}.", member, [one for one in vars(member) if one == "__init__" or not one.startswith("_")])
            else:
                found[place + name] = words_of(member.__doc__.splitlines()[0]) if callable(member) else None

    note("", module, [name for name in vars(module) if not name.startswith("_")])
    return found


def differences(stub, module):
    lines = [f"no such name in the module: {name}" for name in sorted(stub.keys() - module.keys())]
    lines += [f"not in the stub: {name}" for name in sorted(module.keys() - stub.keys())]
    for name in sorted(stub.keys() & module.keys()):
        given, wanted = stub[name], module[name]
        if (given is None) != (wanted is None):
            lines.append(f"{name}: a function in one of them only")
        elif given is not None:
            # Parameters without a name in C++ are arg0, arg1, … for pybind11.
            named = [(one[0], two[1]) if re.fullmatch(r"arg\d+", two[0]) else two
                     for one, two in zip(given, wanted)] + wanted[len(given):]
            if given != named:
                lines.append(f"{name}: {given}, but the module has {named}")
    return lines


def test_every_native_module_has_a_stub():
    folders = {"_C" if folder.name == "csrc" else folder.name.removeprefix("csrc")
               for folder in (PACKAGE.parent).glob("csrc*")}
    assert {file.stem for file in STUBS} == folders and len(STUBS) >= 4


@pytest.mark.parametrize("file", STUBS, ids=lambda file: file.stem)
def test_stub__is_what_the_module_has(file):
    pytest.importorskip("torch")
    module = importlib.import_module(f"thalweg.{file.stem}")
    stub = {name: what for name, what in of_stub(file.read_text()).items()}
    assert len(stub) > 4 and differences(stub, of_module(module)) == []


def test_what_differs__is_found():
    stub = of_stub("version: str\nclass C:\n    def __init__(self, a: int, b: float = 1.0) -> None: ...\n    @property\n"
                   "    def size(self) -> int: ...\n    def gone(self) -> None: ...\n    def same(self, x: int) -> None: ...\n"
                   "    def other(self, x: int, *, y: str) -> None: ...\n")
    module = {"version": None, "C": None, "C.__init__": words_of("__init__(self: m.C, a: int, b: float) -> None"), "C.size": None,
              "C.same": words_of("same(self: m.C, arg0: typing.SupportsInt) -> None"), "C.new": [],
              "C.other": words_of("other(self: m.C, x: dict[str, int], *, z: str = 'a') -> None")}
    assert differences(stub, module) == [
        "no such name in the module: C.gone", "not in the stub: C.new",
        "C.__init__: [('a', False), ('b', True)], but the module has [('a', False), ('b', False)]",
        "C.other: [('x', False), ('y', False)], but the module has [('x', False), ('z', True)]"]
