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


def riddles(text):
    """Lines of comments that begin a sentence with "Of": its subject, which comes first, is missing or hidden."""
    return [line.strip() for line in re.findall(r"^[ \t]*(?://+|\#+|\*)[ \t]*Of\b.*$", text, re.MULTILINE)]


def test_comments_say_their_subject_first():
    assert {str(p.relative_to(ROOT)): found for p in [*sources(), ROOT / "CMakeLists.txt", *ROOT.glob("cmake/*.cmake")]
            if p.suffix in {".cc", ".h", ".c", ".py", ".cmake", ".txt", ""} and (found := riddles(p.read_text()))} == {}


def test_comments_without_a_subject__would_be_found():
    planted = "int a;\n  // Of the worker.\n# Of three, the last.\n * Of it.\n// Offers it.\n// One of it.\n"
    assert riddles(planted) == ["// Of the worker.", "# Of three, the last.", "* Of it."]


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


def pictures_that_no_page_shows(files, pages):
    """`pages`: their texts. A page names a picture by its path, from wherever it stands itself."""
    return [name for name in files if name.endswith((".svg", ".png", ".pdf"))
            and not any(name.removeprefix("docs/").removeprefix("measurements/") in page for page in pages)]


def test_tracked_pictures_are_shown_by_a_page():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    pages = [(ROOT / name).read_text() for name in listed if name.endswith(".md") and (ROOT / name).is_file()]
    assert pictures_that_no_page_shows(listed, pages) == []


def test_pictures_that_nobody_sees__would_be_found():
    files = ["docs/images/a.svg", "docs/measurements/images/b.svg", "reproduce/c.svg", "src/d.cc"]
    assert pictures_that_no_page_shows(files, ["![](../images/a.svg)", "[figure](images/b.svg)"]) == ["reproduce/c.svg"]


X86 = re.compile(r"__x86_64__|__SSE\w+__|HWY_ARCH_X86|HWY_TARGET\b.*HWY_AVX|_?mmintrin\.h|__builtin_cpu_supports")


def test_the_page_of_limits_names_what_is_written_for_x86():
    found = {str(p.relative_to(ROOT / "src")) for p in sources() if (ROOT / "src") in p.parents and X86.search(p.read_text())}
    table = (ROOT / "docs/limits.md").read_text().partition("| sources | on x86 | elsewhere |\n")[2].partition("\n\n")[0]
    named = {name for line in table.splitlines() for name in re.findall(r"`([\w/.-]+)`", line.split("|")[1])}
    assert len(found) >= 5 and found == named
