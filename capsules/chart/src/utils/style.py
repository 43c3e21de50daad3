"""The style of all charts: colours, type, margins, legend and numbers on axes."""

import math
import textwrap

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

# Okabe and Ito's colours ("Color Universal Design", 2008), distinguishable with all common kinds of colour vision;
# yellow, which is faint on white, comes last. The shapes distinguish groups without any colour.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000", "#B5A400"]
SHAPES = ["o", "s", "^", "D", "v", "P", "X", "*"]
INK, FAINT, GRID = "#1B2733", "#5B6875", "#E3E8ED"

WIDTH_INCHES = 7.2
# Letters of 9.5 points that fit across a picture, with a reserve.
LETTERS_ACROSS = 100

matplotlib.rcParams.update({
    "font.family": ["Carlito", "DejaVu Sans"],
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.labelpad": 7,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "savefig.dpi": 200,
})  # fmt: skip


def canvas(title, height_inches=3.6):
    """A figure with one pair of axes, and its title flush left above everything else."""
    figure = Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained", facecolor="white")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
    if title:
        figure.suptitle(wrapped(title, 80), x=0.018, ha="left", fontsize=13, fontweight="bold")
    return figure, figure.subplots()


def wrapped(text, letters):
    return "\n".join(textwrap.wrap(text, letters)) or text


def shortened(text, letters):
    """Cuts long labels, so that no label pushes the drawing out of its picture."""
    return text if len(text) <= letters else text[: letters - 1].rstrip() + "…"


def name_axes(axes, across, up):
    """Names both axes, with line breaks where needed."""
    axes.set(xlabel=wrapped(across, 80), ylabel=wrapped(up, 36))


def legend_above(axes, handles, title):
    """Names the colours in rows above the drawing, where they hide no data."""
    longest = max(len(handle.get_label()) for handle in handles) + 5
    across = max(1, min(len(handles), LETTERS_ACROSS // longest))
    rows = math.ceil(len(handles) / across)
    # A long legend makes the picture higher instead of the drawing smaller.
    axes.figure.set_figheight(axes.figure.get_figheight() + 0.19 * max(0, rows - 2))
    legend = axes.legend(
        handles=handles,
        title=title,
        ncols=math.ceil(len(handles) / rows),
        loc="lower left",
        bbox_to_anchor=(0, 1.01),
        borderaxespad=0,
        borderpad=0.1,
        handletextpad=0.5,
        columnspacing=1.6,
        alignment="left",
    )
    legend.get_title().set(fontsize=9.5, color=FAINT)


def number_axis(axis, values):
    """Ticks in common notation: 12,500 from ten thousand on, 2007 and 0.25 unchanged."""
    grouped = max((abs(value) for value in values), default=0) >= 10_000
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:{',' if grouped else ''}.10g}".replace("-", "−")))


def count_axis(axis, most):
    axis.set_major_locator(MaxNLocator(integer=True))
    number_axis(axis, [most])


def colour(place):
    return COLOURS[place % len(COLOURS)]
