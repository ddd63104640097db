"""Checks the data of a figure. draw.py explains what each key means."""
import math
import os

FORMATS = ("svg", "png", "pdf")
KINDS = ("lines", "steps", "points", "area", "stack", "bars")
MAX_PANELS = 64
MAX_VALUES = 2_000_000  # of all series of a figure together


class FigureError(ValueError):
    """Says what is wrong with a figure, where, and what is allowed."""


def _number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def check_map(value, where, required, optional):
    """Raises FigureError unless `value` is a map with these keys.

    Also checks the types of keys that have the same meaning everywhere.
    """
    if not isinstance(value, dict):
        raise FigureError(f"{where}: must be a map, not {type(value).__name__}")
    allowed = [*required, *optional]
    for key in value:
        if key not in allowed:
            raise FigureError(f"{where}: unknown key '{key}'; allowed: {', '.join(allowed)}")
    for key in required:
        if key not in value:
            raise FigureError(f"{where}: '{key}' is missing")
    for key, kind in [("title", str), ("x_label", str), ("y_label", str), ("name", str),
                      ("label", str), ("log_x", bool), ("log_y", bool), ("reference", bool),
                      ("narrow", bool), ("large", bool)]:
        if key in value and not isinstance(value[key], kind):
            raise FigureError(f"{where}.{key}: must be a {kind.__name__}, not {value[key]!r}")


def check_list(value, where, at_least=0):
    if not isinstance(value, list) or len(value) < at_least:
        raise FigureError(f"{where}: must be a list"
                          + (f" of at least {at_least}" if at_least else ""))
    return value


def _numbers(values, where, positive, gaps=False):
    for i, value in enumerate(check_list(values, where)):
        if value is None and gaps:
            continue
        if not _number(value):
            raise FigureError(f"{where}[{i}]: must be a number, not {value!r}")
        if positive and value <= 0:
            raise FigureError(f"{where}[{i}]: {value} cannot be on a logarithmic axis")


def _check_band(series, where, log):
    if ("low" in series) != ("high" in series):
        raise FigureError(f"{where}: 'low' and 'high' come together")
    for key in ("low", "high"):
        if key in series:
            _numbers(series[key], f"{where}.{key}", log)
            if len(series[key]) != len(series["y"]):
                raise FigureError(f"{where}.{key}: has {len(series[key])} values, but y has "
                                  f"{len(series['y'])}")


def _check_series(series, where, panel):
    bars = panel["kind"] == "bars"
    band = ("low", "high") if panel["kind"] == "lines" else ()
    check_map(series, where, ("name", "y") if bars else ("name", "x", "y"),
              ("reference", "color", *band))
    _check_band(series, where, panel.get("log_y", False))
    _numbers(series["y"], f"{where}.y", panel.get("log_y", False), gaps=True)
    if not bars:
        _numbers(series["x"], f"{where}.x", panel.get("log_x", False))
    wanted = len(panel["categories"] if bars else series["x"])
    if len(series["y"]) != wanted:
        expected = f"there are {wanted} categories" if bars else f"x has {wanted}"
        raise FigureError(f"{where}.y: has {len(series['y'])} values, but {expected}")
    color = series.get("color", 0)
    if not isinstance(color, int) or isinstance(color, bool) or color < 0:
        raise FigureError(f"{where}.color: must be a whole number from 0 on, not {color!r}")


def _check_range(panel, key, log, where):
    if key not in panel:
        return
    _numbers(panel[key], f"{where}.{key}", log)
    if len(panel[key]) != 2 or not panel[key][0] < panel[key][1]:
        raise FigureError(f"{where}.{key}: must be [low, high], not {panel[key]}")


def _check_panel(panel, where):
    if not isinstance(panel, dict) or panel.get("kind") not in KINDS:
        kind = panel.get("kind") if isinstance(panel, dict) else panel
        raise FigureError(f"{where}.kind: {kind!r} is not one of {', '.join(KINDS)}")
    bars = panel["kind"] == "bars"
    check_map(panel, where, ("kind", "series", *(["categories"] if bars else [])),
              ("title", "x_label", "y_label", "log_x", "log_y", "x_range", "y_range", "x_ticks",
               "marks", "references", "large"))
    if bars:
        for key in ("log_x", "x_range", "x_ticks", "marks"):
            if panel.get(key):
                raise FigureError(f"{where}.{key}: bars have categories, no x")
        categories = check_list(panel["categories"], f"{where}.categories", at_least=1)
        for i, category in enumerate(categories):
            if not isinstance(category, str):
                raise FigureError(f"{where}.categories[{i}]: must be a str, not {category!r}")
    log_x, log_y = panel.get("log_x", False), panel.get("log_y", False)
    if panel["kind"] == "stack" and log_y:
        raise FigureError(f"{where}.log_y: a stack begins at 0")
    for i, series in enumerate(check_list(panel["series"], f"{where}.series")):
        _check_series(series, f"{where}.series[{i}]", panel)
        if panel["kind"] == "stack" and series["x"] != panel["series"][0]["x"]:
            raise FigureError(f"{where}.series[{i}].x: series of a stack must share their x")
    for i, mark in enumerate(check_list(panel.get("marks", []), f"{where}.marks")):
        check_map(mark, f"{where}.marks[{i}]", ("x",), ("label",))
        _numbers([mark["x"]], f"{where}.marks[{i}].x", log_x)
    for i, line in enumerate(check_list(panel.get("references", []), f"{where}.references")):
        check_map(line, f"{where}.references[{i}]", ("y", "label"), ())
        _numbers([line["y"]], f"{where}.references[{i}].y", log_y)
    _check_range(panel, "x_range", log_x, where)
    _check_range(panel, "y_range", log_y, where)
    _numbers(panel.get("x_ticks", []), f"{where}.x_ticks", log_x)


def check(figure):
    """Raises FigureError unless the figure can be drawn."""
    check_map(figure, "figure", ("panels",), ("title", "columns", "narrow"))
    columns = figure.get("columns", 1)
    if not isinstance(columns, int) or isinstance(columns, bool) or columns < 1:
        raise FigureError(f"figure.columns: must be a whole number from 1 on, not {columns!r}")
    panels = check_list(figure["panels"], "figure.panels", at_least=1)
    if len(panels) > MAX_PANELS:
        raise FigureError(f"figure.panels: has {len(panels)}, at most {MAX_PANELS} are allowed")
    for i, panel in enumerate(panels):
        _check_panel(panel, f"figure.panels[{i}]")
    values = sum(len(s["y"]) for panel in panels for s in panel["series"])
    if values > MAX_VALUES:
        raise FigureError(f"figure: has {values} values, at most {MAX_VALUES} are allowed")


def format_of(path):
    """Returns the image format that the ending of a path asks for."""
    ending = os.path.splitext(str(path))[1].lower().removeprefix(".")
    if ending not in FORMATS:
        raise FigureError(f"{path}: a figure is written as {', '.join('.' + f for f in FORMATS)}")
    return ending
