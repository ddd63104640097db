"""The pages name tests that show what they say. Each must be in the tree; and proof that one that is not is found."""
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Diaries, and decisions that a later one has replaced, have the names of their day.
PAGES = [page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
         if "measurements" not in page.parts and "\nSuperseded by" not in page.read_text()]
UNIT = re.compile(r"^\s*TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
# `Suite.case`, `Suite.*`, `test_file.py`, `test_file.py::test_case`, and `::test_case` of the file that was named before it.
NAMED = re.compile(r"`(?:[\w/.]*/)?(test_\w+\.py)?(?:::(test_\w+))?`|`([A-Z]\w+)\.(\*|[a-z]\w*__\w+)`")


def all_tests():
    """The names of all unit tests as (suite, case), and of all Python tests as (file, case)."""
    unit = {match for file in (ROOT / "tests/unit").rglob("*.cc") for match in UNIT.findall(file.read_text())}
    python = {(file.name, name) for file in (ROOT / "tests").rglob("*.py")
              for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}
    return unit, python


def missing(text, unit, python):
    suites, files, found, last = {suite for suite, _ in unit}, {file for file, _ in python}, [], ""
    for match in NAMED.finditer(text):
        file, case, suite, unit_case = match.groups()
        if suite and not (suite in suites if unit_case == "*" else (suite, unit_case) in unit):
            found.append(match[0])
        last = file or last
        if (file and file not in files) or (case and (last, case) not in python):
            found.append(match[0])
    return found


def test_tests_that_pages_name__are_there():
    unit, python = all_tests()
    assert {str(page.relative_to(ROOT)): names for page in PAGES if (names := missing(page.read_text(), unit, python))} == {}


def test_every_attack_of_the_security_page__names_a_test():
    section = (ROOT / "docs/security.md").read_text().partition("## Attacks that were tried")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 12 and [row for row in rows if not NAMED.search(row.split("|")[2])] == []


def test_a_test_that_is_not_there__is_found():
    unit, python = {("Fork", "wait__in_a_child")}, {("test_switch.py", "test_token")}
    right = "`Fork.*`, `Fork.wait__in_a_child`, `tests/cli/test_switch.py`, `test_switch.py::test_token`, `::test_token`, `std::span`"
    assert missing(right, unit, python) == []
    wrong = "`Forks.*`, `Fork.wait__gone`, `test_gone.py`, `test_switch.py::test_gone`, `::test_other`"
    assert missing(wrong, unit, python) == wrong.split(", ")
