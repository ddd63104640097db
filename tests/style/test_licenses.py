"""Nothing that is linked into the program or a module is under the GPL, and proof that the test would complain."""
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from licenses import (ALLOWED, HEADERS_IN_A_WHEEL, IN_A_WHEEL, archives_of, gpl_violations, names_gpl, package_violations,
                      packages_of)

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
PROGRAM = BUILD / "thalweg"
# A module is built where there is MPI or PyTorch.
MODULES = [*sorted(BUILD.glob("*.so")), *sorted((ROOT / "python" / "thalweg").glob("*.so"))]
BINARIES = [PROGRAM, *MODULES]
# What files say that tools fetch from PyPI: names with a version.
FROM_PYPI = ("tools/setup", "tools/site/requirements.txt", "Makefile")


@pytest.mark.parametrize("binary", BINARIES, ids=lambda path: path.name)
def test_nothing_linked_is_gpl(binary):
    assert gpl_violations(binary) == []


def test_licenses_document_names_every_package_that_is_linked():
    missing = set().union(*(packages_of(binary) for binary in BINARIES)) - listed()
    assert missing == set(), "docs/licenses.md has no line for these packages"


def listed():
    return set(re.findall(r"`([^`]+)`", (ROOT / "docs" / "licenses.md").read_text()))


def test_licenses_document_names_every_package_that_is_installed_to_build():
    setup = (ROOT / "tools" / "setup").read_text()
    libraries = re.search(r"# libraries\n(.*?)\n\s*#", setup, re.DOTALL).group(1).split()
    assert set(libraries) - listed() == set(), "docs/licenses.md has no line for these packages"


def pinned(text):
    return {name.lower() for name in re.findall(r"\b([A-Za-z][\w.-]*)==\d", text)}


def test_licenses_document_names_every_package_from_pypi():
    names = set().union(*(pinned((ROOT / file).read_text()) for file in FROM_PYPI))
    assert {"torch", "pandas", "jax", "lightning", "mkdocs"} <= names
    assert names - {name.lower() for name in listed()} == set(), "docs/licenses.md has no line for these packages"


def test_wheel__no_archive_in_it_is_gpl():
    """In a wheel libraries are linked as archives, which ldd does not see."""
    assert archives_of((ROOT / "cmake" / "ThalwegStandalone.cmake").read_text()) == set(IN_A_WHEEL)
    assert [why for package in (*IN_A_WHEEL.values(), *HEADERS_IN_A_WHEEL) for why in package_violations(package)] == []


def test_wheel__has_the_notices_of_all_that_is_in_it():
    copied = re.search(r"^for package in ((?:[^;]|\n)*?); do\n.*copyright", (ROOT / "tools/wheel").read_text(), re.MULTILINE)
    assert set(copied[1].replace("\\\n", " ").split()) == {*IN_A_WHEEL.values(), *HEADERS_IN_A_WHEEL}


def test_catches_an_archive_that_is_gpl_or_unknown(tmp_path):
    assert archives_of("set(X ${A}/libreadline.a -l:libm-2.a)") == {"libreadline.a", "libm-2.a"}
    (tmp_path / "libreadline-dev").mkdir()
    (tmp_path / "libreadline-dev/copyright").write_text(HEADER + "Files: *\nCopyright: A\nLicense: GPL-3+\n")
    [found] = package_violations("libreadline-dev", doc=tmp_path)
    assert "names the GPL" in found
    [found] = package_violations("libbpf-dev", doc=tmp_path)
    assert "is missing" in found
    assert "names the GPL" in package_violations("libbpf-dev", allowed={})[0]


def linked_with(tmp_path: Path, *libraries: str) -> Path:
    source, binary = tmp_path / "planted.c", tmp_path / "planted"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", source, "-o", binary, "-Wl,--no-as-needed", *libraries], check=True)
    return binary


def test_catches_a_program_that_is_linked_to_a_gpl_library(tmp_path):
    """libbfd is the GPL library that every machine has that can build: it belongs to the linker."""
    ours = next(Path("/usr/lib").glob("*-linux-gnu/libbfd-*.so"))
    found = gpl_violations(linked_with(tmp_path, str(ours)))
    assert any("libbfd" in line and "names the GPL" in line for line in found), found
    assert gpl_violations(linked_with(tmp_path)) == []


def test_catches_a_library_that_needs_a_gpl_library(tmp_path):
    """The program names only a library of its own, which in turn needs libbfd."""
    ours = next(Path("/usr/lib").glob("*-linux-gnu/libbfd-*.so"))
    (tmp_path / "between.c").write_text("int between(void) { return 0; }\n")
    between = tmp_path / "libbetween.so"
    subprocess.run(["gcc", "-shared", "-fPIC", tmp_path / "between.c", "-o", between, "-Wl,--no-as-needed", str(ours)],
                   check=True)
    found = gpl_violations(linked_with(tmp_path, str(between)))
    assert any("libbfd" in line for line in found), found
    assert any("libbetween.so: no Debian package holds it" in line for line in found), found


def test_catches_a_package_that_is_no_longer_allowed():
    """The C++ library is allowed only by the reason given for it."""
    allowed = {package: reason for package, reason in ALLOWED.items() if package != "libstdc++6"}
    assert len(gpl_violations(PROGRAM, allowed)) == 1


def test_catches_a_package_without_a_copyright_file(tmp_path):
    shutil.copytree("/usr/share/doc/libc6", tmp_path / "doc" / "libc6", symlinks=False)
    found = gpl_violations(PROGRAM, doc=tmp_path / "doc")
    assert any("libstdc++.so.6" in line and "is missing" in line for line in found), found
    assert not any("libc.so.6" in line for line in found), found


HEADER = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n"


@pytest.mark.parametrize("text,expected", [
    ("Files: *\nCopyright: A\nLicense: GPL-3+\n", True),
    ("Files: *\nCopyright: A\nLicense: Expat\n\nFiles: src/*\n tools/*\nLicense: GPL-2\n", True),
    ("Files: *\nCopyright: A\nLicense: Expat\n\nFiles: debian/*\nLicense: GPL-2+\n", False),
    ("Files: *\nCopyright: A\n B\nLicense: LGPL-2.1 or BSD-2-Clause\n", False),
    ("Files: *\nCopyright: A\nLicense: GPL-2+ or Artistic\n", False),
    ("Files: *\nCopyright: A\nLicense: GPL-2+ or GPL-3+\n", True),
    ("Files: *\nCopyright: A\nLicense: LGPL-3+\n", False),
    ("Files: *\nCopyright: A\nLicense: AGPL-3+\n", True),
    ("Files: *\nCopyright: A\n\nLicensed under the GPL.\n", True),
])
def test_copyright_files_are_read(text, expected):
    assert names_gpl(HEADER + text) == expected


def test_copyright_file_of_another_form__any_mention_counts():
    assert names_gpl("This is free software under the terms of the GNU General Public License.")
    assert not names_gpl("This is free software under the terms of the GNU Lesser General Public License (LGPL).")
