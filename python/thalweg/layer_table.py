"""Layer tables: what the simulator knows about a model (docs/model-format.md).

The files of models/ are layer tables. thalweg.record makes new ones.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layer:
    """The parameter tensors of one module, whose gradients become ready together."""

    name: str
    tensors: tuple[int, ...]  # elements of each tensor
    forward_us: float
    backward_us: float

    @property
    def params(self) -> int:
        return sum(self.tensors)


@dataclass(frozen=True)
class Table:
    """The layers of a model in the order in which a forward pass first needs them."""

    name: str
    batch: int  # samples per iteration
    sample: str  # what one sample is, in words
    device: str
    torch: str
    date: str  # ISO 8601
    layers: tuple[Layer, ...]
    dtype: str = "float32"
    device_scale: float = 1  # a reader multiplies every time by this
    notes: str = ""

    @property
    def params(self) -> int:
        return sum(layer.params for layer in self.layers)

    @property
    def forward_us(self) -> float:
        return sum(layer.forward_us for layer in self.layers)

    @property
    def backward_us(self) -> float:
        return sum(layer.backward_us for layer in self.layers)

    def to_yaml(self) -> str:
        header = {key: getattr(self, key) for key in _HEADER if getattr(self, key) != ""}
        lines = [f"{key}: {_scalar(value)}" for key, value in header.items()]
        return "\n".join([*lines, "layers:", *(_layer_line(layer) for layer in self.layers)]) + "\n"

    @classmethod
    def from_yaml(cls, text: str) -> "Table":
        """Reads the layout that to_yaml() writes, with one line per layer, and no other YAML."""
        head, layers = {}, []
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip() or line.startswith("#") or line == "layers:":
                continue
            if match := _LAYER.fullmatch(line):
                layers.append(_layer_from(match, number))
            elif (match := _FIELD.fullmatch(line)) and match["key"] in _HEADER and not layers:
                head[match["key"]] = _field(match["key"], match["value"], number)
            else:
                raise ValueError(f"line {number}: neither a field ({', '.join(_HEADER)}) nor a "
                                 f"layer: {line!r}")
        if missing := [key for key in _REQUIRED if key not in head]:
            raise ValueError(f"the table has no {', '.join(missing)}")
        if not layers:
            raise ValueError("the table has no layers")
        return cls(layers=tuple(layers), **head)

    def write(self, path: str | Path) -> None:
        Path(path).write_text(self.to_yaml(), encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> "Table":
        try:
            return cls.from_yaml(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


_HEADER = {"name": str, "batch": int, "sample": str, "dtype": str, "device": str,
           "device_scale": float, "torch": str, "date": str, "notes": str}
_REQUIRED = ("name", "batch", "sample", "device", "torch", "date")

_FIELD = re.compile(r"(?P<key>[a-z_]+): (?P<value>.+)")
_LAYER = re.compile(r'  - \{name: (?P<name>"(?:[^"\\]|\\.)*"|[^",]+), params: (?P<params>\d+)'
                    r"(?:, tensors: \[(?P<tensors>[\d, ]+)\])?"
                    r", forward_us: (?P<forward>\d+(?:\.\d+)?)"
                    r", backward_us: (?P<backward>\d+(?:\.\d+)?)\}")
# Text that needs no quotes in YAML: it begins with a letter and is no keyword.
_PLAIN = re.compile(r"(?!(?:true|false|yes|no|on|off|null|y|n)$)[A-Za-z][\w./ -]*(?<! )",
                    re.IGNORECASE | re.ASCII)


def _scalar(value: str | int | float) -> str:
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _field(key: str, text: str, line: int) -> str | int | float:
    try:
        return _HEADER[key](_unquoted(text))
    except ValueError as error:
        reason = error if _HEADER[key] is str else f"'{key}' is {text}: a number is needed"
        raise ValueError(f"line {line}: {reason}") from None


def _unquoted(text: str) -> str:
    if text[0] in "'{[&*!|>%@`#":
        raise ValueError(f"{text} is neither plain text nor in double quotes")
    return json.loads(text) if text.startswith('"') else text


def _layer_line(layer: Layer) -> str:
    tensors = f", tensors: {list(layer.tensors)}" if len(layer.tensors) > 1 else ""
    return (f"  - {{name: {_scalar(layer.name)}, params: {layer.params}{tensors}, "
            f"forward_us: {layer.forward_us:.3f}, backward_us: {layer.backward_us:.3f}}}")


def _layer_from(match: re.Match[str], line: int) -> Layer:
    params = int(match["params"])
    tensors = (params,)
    if match["tensors"]:
        tensors = tuple(int(size) for size in match["tensors"].split(","))
    if sum(tensors) != params:
        raise ValueError(f"line {line}: 'tensors' add up to {sum(tensors)}, but 'params' is "
                         f"{params}")
    return Layer(_unquoted(match["name"]), tensors, float(match["forward"]),
                 float(match["backward"]))
