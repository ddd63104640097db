"""Pages of the public headers: the comment at the top as text, the declarations as they are."""
import re
from pathlib import Path

C_HEADERS = ("thalweg.h", "thalweg_endpoint.h")
# Most useful first; the others follow by name.
ORDER = ("communicator.h", "tensor.h", "result.h", "types.h", "endpoint.h")


def parts_of(header: str) -> tuple[str, str]:
    """The comment that a header begins with, as text, and the rest without guards and includes."""
    lines = header.splitlines()
    about = []
    if lines and lines[0].startswith("//"):
        while lines and lines[0].startswith("//"):
            about.append(lines.pop(0)[2:].removeprefix(" ").rstrip())
    elif lines and lines[0].startswith("/*"):
        while lines:
            line = lines.pop(0)
            about.append(re.sub(r"^/?\*+/? ?|\*/$", "", line.strip()).rstrip())
            if line.rstrip().endswith("*/"):
                break
    body = "\n".join(line for line in lines if not re.match(r"#(pragma once|include)", line))
    return "\n".join(about).strip(), re.sub(r"\n{3,}", "\n\n", body).strip("\n")


def prose(about: str, language: str) -> list[str]:
    """The comment as paragraphs; what is indented is a sample."""
    found, sample = [], False
    for line in about.splitlines():
        if line.startswith("  ") != sample and line:
            sample = not sample
            found += ["", f"```{language}"] if sample else ["```", ""]
        found.append(line if sample else line.replace("<", "&lt;"))
    return [*found, *(["```"] if sample else []), ""]


def section(header: Path, language: str) -> list[str]:
    about, body = parts_of(header.read_text())
    return [f"## {header.name}", "", *prose(about, language), f"```{language}", body, "```", ""]


def cpp_page(folder: Path) -> str:
    headers = [header for header in folder.glob("*.h") if header.name not in C_HEADERS]
    headers.sort(key=lambda header: (ORDER.index(header.name) if header.name in ORDER else len(ORDER), header.name))
    lines = ["# C++", "", "The public headers, `#include <thalweg/…>`. [Linking Thalweg](../embedding.md) says how to build with them.", ""]
    for header in headers:
        lines += section(header, "cpp")
    return "\n".join(lines)


def c_page(folder: Path) -> str:
    lines = ["# C", "", "[Linking Thalweg](../embedding.md) has a whole program.", ""]
    for name in C_HEADERS:
        lines += section(folder / name, "c")
    return "\n".join(lines)
