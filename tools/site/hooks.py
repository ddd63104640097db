"""Hooks of mkdocs: pages that are made from the program and the headers, and pages as GitHub reads them.

The pages of docs/ are written for GitHub and for this site. What mkdocs reads otherwise is changed here on the way:
lists and tables may follow a line of text, nested lists are indented by two, pages are named in running text
(`docs/switch.md`), and links may leave docs/.
"""
import logging
import os
import re
import sys
from pathlib import Path

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cli_pages  # noqa: E402
import header_pages  # noqa: E402

ROOT = Path(__file__).absolute().parents[2]
PROGRAM = ROOT / "build/release/thalweg"
log = logging.getLogger("mkdocs.hooks")
MENTION = re.compile(r"(?<!\[)`docs/([\w./-]+\.md)`")
LINK = re.compile(r"(?<!!)\[([^\]\n]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
ITEM = re.compile(r"(?:[-*+]|\d+\.) ")
FENCE = re.compile(r"\s*(```|~~~)")


def on_config(config):
    """Replaces patterns in the navigation by the pages that fit, in the order of their names."""
    def expanded(entries):
        result = []
        for entry in entries:
            if isinstance(entry, str) and "*" in entry:
                found = sorted(path.relative_to(config.docs_dir).as_posix() for path in Path(config.docs_dir).glob(entry))
                if not found:
                    log.warning("nav: no page fits '%s'", entry)
                result += found
            elif isinstance(entry, dict):
                result.append({name: expanded(value) if isinstance(value, list) else value for name, value in entry.items()})
            else:
                result.append(entry)
        return result

    config.nav = expanded(config.nav)
    return config


def on_files(files, config):
    """Adds the pages that nobody writes."""
    made = {"reference/cli.md": lambda: cli_pages.page(PROGRAM),
            "reference/cpp.md": lambda: header_pages.cpp_page(ROOT / "include/thalweg"),
            "reference/c.md": lambda: header_pages.c_page(ROOT / "include/thalweg"),
            "reference/changes.md": lambda: (ROOT / "CHANGELOG.md").read_text()}
    for name, make in made.items():
        try:
            text = make()
        except OSError as error:
            log.warning("%s: %s; `make docs` builds the program first", name, error)
            text = f"# {name}\n"
        files.append(File.generated(config, name, content=text))
    return files


def _blank_before_lists(lines):
    """A list or a table after a line of text gets an empty line before it; nested items are indented by four."""
    result, inside, fence = [], False, False
    for line in lines:
        if FENCE.match(line):
            if not fence and result and result[-1].strip():
                result.append("")
            fence = not fence
            result.append(line)
            continue
        if fence:
            result.append(line)
            continue
        stripped = line.lstrip(" ")
        indent = len(line) - len(stripped)
        item = bool(ITEM.match(stripped))
        before = result[-1] if result else ""
        if item and indent == 0:
            if before.strip() and not inside:
                result.append("")
            inside = True
        elif not stripped:
            pass
        elif indent == 0:
            if stripped.startswith("|") and before.strip() and not before.startswith("|"):
                result.append("")
            if not item and (not before.strip() or stripped.startswith(("#", "|"))):
                inside = False
        if inside and indent in (2, 3) and item:
            line = "    " + stripped
        result.append(line)
    return result


def _mentioned(match, page, files):
    path = match[1]
    if files.get_file_from_path(path) is None:
        return match[0]
    up = "../" * page.file.src_uri.count("/")
    return f"[{path.removesuffix('.md')}]({up}{path})"


def _leaving(match, page, config):
    """A link to a file of the repository that is not on the site becomes its name."""
    text, target, _ = match.groups()
    if re.match(r"[a-z]+:", target):
        return match[0]
    place = Path(os.path.normpath((Path(config.docs_dir) / page.file.src_uri).parent / target))  # links of folders stay
    if place.is_relative_to(config.docs_dir) or not place.exists():
        return match[0]
    return f"{text} (`{place.relative_to(ROOT).as_posix()}`)"


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri == "reference/changes.md":  # its links start at the top of the repository
        markdown = re.sub(r"\]\(docs/", "](../", markdown)
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    for i in range(0, len(parts), 2):
        parts[i] = MENTION.sub(lambda match: _mentioned(match, page, files), parts[i])
        parts[i] = LINK.sub(lambda match: _leaving(match, page, config), parts[i])
    return "\n".join(_blank_before_lists("".join(parts).splitlines()))
