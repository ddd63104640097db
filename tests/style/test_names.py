"""One namespace a layer, no type twice in one, and proof that the test would complain."""
from pathlib import Path

import pytest

from names import defined_types, name_violations

ROOT = Path(__file__).resolve().parents[2]


def tree(root, files):
    for folder in ("src", "include/thalweg"):
        (root / folder).mkdir(parents=True)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_names():
    assert name_violations(ROOT) == []


def test_names__finds_the_types_there_are():
    """A reader that finds nothing would find no violation either."""
    found = set(defined_types((ROOT / "src/topology/topology.h").read_text()))
    assert {("thalweg::topology", "Topology"), ("thalweg::topology", "Link")} <= found


def test_names_catches_one_name_in_two_layers_of_one_namespace(tmp_path):
    tree(tmp_path, {"src/base/a.h": "namespace thalweg {\nstruct Link { int a; };\n}\n",
                    "include/thalweg/b.h": "namespace thalweg {\nclass Link final { };\n}\n"})
    assert name_violations(tmp_path) == [
        "thalweg::Link is defined in include/thalweg/b.h and src/base/a.h"]


def test_names_catches_one_name_twice_in_a_layer(tmp_path):
    tree(tmp_path, {f"src/net/{part}.cc": "namespace thalweg::net {\nenum class Kind { kA };\n}\n"
                    for part in ("a", "b")})
    assert name_violations(tmp_path) == [
        "thalweg::net::Kind is defined in src/net/a.cc and src/net/b.cc"]


@pytest.mark.parametrize("layer,namespace,expected", [
    ("net", "thalweg", "thalweg::net"), ("sim", "thalweg::net", "thalweg::sim"),
    ("switch", "thalweg::switch_", "thalweg::switches"), ("base", "other", "thalweg")])
def test_names_catches_a_type_outside_its_namespace(tmp_path, layer, namespace, expected):
    tree(tmp_path, {f"src/{layer}/a.h": f"namespace {namespace} {{\nstruct A {{}};\n}}\n"})
    assert name_violations(tmp_path) == [f"src/{layer}/a.h: A is in '{namespace}', not in {expected}"]


def test_names_allows_what_is_local(tmp_path):
    local = ("namespace thalweg::net {\nnamespace {\nstruct Part { int a = '{'; };  // struct B {\n}\n"
             'void f() { struct Part { }; g("{ struct C {"); }\nclass Outer { struct Inner { }; };\n}\n')
    tree(tmp_path, {"src/net/a.cc": local, "src/net/b.cc": local.replace("Outer", "Other")})
    assert name_violations(tmp_path) == []
