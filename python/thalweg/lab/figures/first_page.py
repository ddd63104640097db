"""The drawings of README.md, once for light pages and once for dark ones (tools/first_page)."""
import io

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

# Colours that keep their contrast on GitHub's white (#ffffff) and on its dark grey (#0d1117).
THEMES = {
    "light": {"ink": "#1f2328", "muted": "#59636e", "grid": "#d1d9e0", "thalweg": "#0969da", "exact": "#54aeff",
              "gloo": "#bc4c00", "openmpi": "#6e7781"},
    "dark": {"ink": "#f0f6fc", "muted": "#9198a1", "grid": "#3d444d", "thalweg": "#58a6ff", "exact": "#1f6feb",
             "gloo": "#f0883e", "openmpi": "#8b949e"},
}
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False,
    "axes.spines.left": False, "axes.axisbelow": True, "svg.fonttype": "path", "svg.hashsalt": "thalweg",
    "xtick.minor.size": 0, "ytick.minor.size": 0, "ytick.major.size": 0, "xtick.labelsize": 9,
    "ytick.labelsize": 9, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left",
}
CLEAN = [("thalweg", "tcp", "Thalweg", "thalweg"), ("gloo", "tcp", "Gloo", "gloo"),
         ("openmpi", "tcp", "Open MPI", "openmpi")]
LOSSY = [("thalweg", "dlcp", "Thalweg, bound {bound}", "thalweg"), ("thalweg", "tcp", "Thalweg, exact", "exact"),
         ("gloo", "tcp", "Gloo", "gloo"), ("openmpi", "tcp", "Open MPI", "openmpi")]
LABEL_GAP = 0.075  # least distance between two labels, as a share of the axis


def size_name(size):
    return f"{size >> 20} MiB" if size >= 2**20 else f"{size >> 10} KiB"


def time_name(microseconds):
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= scale:
            return f"{microseconds / scale:g} {unit}"
    return f"{microseconds:g} µs"


def percent(share):
    return f"{100 * share:g} %"


def _rows(data, library, transport):
    return sorted((row for row in data["result"]["rows"]
                   if row["library"] == library and row["transport"] == transport), key=lambda row: row["size"])


def _plain(axes, colors):
    axes.set_facecolor("none")
    axes.tick_params(colors=colors["muted"], which="both")
    axes.spines["bottom"].set_color(colors["grid"])
    axes.title.set_color(colors["ink"])


def _labels(axes, ends, colors):
    """Names lines at their ends, moved apart where they would overlap. `ends`: height on the axis, name, colour."""
    ends.sort()
    place = -1.0
    for height, name, color in ends:
        place = max(height, place + LABEL_GAP)
        axes.text(1.02, place, name, transform=axes.transAxes, va="center", color=colors[color], fontweight="bold",
                  fontsize=9.5)


def _clean(axes, data, colors):
    every = [(name, color, rows) for library, transport, name, color in CLEAN if (rows := _rows(data, library, transport))]
    for _, color, rows in every:
        axes.plot([row["size"] for row in rows], [row["p50_us"] for row in rows], color=colors[color], marker="o",
                  markersize=4, linewidth=2.6 if color == "thalweg" else 1.8, zorder=3 if color == "thalweg" else 2)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = [row["size"] for row in every[0][2]]
    ticks = sizes[::2] if len(sizes) > 5 else sizes
    axes.set_xticks(ticks, [size_name(size) for size in ticks])
    low, high = axes.get_ylim()
    powers = [10.0**power for power in range(-1, 9) if low <= 10.0**power <= high]
    axes.set_yticks(powers, [time_name(power) for power in powers])
    axes.minorticks_off()
    axes.grid(axis="y", color=colors["grid"], linewidth=0.7)
    place = axes.transAxes.inverted()
    _labels(axes, [(place.transform(axes.transData.transform((rows[-1]["size"], rows[-1]["p50_us"])))[1], name, color)
                   for name, color, rows in every], colors)
    axes.set_title(f"Allreduce, median time: {data['result']['ranks']} ranks of one host, TCP", pad=18)
    _plain(axes, colors)


def _lossy(axes, data, colors):
    """From the median to p99, a line for each library: a short line is a steady library."""
    bound = percent(data["result"]["loss_bound"])
    every = [(name.format(bound=bound), color, rows) for library, transport, name, color in LOSSY
             if (rows := _rows(data, library, transport))]
    sizes = [row["size"] for row in every[0][2]]
    step = len(every) + 1.3
    for line, (name, color, rows) in enumerate(every):
        for row in rows:
            height = sizes.index(row["size"]) * step + line
            axes.plot([row["p50_us"], row["p99_us"]], [height] * 2, color=colors[color], linewidth=2.4,
                      solid_capstyle="butt")
            axes.plot(row["p50_us"], height, marker="|", markersize=8, markeredgewidth=2, color=colors[color])
            axes.plot(row["p99_us"], height, marker="o", markersize=6, color=colors[color],
                      label=name if row is rows[0] else None)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    powers = [10.0**power for power in range(-1, 9) if low <= 10.0**power <= high]
    axes.set_xticks(powers, [time_name(power) for power in powers])
    axes.minorticks_off()
    axes.set_yticks([n * step + (len(every) - 1) / 2 for n in range(len(sizes))], [size_name(size) for size in sizes])
    axes.invert_yaxis()
    axes.grid(axis="x", color=colors["grid"], linewidth=0.7)
    legend = axes.legend(loc="upper center", bbox_to_anchor=(0.46, -0.1), ncols=3 if len(every) < 4 else 2, frameon=False, fontsize=9,
                         handlelength=1.2, columnspacing=1.4, handletextpad=0.5)
    for text, (_, color, _) in zip(legend.get_texts(), every):
        text.set_color(colors[color])
        text.set_fontweight("bold")
    axes.set_title(f"At {data['result']['rate_gbps']:g} Gb/s with {percent(data['result']['loss'])} loss: median | to p99 ●", pad=18)
    _plain(axes, colors)


def _control(data):
    """The congestion control of TCP that the measurement had."""
    names = {row["congestion_control"] for row in data["result"]["rows"] if "congestion_control" in row}
    return (names.pop() if names else data["result"]["environment"]["tcp_congestion_control"]).upper()


def hero(clean, lossy, theme, stamp, file):
    colors = THEMES[theme]
    with plt.rc_context({**STYLE, "text.color": colors["ink"]}):
        figure, (left, right) = plt.subplots(1, 2, figsize=(11.6, 4.5), gridspec_kw={"width_ratios": [1, 1.02]})
        figure.patch.set_alpha(0)
        figure.subplots_adjust(left=0.055, right=0.985, top=0.875, bottom=0.235, wspace=0.42)
        _clean(left, clean, colors)
        _lossy(right, lossy, colors)
        machine = clean["machine"] if clean["machine"] == lossy["machine"] else f"{clean['machine']} (left), {lossy['machine']} (right)"
        notes = [machine, clean["date"]]
        notes += ["trial run of five calls"] * bool(clean.get("trial") or lossy.get("trial"))
        figure.text(0.012, 0.02, " · ".join(notes), color=colors["muted"], fontsize=8.5)
        link = [f"{lossy['result']['ranks']} ranks", f"TCP by {_control(lossy)}"]
        for axes, data, words in ((left, clean, []), (right, lossy, link)):
            axes.text(0, 1.012, "; ".join(words + ([data["note"]] if "note" in data else [])), transform=axes.transAxes,
                      color=colors["muted"], fontsize=8.5)
        _write(figure, stamp, file)


def steps(found, theme, stamp, file):
    """Step times of a training, median and p99, one pair of bars for each library."""
    colors = THEMES[theme]
    tones = {"Gloo": "gloo", "Thalweg": "exact"}
    with plt.rc_context({**STYLE, "text.color": colors["ink"]}):
        figure, axes = plt.subplots(figsize=(5.6, 2.5))
        figure.patch.set_alpha(0)
        figure.subplots_adjust(left=0.37, right=0.9, top=0.84, bottom=0.06)
        for line, (name, (median, tail)) in enumerate(found.items()):
            color = colors[tones.get(name, "thalweg")]
            axes.barh(line, tail, height=0.62, color=color, alpha=0.4)
            axes.barh(line, median, height=0.62, color=color)
            axes.text(tail + 5, line, f"{tail:g} ms", va="center", color=colors["ink"], fontsize=9.5)
        axes.set_yticks(range(len(found)), list(found))
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.invert_yaxis()
        axes.set_title("Training step, 0.5 % loss: median, p99 (pale)", pad=8, x=-0.69)
        _plain(axes, colors)
        axes.tick_params(axis="y", labelcolor=colors["ink"])
        _write(figure, stamp, file)


def _write(figure, stamp, file):
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Description": f"data {stamp}"})
    plt.close(figure)
    file.write_text("\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n")
