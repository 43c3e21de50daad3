"""One function for each kind of chart: rows and a title in, a Matplotlib figure out."""

import random
from collections import Counter

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from src.utils.naming import label, title_phrase
from src.utils.rows import bin_edges, correlation as pearson, quantile, trend
from src.utils.style import (
    FAINT, INK, SHAPES, canvas, colour, count_axis, legend_above, name_axes, number_axis, shortened, wrapped,
)  # fmt: skip
from src.utils.table import in_order

# More bars or boxes cannot be labelled legibly in one picture.
BARS_MAX, BOXES_MAX = 14, 8
# More filled areas hide each other: then only outlines are drawn.
FILLED_GROUPS_MAX = 3
# Minimum points for a line, which would otherwise suggest too much.
TREND_ROWS_MIN = 10
# With more points, single ones only darken the picture.
POINTS_BESIDE_BOXES_MAX = 2_000


def histogram(rows, title):
    """The frequency of values, with the median of each group."""
    figure, axes = canvas(title)
    edges = bin_edges([rows.numbers(0, group) for _, group in rows.groups_drawn()])
    filled = len(rows.groups_drawn()) <= FILLED_GROUPS_MAX
    handles = []
    for place, group in rows.groups_drawn():
        values = rows.numbers(0, group)
        shade = colour(place)
        if filled:
            axes.hist(values, edges, histtype="stepfilled", facecolor=shade, alpha=0.35)
        axes.hist(values, edges, histtype="step", edgecolor=shade, linewidth=1.6)
        axes.axvline(quantile(sorted(values), 0.5), color=shade, linestyle=(0, (4, 2)), linewidth=1.4)
        handles.append(
            Patch(
                facecolor=shade + "59" if filled else "white",
                edgecolor=shade,
                linewidth=1.6,
                label=short(group, len(values)),
            )
        )
    handles.append(Line2D([], [], color=FAINT, linestyle=(0, (4, 2)), linewidth=1.4, label="median"))
    legend_above(axes, handles, group_title(rows, counted=True))
    name_axes(axes, label(rows.columns[0]), "Rows")
    axes.set_xlim(edges[0], edges[-1])
    axes.grid(axis="y")
    number_axis(axes.xaxis, edges)
    count_axis(axes.yaxis, axes.get_ylim()[1])
    return figure


def scatter(rows, title):
    """Two numbers against each other, with a line for each group and its correlation r."""
    figure, axes = canvas(title, 3.85)
    handles = []
    size = 26 if rows.drawn <= 1_000 else 9
    for place, group in rows.groups_drawn():
        across, up = rows.numbers(0, group), rows.numbers(1, group)
        shade, shape = colour(place), SHAPES[place % len(SHAPES)]
        axes.scatter(across, up, s=size, marker=shape, facecolor=shade, alpha=0.7, edgecolor="white", linewidth=0.4)
        name = short(group, len(across))
        line = trend(across, up) if len(across) >= TREND_ROWS_MIN else None
        if line:
            draw_line(axes, across, line, color=shade, linewidth=1.8)
            name = short(group, f"{len(across)}, r = {signed(line[2])}")
        handles.append(
            Line2D([], [], marker=shape, markersize=6.5, color=shade, linewidth=1.8 if line else 0, label=name)
        )
    overall = trend(rows.numbers(0), rows.numbers(1))
    if overall and len(handles) > 1:
        draw_line(axes, rows.numbers(0), overall, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
        handles.append(
            Line2D([], [], color=INK, linewidth=1.2, linestyle=(0, (4, 3)), label=f"all (r = {signed(overall[2])})")
        )
    legend_above(axes, handles, group_title(rows, counted=True))
    name_axes(axes, label(rows.columns[0]), label(rows.columns[1]))
    axes.grid()
    number_axis(axes.xaxis, rows.numbers(0))
    number_axis(axes.yaxis, rows.numbers(1))
    return figure


def draw_line(axes, across, line, **look):
    ends = [min(across), max(across)]
    axes.plot(ends, [line[0] * end + line[1] for end in ends], solid_capstyle="round", **look)


def bar(rows, title):
    """The number of rows of each category, with the groups side by side in one bar."""
    counts = Counter(zip(rows.values[0], rows.labels))
    totals = Counter(rows.values[0])
    kept = [category for category, _ in sorted(totals.items(), key=lambda item: (-item[1], item[0]))]
    if len(kept) > BARS_MAX:
        rest = set(kept[BARS_MAX - 1 :])
        kept = [*kept[: BARS_MAX - 1], f"{len(rest)} others"]
        counts = Counter()
        for category, group in zip(rows.values[0], rows.labels):
            counts[kept[-1] if category in rest else category, group] += 1
    figure, axes = canvas(title, 1.7 + 0.4 * len(kept))
    most = max(sum(counts[category, group] for group in rows.groups) for category in kept)
    reached = [0] * len(kept)
    for place, group in rows.groups_drawn():
        lengths = [counts[category, group] for category in kept]
        axes.barh(kept, lengths, left=reached, height=0.66, color=colour(place), edgecolor="white", linewidth=0.8)
        for position, length in enumerate(lengths):
            if length >= most * 0.05 and len(rows.groups) > 1:
                middle = reached[position] + length / 2
                axes.text(middle, position, f"{length:,}", ha="center", va="center", fontsize=9, color=ink_on(place))
            reached[position] += length
    for position, total in enumerate(reached):
        axes.text(total + most * 0.012, position, f"{total:,}", va="center", fontsize=10, fontweight="bold")
    if rows.group:
        legend_above(
            axes,
            [Patch(color=colour(place), label=short(group)) for place, group in rows.groups_drawn()],
            group_title(rows),
        )
    name_axes(axes, "Rows", label(rows.columns[0]))
    axes.set(xlim=(0, most * 1.08), ylim=(len(kept) - 0.5, -0.5))
    label_categories(axes, kept)
    count_axis(axes.xaxis, most)
    return figure


def ink_on(place):
    """White or black, whichever is legible on the group's colour (WCAG 2.1 relative luminance)."""
    channels = [int(colour(place)[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "white" if luminance < 0.179 else "black"


def box(rows, title):
    """Median, quartiles and single values of a number in each category, by group."""
    frequent = Counter(rows.values[1]).most_common(BOXES_MAX)
    categories = in_order(category for category, _ in frequent)
    groups = rows.groups_drawn()
    figure, axes = canvas(title, 1.8 + 0.14 * len(categories) + 0.26 * len(categories) * len(groups))
    numbers = rows.numbers(0)
    width = 0.84 / len(groups)
    jitter = random.Random(1)  # The same table gives the same picture.
    for turn, (place, group) in enumerate(groups):
        for position, category in enumerate(categories):
            values = [n for n, c, g in zip(numbers, rows.values[1], rows.labels) if (c, g) == (category, group)]
            if values:
                middle = position + (turn - (len(groups) - 1) / 2) * width
                draw_box(axes, values, middle, width, colour(place))
                if len(numbers) <= POINTS_BESIDE_BOXES_MAX:
                    spots = [middle + jitter.uniform(-0.3, 0.3) * width for _ in values]
                    axes.scatter(values, spots, s=8, color=colour(place), alpha=0.55, linewidth=0, zorder=2)
    if rows.group:
        handles = [
            Patch(facecolor=colour(place) + "40", edgecolor=colour(place), label=short(name)) for place, name in groups
        ]
        legend_above(axes, handles, group_title(rows))
    name_axes(axes, label(rows.columns[0]), label(rows.columns[1]))
    axes.set_ylim(len(categories) - 0.5, -0.5)
    label_categories(axes, categories)
    number_axis(axes.xaxis, numbers)
    return figure


def draw_box(axes, values, middle, width, shade):
    """A box from quartile to quartile; its whiskers end at the last value within 1.5 boxes (Tukey)."""
    axes.boxplot(
        values, positions=[middle], widths=width * 0.72, vert=False, showfliers=False, patch_artist=True, manage_ticks=False, zorder=3,
        boxprops={"facecolor": shade + "40", "edgecolor": shade, "linewidth": 1.4},
        medianprops={"color": INK, "linewidth": 2},
        whiskerprops={"color": shade, "linewidth": 1.4},
        capprops={"color": shade, "linewidth": 1.4},
    )  # fmt: skip


def label_categories(axes, categories):
    """Names the rows of a chart on the left, which has space for long names."""
    axes.set_yticks(range(len(categories)), [wrapped(shortened(category, 56), 28) for category in categories])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def correlation(rows, title):
    """Pearson's r of each pair of numbers, as a triangle of coloured cells."""
    names = rows.columns
    down, along = names[1:], names[:-1]
    figure, axes = canvas(title, 1.7 + 0.55 * len(down))
    size = 11 if len(names) <= 7 else 8.5
    cells = [[None] * len(along) for _ in down]
    for row in range(len(down)):
        for column in range(row + 1):
            cells[row][column] = pearson(rows.numbers(row + 1), rows.numbers(column))
    shown = axes.imshow(
        [[float("nan") if cell is None else cell for cell in line] for line in cells],
        cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto",
    )  # fmt: skip
    for row, line in enumerate(cells):
        for column, cell in enumerate(line[: row + 1]):
            text, ink = ("–", INK) if cell is None else (signed(cell), "white" if abs(cell) > 0.6 else INK)
            axes.text(column, row, text, ha="center", va="center", color=ink, fontsize=size, fontweight="bold")
    axes.set_xticks(
        range(len(along)), [wrapped(label(name), max(10, 84 // len(along))) for name in along], fontsize=size - 1
    )
    axes.set_yticks(range(len(down)), [wrapped(label(name), 24) for name in down], fontsize=size - 1)
    axes.set_xticks([position - 0.5 for position in range(1, len(along))], minor=True)
    axes.set_yticks([position - 0.5 for position in range(1, len(down))], minor=True)
    axes.grid(which="minor", color="white", linewidth=3)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    scale = figure.colorbar(shown, ax=axes, label="Correlation r", ticks=[-1, -0.5, 0, 0.5, 1], fraction=0.05, pad=0.02)
    scale.outline.set_visible(False)
    return figure


def group_title(rows, counted=False):
    """The title of the legend: the group's column, and the meaning of the numbers after its labels."""
    return title_phrase(rows.group) + (" (rows)" if counted else "") if rows.group else None


def short(group, note=""):
    """The name of a group in a legend, with a note in brackets that is never cut."""
    name = shortened(group, 26) or "rows"
    return f"{name} ({note})" if note else name


def signed(r):
    return f"{round(r, 2) + 0.0:.2f}".replace("-", "−")
