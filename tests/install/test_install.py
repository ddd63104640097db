"""An installed copy: programs outside of the tree in C++ and C, what the library exports, the program and its data."""
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from licenses import gpl_violations, linked_libraries

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = Path(__file__).parent / "outside"
RANKS = 2

# The classes of the public headers whose members the library defines.
CLASSES = "Communicator|Operation|Endpoint|Peer|Transfer|ParameterClient"
PUBLIC = re.compile(rf"thalweg_[a-z_]+|thalweg::({CLASSES})::(~?({CLASSES})|[a-z]\w*|operator=)(\[abi:cxx11\])?\(.*|"
                    r"thalweg::(read_job_key|fail_without_value|fail_without_error)\(.*")


def run(*command, cwd=None, timeout=300, **environment):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=timeout,
                          env=os.environ | environment)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def on_ranks(prefix, program, **environment):
    """Runs a program on RANKS ranks by the installed launcher. Returns the lines that the ranks printed."""
    out = run(prefix / "bin/thalweg", "run", "-n", RANKS, "--", program, cwd=program.parent, timeout=120, **environment)
    return sorted(line.split("] ", 1)[1] for line in out.splitlines() if re.match(r"\[\d+\] ", line))


def exported(library):
    lines = run("nm", "-D", "--defined-only", "-C", library).splitlines()
    return [line.split(" ", 2)[2] for line in lines]


def declared(header):
    """The functions that the C header declares."""
    text = re.sub(r"//[^\n]*", "", (ROOT / "include/thalweg" / header).read_text())
    return set(re.findall(r"\b(thalweg_\w+)\(", text))


def compile_c(prefix, source, program):
    """Compiles a program in C as its users would."""
    flags = run("pkg-config", "--cflags", "--libs", "thalweg", PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig")).split()
    run("cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", source, "-o", program, *flags)


def test_cmake_project_outside_of_the_tree__sums_on_two_ranks(prefix, tmp_path):
    shutil.copytree(OUTSIDE, tmp_path / "source")
    run("cmake", "-S", "source", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}", cwd=tmp_path)
    run("cmake", "--build", "build", cwd=tmp_path)
    assert on_ranks(prefix, tmp_path / "build/outside") == [
        f"rank {rank} of 2: sum 3, library 0.1.0, header 0.1.0" for rank in range(RANKS)]


C_PROJECT = """cmake_minimum_required(VERSION 3.20)
project(outside_in_c LANGUAGES C)
find_package(Thalweg {version} REQUIRED)
add_executable(sum {source})
target_compile_options(sum PRIVATE -std=c99 -Wall -Wextra -Wpedantic -Werror)
target_link_libraries(sum PRIVATE Thalweg::thalweg)
"""


def test_cmake_project_in_c__needs_no_compiler_of_cpp(prefix, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(C_PROJECT.format(version="0.1", source=ROOT / "examples/allreduce.c"))
    run("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_COMPILER=/nowhere/c++", cwd=tmp_path)
    run("cmake", "--build", "build", cwd=tmp_path)
    assert on_ranks(prefix, tmp_path / "build/sum") == [f"rank {rank} of 2: sum 3, mean 1.5" for rank in range(RANKS)]


@pytest.mark.parametrize("version", ["0.0", "0.2", "1.0"])
def test_cmake_package__of_another_minor_version_is_refused(prefix, tmp_path, version):
    (tmp_path / "CMakeLists.txt").write_text(C_PROJECT.format(version=version, source=ROOT / "examples/allreduce.c"))
    done = subprocess.run(["cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}"], cwd=tmp_path, text=True,
                          capture_output=True, timeout=60, check=False)
    words = " ".join(done.stderr.split())
    assert done.returncode != 0 and f'compatible with requested version "{version}"' in words and "version: 0.1.0" in words, words


def test_c_program_by_pkg_config__sums_on_two_ranks(prefix, tmp_path):
    assert run("pkg-config", "--modversion", "thalweg", PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig")).strip() == "0.1.0"
    compile_c(prefix, ROOT / "examples/allreduce.c", tmp_path / "sum")
    assert on_ranks(prefix, tmp_path / "sum", LD_LIBRARY_PATH=str(prefix / "lib")) == [
        f"rank {rank} of 2: sum 3, mean 1.5" for rank in range(RANKS)]


def test_c_program_of_the_page__runs(prefix, tmp_path):
    """docs/embedding.md: the first block in C."""
    block = re.search(r"```c\n(.*?)```", (ROOT / "docs/embedding.md").read_text(), re.DOTALL).group(1)
    (tmp_path / "sum.c").write_text(block)
    compile_c(prefix, tmp_path / "sum.c", tmp_path / "sum")
    assert on_ranks(prefix, tmp_path / "sum", LD_LIBRARY_PATH=str(prefix / "lib")) == ["sum 2", "sum 2"]


def test_c_program_that_sends_to_another__over_dlcp(prefix, tmp_path):
    program = tmp_path / "transfer"
    compile_c(prefix, ROOT / "examples/transfer.c", program)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = os.environ | {"LD_LIBRARY_PATH": str(prefix / "lib")}
    processes = [subprocess.Popen([program, role, address], env=environment, stdout=subprocess.PIPE, text=True)
                 for role in ("recv", "send")]
    received, sent = (process.communicate(timeout=60)[0] for process in processes)
    assert [process.returncode for process in processes] == [0, 0]
    said = r"(\w+): ([\d.]+) % arrived, (\d+) values missing, sum (\d+)\n"
    role, percent, missing, total = re.fullmatch(said, received).groups()
    assert role == "recv" and float(percent) >= 99 and int(missing) + int(total) == 100_000
    assert re.fullmatch(said, sent).groups() == ("send", percent, "0", "100000")
    assert subprocess.run([program], env=environment, stderr=subprocess.DEVNULL, check=False).returncode == 2


def test_moved_prefix__still_serves(prefix, tmp_path):
    """Neither pkg-config nor CMake's package holds the path of the prefix."""
    moved = tmp_path / "moved"
    shutil.copytree(prefix, moved, symlinks=True)
    flags = run("pkg-config", "--cflags", "--libs", "thalweg", PKG_CONFIG_PATH=str(moved / "lib/pkgconfig")).split()
    found = {Path(flag[2:]).resolve() for flag in flags if flag.startswith(("-L", "-I"))}
    assert found == {moved / "include", moved / "lib"}
    texts = [path for path in (moved / "lib/cmake/Thalweg").iterdir() if str(prefix) in path.read_text()]
    assert texts == []


def test_library__has_a_version(prefix):
    library = prefix / "lib/libthalweg.so"
    assert library.is_symlink() and library.resolve().name == "libthalweg.so.0.1.0"
    assert "[libthalweg.so.0.1]" in run("readelf", "-d", library)


def test_library__exports_the_public_api_and_nothing_else(prefix):
    names = exported(prefix / "lib/libthalweg.so")
    assert [name for name in names if not PUBLIC.fullmatch(name)] == []
    assert [name for name in names if "::Core" in name.split("(")[0] or "::start_" in name] == []
    assert {name for name in names if name.startswith("thalweg_")} == declared("thalweg.h") | declared("thalweg_endpoint.h")


def test_library__exports_every_member_that_the_sources_define(prefix):
    """src/capi/exports.map has a line for each function of the public classes."""
    lines = run("nm", "-C", "--defined-only", ROOT / "build/release/libthalweg_net.a").splitlines()
    defined = {line.split(" T ", 1)[1] for line in lines if " T " in line}
    private = re.compile(r".*::start_\w+\(.*|.*::\w+\(std::unique_ptr<.*")
    public = {name for name in defined if PUBLIC.fullmatch(name) and not private.fullmatch(name)}
    assert len(public) > 50 and public - set(exported(prefix / "lib/libthalweg.so")) == set()


def test_a_private_symbol__would_be_found(tmp_path):
    (tmp_path / "planted.cc").write_text("namespace thalweg::net { int planted() { return 1; } }\n")
    run("c++", "-shared", "-fPIC", "planted.cc", "-o", "planted.so", cwd=tmp_path)
    names = exported(tmp_path / "planted.so")
    assert any(not PUBLIC.fullmatch(name) for name in names), names


def test_library__links_nothing_under_the_gpl(prefix):
    library = prefix / "lib/libthalweg.so"
    assert any(name.startswith("libfmt") for name, _ in linked_libraries(library))
    assert gpl_violations(library) == []


def test_headers__are_those_of_the_tree(prefix):
    installed = {path.name: path.read_text() for path in (prefix / "include/thalweg").iterdir()}
    assert installed == {path.name: path.read_text() for path in (ROOT / "include/thalweg").glob("*.h")}


def test_program__finds_its_data(prefix, tmp_path):
    program = prefix / "bin/thalweg"
    assert "0.1.0" in run(program, "--version", cwd=tmp_path)
    out = run(program, "sim", "run", prefix / "share/thalweg/scenarios/loss.yaml", cwd=tmp_path, timeout=120)
    assert out.strip()
    for folder in ("models", "scenarios", "topologies", "experiments"):
        listed = {path.name for path in (ROOT / folder).iterdir() if path.is_file()}
        assert listed <= {path.name for path in (prefix / "share/thalweg" / folder).iterdir()}, folder


def test_licences__are_installed(prefix):
    documents = prefix / "share/doc/thalweg"
    assert (documents / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (documents / "licenses.md").exists()
