"""Draws figures from plain data, so that all plots of the project look alike.

A figure is a dict, as JSON has it (a ? marks optional keys):

    figure  title? columns? narrow? panels[]
    panel   kind: lines | steps | points | area | stack | bars
            title? x_label? y_label? log_x? log_y? x_range? y_range? x_ticks? large?
            categories[] (bars only), series[], marks?[], references?[]
    series  name, x[] (not for bars), y[] (null: a gap), reference?, color?;
            lines may also have low[] and high[], which draw a band
    mark    x, label?           a vertical line: something happened then
    reference line  y, label    a horizontal line: a limit or a target

`steps` holds a value until the next x. `stack` does too, and puts series that share their x on top
of one another. A series with `reference` (a paper's numbers, a bound) is dashed; its bars are
hatched. Series with the same `color` (0, 1, …) share that colour; a series without one gets its
own. A `large` panel has a row of its own, higher than the others. A `narrow` figure is for phones, too: its panels
have the width of one, and one legend for all of them is below.

    python draw.py < request.json      {"figures": [{"path": "a.svg", "figure": {…}}, …]}

draws each figure to its path, completely or not at all. With --to-stdout it writes the images there
instead, each after a line with its size in bytes. With --check it only checks that matplotlib is
installed. The same figure always gives the same bytes. Needs matplotlib, and nothing else of this
package but check.py and style.py (which says how an SVG follows a dark page).
"""
import importlib.util
import io
import json
import math
import os
import sys
import textwrap
from pathlib import Path

if __name__ == "__main__":  # find the package `thalweg`, not modules beside this file
    os.environ["THALWEG_BACKEND"] = "0"
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from thalweg.lab.figures.check import (FigureError, check, check_list,  # noqa: E402
                                       check_map, format_of)
from thalweg.lab.figures.style import MUTED, PALETTE, STYLE, follow_page  # noqa: E402

PANEL_WIDTH, PANEL_HEIGHT = 6.6, 3.1  # inches, legend included
NARROW_WIDTH, NARROW_HEIGHT = 4.4, 2.6
LARGE = 1.35        # height of a row with a large panel, in heights of the others
FEW_POINTS = 30     # a line of at most so many points shows them as markers
FEW_TICKS = 10      # at most so many different values on a logarithmic axis become its ticks
FEW_BARS = 24       # at most so many bars carry their values as text
THIN_ABOVE = 100    # a line of more points is thin, so that neighbours can be told apart
REFERENCE_DASHES = ((0, (6, 3)), (0, (2, 2)), (0, (8, 2, 2, 2)))
MARK_ROWS = 4       # rows of mark labels over a panel


# --- Drawing -------------------------------------------------------------------------------------

def _require_matplotlib():
    if importlib.util.find_spec("matplotlib") is None:
        raise FigureError(f"matplotlib is not installed for {sys.executable}; tools/setup installs "
                          "it")


def _matplotlib():
    _require_matplotlib()
    import matplotlib.backends.backend_agg
    import matplotlib.figure
    import matplotlib.ticker
    return matplotlib


def _gaps(values):
    return [math.nan if value is None else value for value in values]


def _short(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _draw_bars(axes, panel):
    series, categories = panel["series"], panel["categories"]
    width = 0.8 / max(1, len(series))
    with_values = len(series) * len(categories) <= FEW_BARS
    for i, one in enumerate(series):
        at = [c - 0.4 + (i + 0.5) * width for c in range(len(categories))]
        reference = one.get("reference", False)
        bars = axes.bar(at, _gaps(one["y"]), width * 0.92,
                        color=PALETTE[one.get("color", i) % len(PALETTE)],
                        alpha=0.45 if reference else 1, hatch="////" if reference else None,
                        label=_wrapped(one["name"]), linewidth=0)
        if with_values:
            labels = ["" if value is None else _short(value) for value in one["y"]]
            axes.bar_label(bars, labels, padding=1.5, fontsize=7, color=MUTED)
    middle, half = (len(categories) - 1) / 2, max(len(categories), 4) / 2
    axes.set_xlim(middle - half, middle + half)
    if with_values:
        axes.margins(y=0.12)
    axes.set_xticks(range(len(categories)), [textwrap.fill(c, 16) for c in categories])
    axes.tick_params(axis="x", length=0)
    axes.grid(False, axis="x")


def _draw_series(axes, kind, one, color):
    x, y, reference = one["x"], _gaps(one["y"]), one.get("reference", False)
    common = {"color": color, "label": _wrapped(one["name"]), "zorder": 2.5 if reference else 3}
    dashes = {"linestyle": (0, (4, 2))} if reference else {}
    dashes["linewidth"] = 1.2 if reference or len(x) > THIN_ABOVE else 1.6
    face = {"markerfacecolor": "white"} if reference else {}
    if kind == "points":
        axes.plot(x, y, "o", markersize=3.5, markeredgewidth=0.8, **face, **common)
    elif kind == "steps":
        axes.plot(x, y, drawstyle="steps-post", **dashes, **common)
    else:
        marker = "o" if kind == "lines" and len(x) <= FEW_POINTS else None
        axes.plot(x, y, marker=marker, **dashes, **face, **common)
    if "low" in one:
        axes.fill_between(x, one["low"], one["high"], color=color, alpha=0.12, linewidth=0,
                          zorder=2)
    if kind == "area":
        axes.fill_between(x, y, color=color, alpha=0.18, linewidth=0, zorder=2)


def _draw_stack(axes, panel):
    below = None
    for i, one in enumerate(panel["series"]):
        y = [value or 0 for value in one["y"]]
        base = below or [0] * len(y)
        below = [a + b for a, b in zip(base, y)]
        axes.fill_between(one["x"], base, below, step="post",
                          color=PALETTE[one.get("color", i) % len(PALETTE)], alpha=0.85,
                          linewidth=0, label=_wrapped(one["name"]), zorder=2)
        axes.plot(one["x"], below, drawstyle="steps-post", color="white", linewidth=0.5,
                  zorder=2.1)


def _wrapped(name):
    return textwrap.fill(name, 30) if name else "_nolegend_"


def _scale(mpl, axis, log, ticks):
    if log:
        plain = mpl.ticker.FuncFormatter(
            lambda value, _: f"{value:g}" if 1e-4 <= value < 1e6 else f"{value:.0e}")
        getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
        axis.set_major_formatter(plain)
        axis.set_minor_formatter(mpl.ticker.NullFormatter())
        low, high = axis.get_view_interval()
        if high < 30 * low:
            axis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
    if ticks:
        axis.set_major_locator(mpl.ticker.FixedLocator(ticks))
        axis.set_minor_locator(mpl.ticker.NullLocator())
        axis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:g}"))


def _draw_panel(mpl, axes, panel, legend):
    kind, log_x, log_y = panel["kind"], panel.get("log_x", False), panel.get("log_y", False)
    if kind == "bars":
        _draw_bars(axes, panel)
    elif kind == "stack":
        _draw_stack(axes, panel)
        axes.margins(x=0)
    else:
        for i, one in enumerate(panel["series"]):
            _draw_series(axes, kind, one, PALETTE[one.get("color", i) % len(PALETTE)])
        axes.margins(x=0.02)
    for i, line in enumerate(panel.get("references", [])):
        axes.axhline(line["y"], color=MUTED, linewidth=1,
                     linestyle=REFERENCE_DASHES[i % len(REFERENCE_DASHES)],
                     label=_wrapped(line["label"]))
    for mark in panel.get("marks", []):
        axes.axvline(mark["x"], color=MUTED, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=1.5)
    ticks = panel.get("x_ticks")
    if log_x and not ticks:
        values = sorted({x for one in panel["series"] for x in one["x"]})
        ticks = values if len(values) <= FEW_TICKS else None
    _scale(mpl, axes.xaxis, log_x, ticks)
    _scale(mpl, axes.yaxis, log_y, None)
    if "x_range" in panel:
        axes.set_xlim(panel["x_range"])
    if "y_range" in panel:
        axes.set_ylim(panel["y_range"])
    elif not log_y and all(y is None or y >= 0 for one in panel["series"] for y in one["y"]):
        # The margin above the highest value is of the whole axis, not of the range of the values.
        top = axes.dataLim.y1
        axes.set_ylim(bottom=0, top=max(axes.get_ylim()[1], 1.05 * top) if top > 0 else None)
    axes.set(xlabel=panel.get("x_label", ""), ylabel=panel.get("y_label", ""),
             title=panel.get("title", ""))
    if not any(panel["series"]):
        axes.text(0.5, 0.5, "nothing to show", transform=axes.transAxes, ha="center", color=MUTED)
    handles, _ = axes.get_legend_handles_labels()
    if handles and legend:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0,
                    handlelength=1.8)


def _legend_below(page, all_axes):
    """Draws one legend of all panels, below them. A name counts once."""
    named = {}
    for axes in all_axes:
        for handle, name in zip(*axes.get_legend_handles_labels()):
            named.setdefault(name, handle)
    if named:
        page.legend(named.values(), named.keys(), loc="outside lower left", ncols=min(2, len(named)),
                    handlelength=1.8)


def _label_marks(page, all_axes, panels):
    """Writes the labels of marks over each panel, in as many rows as keep them apart.

    The panel's title moves above them. Labels that would need more than MARK_ROWS are left out.
    """
    page.draw_without_rendering()
    renderer = page.canvas.get_renderer()
    for axes, panel in zip(all_axes, panels):
        at = {}
        for mark in panel.get("marks", []):
            if mark.get("label"):
                labels = at.setdefault(mark["x"], [])
                if mark["label"] not in labels:
                    labels.append(mark["label"])
        row_ends, left_out = [], 0
        for x in sorted(at):
            text = axes.annotate("; ".join(at[x]), (x, 1), xycoords=("data", "axes fraction"),
                                 xytext=(0, 2), textcoords="offset points", fontsize=7,
                                 color=MUTED, ha="left", va="bottom", annotation_clip=True)
            box = text.get_window_extent(renderer)
            if box.x1 > page.bbox.x1:
                text.set_horizontalalignment("right")
                box = text.get_window_extent(renderer)
            row = next((r for r, end in enumerate(row_ends) if end < box.x0), len(row_ends))
            if row == MARK_ROWS:
                text.remove()
                left_out += 1
                continue
            row_ends[row:row + 1] = [box.x1 + 4]
            text.set_position((0, 2 + 9 * row))
        if row_ends:
            axes.set_title(panel.get("title", ""), pad=6 + 9 * len(row_ends))
        if left_out:
            axes.set_title(f"{left_out} marks without label", loc="right", fontsize=7,
                           fontweight="normal", color=MUTED)


def _places(panels, columns):
    """Row and columns of each panel, and the heights of the rows."""
    places, heights, column = [], [], columns  # `column`: the next that is free in the last row
    for panel in panels:
        large = panel.get("large", False)
        if large or column == columns:
            heights.append(LARGE if large else 1)
            column = 0
        places.append((len(heights) - 1, slice(0, columns) if large else column))
        column = columns if large else column + 1
    return places, heights


def render(figure, image_format):
    """Returns the image of a figure, as bytes."""
    check(figure)
    mpl = _matplotlib()
    panels = figure["panels"]
    columns = min(figure.get("columns", 1 if len(panels) < 4 else 2), len(panels))
    places, heights = _places(panels, columns)
    with mpl.rc_context(STYLE):
        # An inch holds about 11 bold characters. A longer title continues on the next line.
        narrow = figure.get("narrow", False)
        width, height = ((NARROW_WIDTH, NARROW_HEIGHT) if narrow else (PANEL_WIDTH, PANEL_HEIGHT))
        title = textwrap.fill(figure.get("title", ""), int(width * columns * 11))
        title_height = 0.2 + 0.2 * len(title.splitlines()) if title else 0
        size = (width * columns, height * sum(heights) + title_height)
        page = mpl.figure.Figure(figsize=size, layout="constrained")
        mpl.backends.backend_agg.FigureCanvasAgg(page)
        page.get_layout_engine().set(w_pad=0.1, h_pad=0.08, hspace=0.03)
        if title:
            page.suptitle(title, x=0.01, ha="left")
        all_axes = []
        grid = page.add_gridspec(len(heights), columns, height_ratios=heights)
        for (row, place), panel in zip(places, panels):
            axes = page.add_subplot(grid[row, place])
            _draw_panel(mpl, axes, panel, legend=not narrow)
            all_axes.append(axes)
        if narrow:
            _legend_below(page, all_axes)
        _label_marks(page, all_axes, panels)
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None},
                    "png": {"Software": None}}
        image = io.BytesIO()
        page.savefig(image, format=image_format, metadata=metadata[image_format])
    return follow_page(image.getvalue()) if image_format == "svg" else image.getvalue()


def draw(figure, path):
    """Draws a figure to a path, whose ending selects the format. Never leaves half a file."""
    image = render(figure, format_of(path))
    part = f"{path}.part"
    try:
        with open(part, "wb") as out:
            out.write(image)
        os.replace(part, path)
    except BaseException:
        if os.path.exists(part):
            os.remove(part)
        raise


# --- As a program --------------------------------------------------------------------------------

def _read_request(text):
    try:
        request = json.loads(text)
    except ValueError as error:
        raise FigureError(f"the request is not JSON: {error}") from None
    check_map(request, "request", ("figures",), ())
    for i, entry in enumerate(check_list(request["figures"], "figures")):
        check_map(entry, f"figures[{i}]", ("path", "figure"), ())
        if not isinstance(entry["path"], str):
            raise FigureError(f"figures[{i}].path: must be a str, not {entry['path']!r}")
        format_of(entry["path"])
        try:
            check(entry["figure"])
        except FigureError as error:
            raise FigureError(f"{entry['path']}: {error}") from None
    return request["figures"]


def main(arguments):
    known = ("--to-stdout", "--check")
    if any(argument not in known for argument in arguments):
        raise FigureError(f"usage: draw.py [{' | '.join(known)}] < request.json")
    if "--check" in arguments:
        _require_matplotlib()
        return
    entries = _read_request(sys.stdin.buffer.read())
    for entry in entries:
        if "--to-stdout" in arguments:
            image = render(entry["figure"], format_of(entry["path"]))
            sys.stdout.buffer.write(b"%d\n" % len(image) + image)
        else:
            draw(entry["figure"], entry["path"])
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (FigureError, OSError) as problem:
        print(problem, file=sys.stderr)
        sys.exit(2)
