"""The look of every plot of the project: colours, fonts, and how a drawing follows a dark page.

An SVG is drawn for a white page. A style sheet inside it changes its colours where the reader's
system asks for dark pages, so one file serves both. Programs that ignore the sheet show the light
drawing. PNG and PDF are always light.
"""

# The palette of Okabe and Ito, whose colours can be told apart with any colour vision. Its yellow
# is too light for lines on white, so it comes last.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#F0E442")
PAPER, INK, MUTED, GRID = "#ffffff", "#222222", "#666666", "#dddddd"
# What the colours become on a dark page. The others are readable on both.
DARK = {PAPER: "#15181d", INK: "#e8eaed", MUTED: "#a2a9b1", GRID: "#383e46", "#0072B2": "#4aa8e0",
        "#D55E00": "#f0813a", "#009E73": "#2fbf97", "#000000": "#d0d4d9"}
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 9, "text.color": INK,
    "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.labelsize": 9, "axes.labelcolor": INK, "axes.edgecolor": MUTED, "axes.linewidth": 0.8,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "axes.axisbelow": True, "axes.formatter.useoffset": False,
    "grid.color": GRID, "grid.linewidth": 0.6, "xtick.color": MUTED, "ytick.color": MUTED,
    "xtick.labelcolor": INK, "ytick.labelcolor": INK, "xtick.labelsize": 8, "ytick.labelsize": 8,
    "legend.fontsize": 8, "legend.frameon": False, "lines.linewidth": 1.6, "lines.markersize": 4,
    "hatch.linewidth": 0.6, "hatch.color": "white", "figure.titlesize": 12,
    "figure.titleweight": "bold", "figure.dpi": 100, "savefig.dpi": 150,
    "svg.hashsalt": "thalweg", "svg.fonttype": "path",
}


def dark_rules():
    """The rules of CSS that turn a drawing of matplotlib dark: its colours stand in style attributes."""
    return "".join(f'[style*="{what}: {light.lower()}"]{{{what}:{dark}!important}}'
                   for light, dark in DARK.items() for what in ("fill", "stroke"))


def follow_page(svg):
    """An SVG of matplotlib, as bytes, with the style sheet for dark pages in it."""
    sheet = f'<style type="text/css">@media (prefers-color-scheme: dark) {{{dark_rules()}}}</style>\n'
    head, end, rest = svg.partition(b" <defs>\n")
    if not end:
        raise ValueError("the drawing has no <defs>: is it an SVG of matplotlib?")
    return head + b" " + sheet.encode() + end + rest
