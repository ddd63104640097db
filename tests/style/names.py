"""The namespaces of the layers, as a function that returns what is wrong with them.

Two types of one name in one namespace are undefined behaviour that no compiler sees when they are
in different sources: the linker keeps one of each inline function. So every layer has a namespace
of its own, and no namespace has a type of one name in two files.
"""
import re
from collections import defaultdict
from pathlib import Path

# The namespace of a layer, below `thalweg`. `base` holds the words that all layers use.
NAMESPACE = {"base": "", "switch": "switches"}
# Sources of `net` that implement classes of the public API, whose members are in `thalweg`.
PUBLIC_PARTS = re.compile(r"src/net/(group/api/communicator\w*|group/operation/operation|"
                          r"dlcp/(endpoint|transfer_state)\w*|dlcp/net_counters|"
                          r"ps/parameter_client)\.(h|cc)")
# Layouts that the kernel's program, which is C, shares.
C_LAYOUTS = {"src/switchd/xdp/atp_maps.h", "src/switchd/xdp/atp_slot.bpf.h"}

TOKEN = re.compile(r"""
    //[^\n]* | /\*.*?\*/                                  # comments
  | R"(?P<delimiter>[^()\s]*)\(.*?\)(?P=delimiter)"       # raw strings
  | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+'             # strings and characters
  | ^[ \t]*\#(?:\\\n|[^\n])*                              # the preprocessor's lines
  | (?P<namespace>\b(?:inline\s+)?namespace(?:\s+(?P<name>[\w:]+))?\s*\{)
  | (?P<type>\b(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+
      (?:alignas\([^)]*\)\s*|\[\[[^\]]*\]\]\s*)*(?P<type_name>\w+)
      (?:\s+final)?\s*(?::(?!:)[^;{}()]*)?\{)
  | (?P<open>\{) | (?P<close>\})
  """, re.VERBOSE | re.DOTALL | re.MULTILINE)


def defined_types(text: str):
    """Yields (namespace, name) for every type that `text` defines directly in a named namespace."""
    scopes = []  # per open brace: the namespace's name, "" for an unnamed one, None for other braces
    for token in TOKEN.finditer(text):
        if token["namespace"]:
            scopes.append(token["name"] or "")
        elif token["type"]:
            if None not in scopes and "" not in scopes:
                yield "::".join(scopes), token["type_name"]
            scopes.append(None)
        elif token["open"]:
            scopes.append(None)
        elif token["close"] and scopes:
            scopes.pop()


def expected_namespace(path: str) -> str:
    if path.startswith("include/") or PUBLIC_PARTS.fullmatch(path):
        return "thalweg"
    layer = path.split("/")[1]
    own = NAMESPACE.get(layer, layer)
    return f"thalweg::{own}" if own else "thalweg"


def name_violations(root: Path) -> list[str]:
    """Every type of src/ and include/ outside of its layer's namespace, or defined in two files."""
    found = []
    files = defaultdict(set)
    for folder in ("include", "src"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".h", ".cc"}:
                continue
            name = str(path.relative_to(root))
            if name in C_LAYOUTS:
                continue
            expected = expected_namespace(name)
            for namespace, defined in defined_types(path.read_text()):
                if namespace != expected and not namespace.startswith(expected + "::"):
                    found.append(f"{name}: {defined} is in '{namespace}', not in {expected}")
                files[namespace, defined].add(name)
    for (namespace, defined), where in sorted(files.items()):
        if len(where) > 1:
            found.append(f"{namespace}::{defined} is defined in {' and '.join(sorted(where))}")
    return found
