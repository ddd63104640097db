"""The page of all commands, from what the program itself prints with --help."""
import re
import subprocess
from pathlib import Path

NO_COMMANDS = ("Examples", "Options", "options", "Usage")


def help_of(program: Path, words: list[str]) -> str:
    return subprocess.run([program, *words, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout


def sections(text: str) -> tuple[str, dict[str, list[str]]]:
    """What a help page says first, and its sections: a line that ends with a colon, and the indented lines below it."""
    about, found, current = [], {}, None
    # Commands that are Python programs begin with their usage, over several lines.
    text = re.sub(r"\Ausage: .*?\n\n", "", text, flags=re.DOTALL)
    for line in text.splitlines():
        if re.fullmatch(r"\S.*:", line) and not line.startswith("Usage"):
            current = found.setdefault(line[:-1], [])
        elif current is not None and line.startswith(" "):
            current.append(line)
        elif current is None and line and not line.startswith("Usage"):
            about.append(line)
    return " ".join(about), found


def entries(lines: list[str]) -> list[tuple[str, str]]:
    """Names and explanations: two columns, or the explanation on lines of its own."""
    found: list[tuple[str, str]] = []
    for line in lines:
        name, _, explanation = line.strip().partition("  ")
        name = re.sub(r" (?:Excludes|Needs): .*", "", name)
        if len(line) - len(line.lstrip()) > 4 and found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}".strip())
        else:
            found.append((name.strip(), explanation.strip()))
    return found


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def commands_in(parts: dict[str, list[str]]) -> list[str]:
    return [name for title, lines in parts.items() if title.split()[0] not in NO_COMMANDS
            for name, _ in entries(lines) if re.fullmatch(r"[a-z][a-z0-9-]*", name)]


def described(program: Path, words: list[str]) -> list[str]:
    """The section of one command, and those of its subcommands."""
    text = help_of(program, words)
    about, parts = sections(text)
    below = commands_in(parts)
    usage = re.search(r"^Usage: (.*)$", text, re.MULTILINE)
    lines = [f"{'##' if len(words) < 2 else '###'} thalweg {' '.join(words)}".rstrip(), "", about, ""]
    if usage and not below:
        lines += [f"Usage: `{usage[1]}`", ""]
    for title, rows in parts.items():
        if title.startswith("Examples"):
            if not below or not words:
                lines += ["```", *(row[2:] for row in rows), "```", ""]
            continue
        options = [(name, why) for name, why in entries(rows) if not re.match(r"(-h, ?)?--help(-all)?\b", name)]
        if options:
            lines += [f"| {title.lower()} | |", "|---|---|", *(f"| `{cell(name)}` | {cell(why)} |" for name, why in options), ""]
    for name in below:
        lines += described(program, [*words, name])
    return lines


def page(program: Path) -> str:
    if not program.exists():
        raise FileNotFoundError(f"{program} is missing")
    return "\n".join(["# Every command", "", "Made from `thalweg … --help`. [Commands](../commands.md) has examples and what they write.",
                      "", *described(program, [])]) + "\n"
