"""The site (mkdocs.yml, tools/site): every page is in its navigation, it builds without a warning, loads nothing from other
hosts, no link is dead; and proof that what is wrong is found. The blocks of its tutorials run."""
import importlib.util
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from blocks import ROOT, THALWEG, blocks_of, checkout, problem_of

sys.path.insert(0, str(ROOT / "tools/site"))
import cli_pages  # noqa: E402
import header_pages  # noqa: E402

GENERATED = {"reference/cli.md", "reference/cpp.md", "reference/c.md", "reference/changes.md"}
TUTORIALS = [ROOT / "docs/get-started.md", *sorted(page for folder in ("train", "explore", "concepts")
                                                   for page in (ROOT / "docs" / folder).glob("*.md"))]
BLOCKS = [(page, block) for page in TUTORIALS for block in blocks_of(page.read_text())]
mkdocs = pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed: tools/setup docs")


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without making its Python objects."""


Loader.add_multi_constructor("", lambda loader, tag, node: None)


def named_in(entries, docs):
    """The pages that a navigation names; patterns stand for all pages that fit."""
    found = []
    for entry in entries:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        if isinstance(value, list):
            found += named_in(value, docs)
        elif "*" in value:
            found += [page.relative_to(docs).as_posix() for page in docs.glob(value)]
        else:
            found.append(value)
    return found


def test_navigation__names_every_page_once():
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")} | GENERATED
    named = named_in(yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"], ROOT / "docs")
    assert sorted(named) == sorted(pages)


@pytest.mark.parametrize("page,block", BLOCKS, ids=lambda one: one.stem if isinstance(one, Path) else f"{one.language}-{one.line}")
def test_tutorials__every_block_runs(page, block, tmp_path):
    problem = problem_of(block, tmp_path / "checkout")
    if block.reason and not problem:
        pytest.skip(block.reason)
    assert problem is None, f"{page.relative_to(ROOT)}:{block.line}: {problem}"


def test_concepts__each_has_one_picture_for_light_and_dark():
    for page in (ROOT / "docs/concepts").glob("*.md"):
        (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text())
        text = (page.parent / picture).read_text()
        assert "prefers-color-scheme:dark" in text and "<title>" in text, page.name
        assert len(page.read_text().split()) < 250, f"{page.name} is too long for a newcomer"


def test_gallery__every_picture_is_made_by_the_command_above_it():
    text = (ROOT / "docs/explore/gallery.md").read_text()
    made = re.findall(r"(?:--svg|--plot) ([\w.-]+)\n```\n!\[[^\]]+\]\(\.\./images/gallery/([\w.-]+)\)", text)
    assert len(made) == text.count("![") >= 4
    for written, shown in made:
        drawing = (ROOT / "docs/images/gallery" / shown).read_text()
        assert written == shown and "<svg" in drawing and "prefers-color-scheme: dark" in drawing, shown


# --- The build --------------------------------------------------------------------------------------

class Page(HTMLParser):
    """What a page links to, what it loads, and the places in it that can be linked to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.places = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.places |= {found[key] for key in ("id", "name") if found.get(key)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        elif tag in ("script", "img", "source", "iframe") or (tag == "link" and found.get("rel") == "stylesheet"):
            self.loads += [found[key] for key in ("src", "srcset", "href") if found.get(key)]


def problems_of(site):
    """What of a built site comes from other hosts, and which links lead nowhere."""
    pages = {path.resolve(): Page(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}
    problems = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        problems += [f"{name}: loads {one}" for one in page.loads if re.match(r"(https?:)?//", one)]
        for target in [*page.loads, *page.links]:
            if re.match(r"[a-z]+:|//", target):
                continue
            place, _, anchor = unquote(target).partition("#")
            file = (path.parent / place).resolve() if place else path
            if file.is_dir():
                file = file / "index.html"
            if not file.exists():
                problems.append(f"{name}: {target}: there is no such file")
            elif anchor and file in pages and anchor not in pages[file].places and anchor not in ("__skip", "only-light", "only-dark"):
                problems.append(f"{name}: {target}: there is no such place")
    return problems


def build(folder, site):
    return subprocess.run([folder / "tools/docs", site], capture_output=True, text=True, timeout=600, check=False)


@mkdocs
def test_site__builds_without_a_warning_and_no_link_is_dead(tmp_path):
    run = build(ROOT, tmp_path / "site")
    assert run.returncode == 0 and "WARNING" not in run.stderr, run.stderr
    assert problems_of(tmp_path / "site") == []
    assert len(list((tmp_path / "site").rglob("*.html"))) > 60
    python = (tmp_path / "site/reference/python.html").read_text()
    assert all(name in python for name in ("GradientState", "LayerWise", "DSSync", "PeerLost", "all_gather"))
    for name in ("plan.best", "plan.Rows.frame", "sim.sweep", "testbed.Testbed.run", "testbed.Testbed.stall", "testbed.Statistics.since",
                 "nccl.plugin"):
        assert f'id="thalweg.{name}"' in python, name
    assert "The seed of the random numbers." in python and "There is no such host." in python  # sections of a docstring
    assert "-------" not in python, "a section of numpydoc is shown as text"


@mkdocs
def test_site__what_is_wrong_fails_the_build(tmp_path):
    folder = checkout(tmp_path / "checkout")
    for name in ("docs", "tools", "mkdocs.yml"):
        (folder / name).unlink()
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copytree(ROOT / "tools", folder / "tools")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    (folder / "docs/index.md").write_text("# Thalweg\n\n[x](no-such-page.md) [y](limits.md#no-such-heading)\n")
    (folder / "docs/not-in-the-navigation.md").write_text("# Lost\n")
    run = build(folder, tmp_path / "site")
    assert run.returncode != 0
    for words in ("no-such-page.md", "no-such-heading", "not-in-the-navigation.md"):
        assert words in run.stderr


def test_dead_links_of_a_site__are_found(tmp_path):
    (tmp_path / "a.html").write_text('<h1 id="top"><a href="b.html#gone">x</a><a href="#top">y</a><a href="c.html">z</a>'
                                     '<script src="https://example.org/x.js"></script><a href="https://example.org">w</a>')
    (tmp_path / "b.html").write_text('<p id="there">')
    assert [one.split(": ", 1)[1] for one in problems_of(tmp_path)] == [
        "loads https://example.org/x.js", "b.html#gone: there is no such place", "c.html: there is no such file"]


# --- Pages that nobody writes -----------------------------------------------------------------------

def test_commands__all_are_on_the_page_with_their_options():
    page = cli_pages.page(ROOT / THALWEG)
    for heading in ("## thalweg plan", "### thalweg plan show", "### thalweg bench allreduce", "## thalweg run", "## thalweg top"):
        assert f"\n{heading}\n" in page
    assert re.search(r"^\| `--topology TEXT REQUIRED` \| a topology file", page, re.MULTILINE)
    assert "--help" not in re.sub(r"`thalweg … --help`|thalweg plan show --help", "", page)


def test_help__is_read_by_sections():
    about, parts = cli_pages.sections("does it\nUsage: x [OPTIONS]\n\nOptions:\n  -h,--help   help\n  --a-very-long-name TEXT\n"
                                      "                  on its own line\n\nRun jobs:\n  go    goes|on\n\nExamples:\n  x go\n")
    assert about == "does it" and list(parts) == ["Options", "Run jobs", "Examples"]
    assert cli_pages.entries(parts["Options"]) == [("-h,--help", "help"), ("--a-very-long-name TEXT", "on its own line")]
    assert cli_pages.commands_in(parts) == ["go"]
    about, parts = cli_pages.sections("usage: x [-h]\n         [--y Y]\n\ndoes it\n\noptions:\n  --y Y   what\n")
    assert about == "does it" and cli_pages.entries(parts["options"]) == [("--y Y", "what")]
    assert cli_pages.entries(["  --time Excludes: --a --b   how long"]) == [("--time", "how long")]
    assert cli_pages.cell("goes|on <x>") == "goes\\|on &lt;x>"


def test_headers__are_shown_with_what_they_say_first():
    about, body = header_pages.parts_of("// One line,\n// and <another>.\n#pragma once\n\n#include <x>\n\n\nint f();\n")
    assert about == "One line,\nand <another>." and body == "int f();"
    assert header_pages.parts_of("/* C, too.\n * More. */\nint f(void);\n") == ("C, too.\nMore.", "int f(void);")
    assert header_pages.prose("Says <this>.\n\n  auto x;\n\nMore.", "cpp") == [
        "Says &lt;this>.", "", "", "```cpp", "  auto x;", "", "```", "", "More.", ""]
    page = header_pages.cpp_page(ROOT / "include/thalweg")
    assert page.index("## communicator.h") < page.index("## endpoint.h") and "## thalweg.h" not in page
    page = header_pages.c_page(ROOT / "include/thalweg")
    assert "thalweg_allreduce" in page and "thalweg_peer_send" in page
