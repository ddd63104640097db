"""The layering and purity tests, and proof that they fail when they should."""
import json
import shlex
import subprocess
from pathlib import Path

import pytest

from layers import BELOW, IMPURE, PURE, impure_symbols, layering_violations

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"


def test_layering():
    assert layering_violations(ROOT) == []


def test_sources_include_their_own_header_first():
    """So every header that has a source compiles alone; the build checks the others."""
    for header in (ROOT / "src").rglob("*.h"):
        source = header.with_suffix(".cc")
        if source.exists():
            first = next(line for line in source.read_text().splitlines() if line.startswith("#include"))
            assert first == f'#include "{header.relative_to(ROOT / "src")}"', source


def test_every_folder_is_a_layer():
    assert {p.name for p in (ROOT / "src").iterdir() if p.is_dir()} <= set(BELOW)


@pytest.mark.parametrize("layer,include", [("base", "plan/plan.h"), ("tensor", "topology/topology.h"),
                                           ("topology", "plan/plan.h"), ("trace", "cli/main.h"),
                                           ("plan", "tensor/reduce.h"), ("lab", "cli/commands.h"),
                                           ("net", "lab/files.h"), ("sim", "lab/files.h")])
def test_layering_catches(tmp_path, layer, include):
    for folder in ("src/" + layer, "include/thalweg"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src" / layer / "bad.cc").write_text(f'#include "{include}"\n')
    assert layering_violations(tmp_path) == [f"src/{layer}/bad.cc: {layer} must not include {include}"]


def test_layering_catches_public_header_that_looks_inside(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "include/thalweg").mkdir(parents=True)
    (tmp_path / "include/thalweg/bad.h").write_text('#include "base/units.h"\n')
    assert len(layering_violations(tmp_path)) == 1


def test_compiler_refuses_what_layering_forbids(tmp_path):
    """A file compiled as part of `base` does not even find a header of `plan`."""
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    entry = next(c for c in commands if "CMakeFiles/thalweg_base.dir/" in c["command"])
    flags = [f for f in shlex.split(entry["command"]) if f.startswith(("-I", "-std", "-isystem"))]
    source = tmp_path / "bad.cc"

    def compile_with(header):
        source.write_text(f'#include "{header}"\n')
        return subprocess.run(["g++", *flags, "-fsyntax-only", source], capture_output=True, text=True)

    assert compile_with("base/prng.h").returncode == 0
    refused = compile_with("plan/plan.h")
    assert refused.returncode != 0
    assert "plan/plan.h: No such file" in refused.stderr


@pytest.mark.parametrize("layer", PURE)
def test_purity(layer):
    assert impure_symbols(BUILD / f"libthalweg_{layer}.a") == []


BAD_CODE = {
    "sockets": "#include <sys/socket.h>\nint f() { return socket(1, 2, 3); }",
    "clocks": "#include <chrono>\nlong f() "
              "{ return std::chrono::steady_clock::now().time_since_epoch().count(); }",
    "threads": "#include <thread>\nvoid f() { std::thread([] {}).join(); }",
    "files": "#include <fstream>\n#include <string>\nstd::string f() "
             '{ std::ifstream in("x"); std::string s; in >> s; return s; }',
    "random sources": "#include <cstdlib>\nint f() { return rand(); }",
    "the environment": '#include <cstdlib>\nconst char* f() { return getenv("HOME"); }',
    "standard streams": '#include <iostream>\nvoid f() { std::cout << 1; }',
}


def test_every_impurity_has_an_example():
    assert BAD_CODE.keys() == IMPURE.keys()


@pytest.mark.parametrize("what", BAD_CODE)
def test_purity_catches(tmp_path, what):
    source, obj, archive = tmp_path / "bad.cc", tmp_path / "bad.o", tmp_path / "libbad.a"
    source.write_text(BAD_CODE[what] + "\n")
    subprocess.run(["g++", "-std=c++20", "-O2", "-c", source, "-o", obj], check=True)
    subprocess.run(["ar", "rc", archive, obj], check=True)
    assert any(f"uses {what}:" in line for line in impure_symbols(archive))


def holders_of_a_path(folder, path):
    """The programs and modules in a build's folder that hold the path."""
    built = [folder / "thalweg", *folder.glob("*.so"), *ROOT.glob("python/thalweg/*.so")]
    return [file.name for file in built if str(path).encode() in file.read_bytes()]


def test_what_is_installed_holds_no_path_of_this_machine():
    """It finds its data beside itself, so it works where it is copied to."""
    assert {"libthalweg.so", "libnccl-net-thalweg.so"} <= {file.name for file in BUILD.glob("*.so")}
    assert holders_of_a_path(BUILD, ROOT) == []


def test_a_path_of_this_machine__would_be_found(tmp_path):
    (tmp_path / "thalweg").write_bytes(b"\0share\0")
    (tmp_path / "libthalweg.so").write_bytes(b"\0/home/me/src/thalweg/models\0")
    assert holders_of_a_path(tmp_path, "/home/me/src/thalweg") == ["libthalweg.so"]
