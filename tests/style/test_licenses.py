"""Nothing that is linked into the program or a module is under the GPL, and proof that the test would complain."""
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from licenses import ALLOWED, gpl_violations, names_gpl, packages_of

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
PROGRAM = BUILD / "thalweg"
# A module is built where there is MPI or PyTorch.
MODULES = [*sorted(BUILD.glob("*.so")), *sorted((ROOT / "python" / "thalweg").glob("*.so"))]
BINARIES = [PROGRAM, *MODULES]


@pytest.mark.parametrize("binary", BINARIES, ids=lambda path: path.name)
def test_nothing_linked_is_gpl(binary):
    assert gpl_violations(binary) == []


def test_licenses_document_names_every_package_that_is_linked():
    listed = set(re.findall(r"`([^`]+)`", (ROOT / "docs" / "licenses.md").read_text()))
    missing = set().union(*(packages_of(binary) for binary in BINARIES)) - listed
    assert missing == set(), "docs/licenses.md has no line for these packages"


def test_licenses_document_names_every_package_that_is_installed_to_build():
    setup = (ROOT / "tools" / "setup").read_text()
    libraries = re.search(r"# libraries\n(.*?)\n\s*#", setup, re.DOTALL).group(1).split()
    listed = set(re.findall(r"`([^`]+)`", (ROOT / "docs" / "licenses.md").read_text()))
    assert set(libraries) - listed == set(), "docs/licenses.md has no line for these packages"


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
