"""Every block of README.md runs as it is written, every link leads somewhere, and proof that a broken one is found."""
import subprocess
from pathlib import Path

import pytest
from blocks import ROOT, after, blocks_of, problem_of
from links import anchors, dead_links

README = ROOT / "README.md"
BLOCKS = blocks_of(README.read_text())


def pages():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split()
    return [name for name in listed if (ROOT / name).is_file()]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.language}-{block.line}")
def test_readme__every_block_runs(block, tmp_path):
    problem = problem_of(block, tmp_path / "checkout")
    if block.reason and not problem:
        pytest.skip(block.reason)
    assert problem is None, f"README.md:{block.line}: {problem}"


def test_readme__is_one_that_a_stranger_reads():
    assert len(README.read_text().splitlines()) <= 150
    assert {block.language for block in BLOCKS} == {"sh", "diff", "cpp"}


@pytest.mark.parametrize("page", pages())
def test_no_dead_link(page):
    assert dead_links(ROOT / page, ROOT) == []


@pytest.mark.parametrize("language,text,word", [
    ("sh", "build/release/thalweg plan no-such-command", "no-such-command"),
    ("sh", "false | true", "code 1"),
    ("sh", "echo $no_such_variable", "unbound"),
    ("python", "print(dist)", "NameError"),
    ("diff", " import sys\n-sys.exit(0)\n+sys.exit(3)\n", "code 3"),
    ("cpp", "#include <thalweg/communicator.h>\nint main() { return thalweg::no_such_name; }", "no_such_name"),
    ("cobol", "STOP RUN.", "cobol"),
    ("", "ls", "nobody knows"),
])
def test_a_broken_block__is_found(language, text, word, tmp_path):
    (block,) = blocks_of(f"# Page\n\nText.\n```{language}\n{text}\n```\n")
    assert block.line == 4
    assert word in (problem_of(block, tmp_path / "checkout") or "")


def test_a_block_that_is_not_run__needs_a_reason(tmp_path):
    marked, bare = blocks_of("<!-- not run: it takes hours -->\n```sh\nfalse\n```\n<!-- not run:  -->\n```sh\nfalse\n```\n")
    assert marked.reason == "it takes hours" and problem_of(marked, tmp_path) is None
    assert "no reason" in problem_of(bare, tmp_path)


def test_a_change__leaves_what_it_adds():
    assert after(" one\n-two\n+three\n\n four\n") == "one\nthree\n\nfour\n"


def test_commands_change_nothing_in_the_repository(tmp_path):
    (block,) = blocks_of("```sh\necho x > planted-by-a-test.svg\n```\n")
    assert problem_of(block, tmp_path / "checkout") is None
    assert (tmp_path / "checkout/planted-by-a-test.svg").exists() and not (ROOT / "planted-by-a-test.svg").exists()


def test_dead_links__are_found(tmp_path):
    (tmp_path / "there.md").write_text("# A `heading`, with 1 comma\n```\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text("[a](there.md) [b](there.md#a-heading-with-1-comma) [c](https://example.org/x) ![d](no.svg) [e](there.md#no)\n"
                    '<img src="gone.svg"> `docs/gone.md` [f](#self)\n```\n[in code](gone.md)\n```\n## Self\n')
    assert [line.split(": ")[1] for line in dead_links(page, tmp_path)] == ["no.svg", "there.md#no", "gone.svg", "docs/gone.md"]
    assert anchors("# Gb/s, one\n## Gb/s, one\n") == {"gbs-one", "gbs-one-1"}


def test_the_pages_that_the_readme_promises__are_there():
    assert {"docs/benchmarks.md", "docs/limits.md", "docs/commands.md"} <= set(pages())
