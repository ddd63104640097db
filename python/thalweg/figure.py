"""Draws figures from plain data, so that every plot of the project looks the same.

A figure is a dict, as JSON has it (optional keys end in ?):

    figure  title? columns? panels[]
    panel   kind: lines | steps | points | area | stack | bars
            title? x_label? y_label? log_x? log_y? x_range? y_range? x_ticks?
            categories[] (bars only), series[], marks?[], references?[]
    series  name, x[] (not for bars), y[] (null: a gap), reference?, color?; of lines also low?[] and high?[], a band
    mark    x, label?           a vertical line: something happened then
    reference line  y, label    a horizontal line: a limit or a target

`steps` holds a value until the next x. `stack` does too, and lays series that share their x on one another. A
series with `reference` (a paper's numbers, a bound) is dashed, or hatched as bars. Series of one `color` (0, 1, …)
share it; without, each has its own.

    python figure.py < request.json      {"figures": [{"path": "a.svg", "figure": {…}}, …]}

draws each to its path, completely or not at all. With --to-stdout the images are written there instead, each
after a line with its size in bytes; with --check only the presence of matplotlib is looked at. The same figure
gives the same bytes. Needs matplotlib, and of this package only figure_check.py.
"""
import importlib.util
import io
import json
import math
import os
import sys
import textwrap
from pathlib import Path

if __name__ == "__main__":  # what a program finds first is the package, not what is in it
    os.environ["THALWEG_BACKEND"] = "0"
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from thalweg.figure_check import FigureError, check, check_list, check_map, format_of  # noqa: E402

# Okabe and Ito: told apart with any colour vision. Its yellow is too light for lines on white and comes last.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#F0E442")
INK, MUTED, GRID = "#222222", "#666666", "#DDDDDD"
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 9, "text.color": INK,
    "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.labelsize": 9,
    "axes.labelcolor": INK, "axes.edgecolor": MUTED, "axes.linewidth": 0.8, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "axes.formatter.useoffset": False,
    "grid.color": GRID, "grid.linewidth": 0.6, "xtick.color": MUTED, "ytick.color": MUTED,
    "xtick.labelcolor": INK, "ytick.labelcolor": INK, "xtick.labelsize": 8, "ytick.labelsize": 8,
    "legend.fontsize": 8, "legend.frameon": False, "lines.linewidth": 1.6, "lines.markersize": 4,
    "hatch.linewidth": 0.6, "hatch.color": "white", "figure.titlesize": 12, "figure.titleweight": "bold",
    "figure.dpi": 100, "savefig.dpi": 150, "svg.hashsalt": "thalweg", "svg.fonttype": "path",
}
PANEL_WIDTH, PANEL_HEIGHT = 6.6, 3.1  # inches, legend included
FEW_POINTS = 30     # so few are shown as markers on their line
FEW_TICKS = 10      # so few values on a logarithmic axis are its ticks
FEW_BARS = 24       # so few bars carry their values
THIN_ABOVE = 100    # points of a line; so that neighbours can be told apart
REFERENCE_DASHES = ((0, (6, 3)), (0, (2, 2)), (0, (8, 2, 2, 2)))
MARK_ROWS = 4       # of labels over a panel

# --- Drawing ----------------------------------------------------------------------------------------------

def _require_matplotlib():
    if importlib.util.find_spec("matplotlib") is None:
        raise FigureError(f"matplotlib is not installed for {sys.executable}; tools/setup installs it")


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
        bars = axes.bar(at, _gaps(one["y"]), width * 0.92, color=PALETTE[one.get("color", i) % len(PALETTE)],
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
        axes.fill_between(x, one["low"], one["high"], color=color, alpha=0.12, linewidth=0, zorder=2)
    if kind == "area":
        axes.fill_between(x, y, color=color, alpha=0.18, linewidth=0, zorder=2)


def _draw_stack(axes, panel):
    below = None
    for i, one in enumerate(panel["series"]):
        y = [value or 0 for value in one["y"]]
        base = below or [0] * len(y)
        below = [a + b for a, b in zip(base, y)]
        axes.fill_between(one["x"], base, below, step="post", color=PALETTE[one.get("color", i) % len(PALETTE)],
                          alpha=0.85, linewidth=0, label=_wrapped(one["name"]), zorder=2)
        axes.plot(one["x"], below, drawstyle="steps-post", color="white", linewidth=0.5, zorder=2.1)


def _wrapped(name):
    return textwrap.fill(name, 30) if name else "_nolegend_"


def _scale(mpl, axis, log, ticks):
    if log:
        plain = mpl.ticker.FuncFormatter(lambda value, _: f"{value:g}" if 1e-4 <= value < 1e6 else f"{value:.0e}")
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


def _draw_panel(mpl, axes, panel):
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
        axes.axhline(line["y"], color=MUTED, linewidth=1, linestyle=REFERENCE_DASHES[i % len(REFERENCE_DASHES)],
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
        axes.set_ylim(bottom=0)
    axes.set(xlabel=panel.get("x_label", ""), ylabel=panel.get("y_label", ""), title=panel.get("title", ""))
    if not any(panel["series"]):
        axes.text(0.5, 0.5, "nothing to show", transform=axes.transAxes, ha="center", color=MUTED)
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0, handlelength=1.8)


def _label_marks(page, all_axes, panels):
    """Mark labels stand over the panel, in as many rows as keeps them apart; the title goes above."""
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
            text = axes.annotate("; ".join(at[x]), (x, 1), xycoords=("data", "axes fraction"), xytext=(0, 2),
                                 textcoords="offset points", fontsize=7, color=MUTED, ha="left", va="bottom",
                                 annotation_clip=True)
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
            axes.set_title(f"{left_out} marks without label", loc="right", fontsize=7, fontweight="normal",
                           color=MUTED)


def render(figure, image_format):
    """The image as bytes."""
    check(figure)
    mpl = _matplotlib()
    panels = figure["panels"]
    columns = min(figure.get("columns", 1 if len(panels) < 4 else 2), len(panels))
    rows = math.ceil(len(panels) / columns)
    with mpl.rc_context(STYLE):
        # About 11 bold characters an inch; a longer title goes on in the next line.
        title = textwrap.fill(figure.get("title", ""), int(PANEL_WIDTH * columns * 11))
        title_height = 0.2 + 0.2 * len(title.splitlines()) if title else 0
        page = mpl.figure.Figure(figsize=(PANEL_WIDTH * columns, PANEL_HEIGHT * rows + title_height),
                                 layout="constrained")
        mpl.backends.backend_agg.FigureCanvasAgg(page)
        page.get_layout_engine().set(w_pad=0.1, h_pad=0.08, hspace=0.03)
        if title:
            page.suptitle(title, x=0.01, ha="left")
        all_axes = []
        for i, panel in enumerate(panels):
            axes = page.add_subplot(rows, columns, i + 1)
            _draw_panel(mpl, axes, panel)
            all_axes.append(axes)
        _label_marks(page, all_axes, panels)
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
        image = io.BytesIO()
        page.savefig(image, format=image_format, metadata=metadata[image_format])
    return image.getvalue()


def draw(figure, path):
    """Draws the figure to the path, whose ending says the format. Never leaves half a file."""
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


# --- As a program -----------------------------------------------------------------------------------------

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
        raise FigureError(f"usage: figure.py [{' | '.join(known)}] < request.json")
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
