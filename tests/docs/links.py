"""Links of Markdown pages to files and headings of the repository, as a function that returns the dead ones."""
import re
from pathlib import Path

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
# Pages are also named in running text, from the top of the repository: `docs/pytorch.md`.
MENTION = re.compile(r"`(docs/[\w./-]+\.md)`")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(page: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    found = set()
    for heading in re.findall(r"^#{1,6} (.*)$", CODE.sub("", page), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        name = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        number, free = 0, name
        while free in found:
            number += 1
            free = f"{name}-{number}"
        found.add(free)
    return found


def dead_links(file: Path, root: Path) -> list[str]:
    text = CODE.sub("", file.read_text())
    found = []
    for one, other in LINK.findall(text):
        target = one or other
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (file.parent / path).resolve() if path else file
        if not place.exists():
            found.append(f"{file.relative_to(root)}: {target}: there is no such file")
        elif anchor and (place.suffix != ".md" or anchor not in anchors(place.read_text())):
            found.append(f"{file.relative_to(root)}: {target}: there is no such heading")
    for mention in MENTION.findall(text):
        if not (root / mention).exists():
            found.append(f"{file.relative_to(root)}: {mention}: there is no such file")
    return found
