"""Figures from plain data: what is refused and how, and that the same data gives the same bytes."""
import copy
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

SCRIPT = Path(__file__).resolve().parents[2] / "python/thalweg/lab/figures/draw.py"
sys.path.insert(0, str(SCRIPT.parents[3]))
from thalweg.lab.figures.check import KINDS, FigureError, check  # noqa: E402
from thalweg.lab.figures.draw import draw, render  # noqa: E402
from thalweg.lab.figures.style import DARK, INK, MUTED, PALETTE, PAPER, follow_page  # noqa: E402


def panel(kind="lines", **changes):
    series = [{"name": "ours", "x": [1, 2, 4], "y": [3, None, 5], "color": 0},
              {"name": "paper", "x": [1, 2, 4], "y": [2, 3, 4], "color": 0, "reference": True}]
    made = {"kind": kind, "title": "a panel", "x_label": "x", "y_label": "y", "series": series,
            "marks": [{"x": 2, "label": "link down"}, {"x": 2.1, "label": "link up"}, {"x": 3}],
            "references": [{"y": 4, "label": "limit"}]}
    if kind == "bars":
        made["categories"] = ["2:1", "4:1", "8:1"]
        del made["marks"]
        for one in series:
            del one["x"]
    return {**made, **changes}


def figure(*panels):
    return {"title": "a figure", "panels": list(panels) or [panel()]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("image_format,start", [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_every_kind_in_every_format(kind, image_format, start):
    image = render(figure(panel(kind)), image_format)
    assert image.startswith(start) and len(image) > 1000
    assert image == render(figure(panel(kind)), image_format)


def test_image_is_of_the_data():
    """Another value, another picture; a title and labels are drawn."""
    plain = render(figure(), "svg")
    for change in [("title", "other"), ("log_x", True), ("x_label", "z"), ("y_range", [0, 9]), ("x_ticks", [1, 3]),
                   ("marks", []), ("references", [])]:
        assert render(figure(panel(**dict([change]))), "svg") != plain, change
    moved = panel()
    moved["series"][0]["y"][0] = 2.5
    assert render(figure(moved), "svg") != plain


def test_size_grows_with_the_grid():
    def size(image):
        return struct.unpack(">II", image[16:24])

    one = size(render(figure(panel()), "png"))
    four = size(render({**figure(*[panel()] * 4), "columns": 2}, "png"))
    assert four[0] == 2 * one[0] and one[1] < four[1]
    large = size(render({**figure({**panel(), "large": True}, panel(), panel()), "columns": 2}, "png"))
    assert large[0] == four[0] and four[1] < large[1]  # a row of its own, higher than that of the two others


def test_marks_in_a_crowd():
    """More labels than there is room for are left out, and that is said."""
    crowd = [{"x": 1 + i / 100, "label": f"something long happened, number {i}"} for i in range(30)]
    image = render(figure(panel(marks=crowd)), "png")
    assert image != render(figure(panel(marks=crowd[:4])), "png")


def test_nothing_to_show():
    assert render(figure(panel(series=[], marks=[], references=[])), "svg")
    gaps = [{"name": "a", "x": [1, 2], "y": [None, None]}]
    assert render(figure(panel(series=gaps)), "svg")


def bad(path, value):
    """A figure with one thing wrong; path as in panels.0.kind."""
    made = copy.deepcopy(figure(panel(), panel("bars")))
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    node = made
    for part in parents:
        node = node[part]
    if value is KeyError:
        del node[last]
    else:
        node[last] = value
    return made


@pytest.mark.parametrize("path,value,words", [
    ("panels", [], ["figure.panels", "at least 1"]),
    ("panels", [panel()] * 65, ["65", "at most 64"]),
    ("panel", [], ["unknown key 'panel'", "panels"]),
    ("columns", 0, ["figure.columns", "0"]),
    ("title", 3, ["figure.title", "3"]),
    ("narrow", 1, ["figure.narrow", "1"]),
    ("panels.0.large", 1, ["figure.panels[0].large", "1"]),
    ("panels.0", "x", ["figure.panels[0].kind", "'x'"]),
    ("panels.0.kind", "pie", ["panels[0].kind", "pie", "lines", "bars"]),
    ("panels.0.log_x", "yes", ["panels[0].log_x", "yes"]),
    ("panels.0.colour", 1, ["panels[0]", "colour", "title"]),
    ("panels.0.series", KeyError, ["panels[0]", "'series' is missing"]),
    ("panels.0.series.1.y", [1, 2], ["series[1].y", "2 values", "3"]),
    ("panels.0.series.1.y.2", "5", ["series[1].y[2]", "'5'"]),
    ("panels.0.series.1.x.0", None, ["series[1].x[0]", "None"]),
    ("panels.0.series.1.x.0", float("nan"), ["series[1].x[0]", "nan"]),
    ("panels.0.series.0.color", -1, ["series[0].color", "-1"]),
    ("panels.0.marks.0", {"label": "when?"}, ["marks[0]", "'x' is missing"]),
    ("panels.0.references.0.y", None, ["references[0].y", "None"]),
    ("panels.0.x_range", [2, 1], ["x_range", "[2, 1]"]),
    ("panels.1.categories", KeyError, ["panels[1]", "'categories' is missing"]),
    ("panels.1.categories", ["a"], ["panels[1].series[0].y", "3 values", "1 categories"]),
    ("panels.1.marks", [{"x": 1}], ["panels[1].marks", "categories"]),
])
def test_refused(path, value, words):
    with pytest.raises(FigureError) as refused:
        check(bad(path, value))
    for word in words:
        assert word in str(refused.value)


def test_logarithmic_axes_take_no_zero():
    zero = [{"name": "a", "x": [0, 1], "y": [1, 1]}]
    with pytest.raises(FigureError, match=r"series\[0\]\.x\[0\].*logarithmic"):
        check(figure(panel(series=zero, log_x=True)))
    check(figure(panel(series=zero)))


def test_stack_shares_its_x():
    series = [{"name": "a", "x": [0, 1], "y": [1, 1]}, {"name": "b", "x": [0, 2], "y": [1, 1]}]
    with pytest.raises(FigureError, match="share their x"):
        check(figure(panel("stack", series=series)))


def test_draw_refuses_other_endings(tmp_path):
    with pytest.raises(FigureError, match=r"\.svg, \.png, \.pdf"):
        draw(figure(), tmp_path / "a.gif")
    assert list(tmp_path.iterdir()) == []


def test_draw_leaves_nothing_half_written(tmp_path):
    with pytest.raises(FigureError):
        draw({"panels": []}, tmp_path / "a.svg")
    with pytest.raises(OSError):
        draw(figure(), tmp_path / "no" / "a.svg")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(OSError):
        draw(figure(), tmp_path / "folder.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.svg"]


def run(text, *options):
    return subprocess.run([sys.executable, SCRIPT, *options], input=text, capture_output=True, timeout=120)


def test_program_writes_every_path(tmp_path):
    paths = [tmp_path / "a.svg", tmp_path / "b.png"]
    request = {"figures": [{"path": str(path), "figure": figure()} for path in paths]}
    done = run(json.dumps(request).encode())
    assert done.returncode == 0, done.stderr
    assert paths[0].read_bytes() == render(figure(), "svg")
    assert paths[1].read_bytes() == render(figure(), "png")


def test_program_to_stdout():
    request = {"figures": [{"path": "a.svg", "figure": figure()}, {"path": "b.png", "figure": figure()}]}
    rest = run(json.dumps(request).encode(), "--to-stdout").stdout
    for image_format in ["svg", "png"]:
        size, rest = rest.split(b"\n", 1)
        assert rest[:int(size)] == render(figure(), image_format)
        rest = rest[int(size):]
    assert rest == b""


@pytest.mark.parametrize("text,words", [
    (b"", ["not JSON"]),
    (b"{", ["not JSON"]),
    (b"\xff\xfe\xff", ["not JSON"]),
    (b"[]", ["request", "map"]),
    (b'{"figures": [{"path": "a.svg"}]}', ["figures[0]", "'figure' is missing"]),
    (b'{"figures": [{"path": "a.gif", "figure": {}}]}', ["a.gif", ".svg"]),
    (b'{"figures": [{"path": "a.svg", "figure": {}}]}', ["a.svg", "'panels' is missing"]),
    (b'{"figures": [{"path": 3, "figure": {}}]}', ["figures[0].path", "3"]),
])
def test_program_refuses(text, words):
    done = run(text)
    assert done.returncode == 2 and done.stdout == b""
    for word in words:
        assert word in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_program_check():
    assert run(b"", "--check").returncode == 0
    bare = subprocess.run([sys.executable, "-I", "-S", SCRIPT, "--check"], capture_output=True, timeout=60)
    assert bare.returncode == 2 and b"tools/setup" in bare.stderr


def test_band__around_a_line():
    band = {"name": "ours", "x": [1, 2], "y": [3, 5], "low": [2, 4], "high": [4, 6]}
    assert render(figure(panel(series=[band])), "svg") != render(figure(panel(series=[{**band, "high": [5, 9]}])), "svg")
    for change, words in (({"low": [1]}, "series[0].low: has 1 values, but y has 2"), ({"high": None}, "must be a list")):
        with pytest.raises(FigureError) as error:
            check(figure(panel(series=[{**band, **change}])))
        assert words in str(error.value)
    del band["low"]
    with pytest.raises(FigureError, match="'low' and 'high' come together"):
        check(figure(panel(series=[band])))


def contrast(one, other):
    """Of two colours, from 1 (equal) to 21 (black on white), as the web's guidelines count it."""
    def light(color):
        parts = [int(color[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colors__can_be_read_on_light_and_dark_pages():
    dark = {color: DARK.get(color, color) for color in (PAPER, INK, MUTED, *PALETTE)}
    assert contrast(INK, PAPER) > 7 < contrast(dark[INK], dark[PAPER])
    assert contrast(MUTED, PAPER) > 4.5 < contrast(dark[MUTED], dark[PAPER])
    for color in PALETTE[:-1]:  # the last one, yellow, is for the eighth curve
        assert contrast(color, PAPER) > 2 and contrast(dark[color], dark[PAPER]) > 4.5, color


def test_svg_follows_a_dark_page():
    text = render(figure(), "svg").decode()
    assert text.count("prefers-color-scheme: dark") == 1
    for light, dark in DARK.items():
        assert f'[style*="fill: {light.lower()}"]{{fill:{dark}!important}}' in text
    # The rules find what matplotlib writes: the page, the ink, the first colour.
    for part in (f"fill: {PAPER}", f"fill: {INK}", f"stroke: {PALETTE[0].lower()}"):
        assert f'style="{part}' in text or f"; {part}" in text, part
    with pytest.raises(ValueError, match="defs"):
        follow_page(b"<svg/>")


def test_values_stay_below_the_top_of_an_axis_from_zero():
    """Two values close to each other: the higher one was cut by the frame."""
    close = [{"name": "ring", "x": [2, 4], "y": [156, 162]}, {"name": "rat", "x": [2, 4], "y": [166, 167]}]
    higher = render(figure(panel(series=close, references=[], y_range=[0, 175.35])), "svg")
    assert render(figure(panel(series=close, references=[])), "svg") == higher


def test_narrow__has_one_legend_below():
    wide, narrow = (render({**figure(panel(), panel()), "narrow": narrow}, "png") for narrow in (False, True))
    assert struct.unpack(">II", narrow[16:24])[0] < struct.unpack(">II", wide[16:24])[0]
    alone = render({**figure(panel(), panel(series=[], references=[], marks=[])), "narrow": True}, "svg")
    assert alone.count(b'id="legend_1"') == 1 and b'id="legend_2"' not in alone
