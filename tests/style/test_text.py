"""Rules about the text of the tree that no compiler checks."""
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 400


def sources():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    return [ROOT / name for name in listed
            if re.match(r"(src|include|tests|tools|python)/", name) and (ROOT / name).is_file()
            and not name.startswith(("tests/fuzz/corpus", "tests/style/test_text"))]


def test_files_hold_one_idea():
    long = [(p.relative_to(ROOT), n) for p in sources() if p.suffix in {".cc", ".h", ".py"}
            and (n := p.read_text().count("\n")) > MOST_LINES]
    assert long == []


@pytest.mark.parametrize("word", ["TODO", "FIXME", "XXX", "HACK"])
def test_nothing_is_left_for_later(word):
    found = [p.relative_to(ROOT) for p in sources()
             if p.suffix in {".cc", ".h", ".py", ""} and re.search(rf"\b{word}\b", p.read_text())]
    assert found == []


def test_headers_are_guarded():
    # Highway compiles *-inl.h once per SIMD target, with a guard of its own.
    assert [p for p in sources() if p.suffix == ".h" and not p.name.endswith("-inl.h")
            and "#pragma once" not in p.read_text()] == []


def unnamed_folders(files, page):
    """The folders of sources that the page does not name, native Python modules taken together."""
    folders = {str(Path(name).parent) for name in files
               if re.match(r"(src|include|python)/", name) and not name.startswith("python/csrc")}
    return sorted(folder for folder in folders if not re.search(rf"`{re.escape(folder)}[`/]", page))


def test_every_folder_is_named_in_the_architecture():
    files = [str(p.relative_to(ROOT)) for p in sources() if p.suffix in {".cc", ".h", ".c", ".py"}]
    assert unnamed_folders(files, (ROOT / "docs/architecture.md").read_text()) == []


def test_folders_that_are_not_named__would_be_found():
    assert unnamed_folders(["src/net/io/fd.h", "src/attic/old.cc"], "`src/net/io`") == ["src/attic"]
