"""The picture for the cover of a report: the table itself, as a landscape of ridges."""

import numpy
from matplotlib.figure import Figure

from src.utils.style import colour
from src.utils.table import in_order

# The width of an A4 page, and its upper half.
WIDTH_INCHES, HEIGHT_INCHES = 8.27, 6.3
NIGHT = "#0C1E33"
# The darkest of the colours are lighter here, on a dark background.
ON_NIGHT = {"#0072B2": "#3D9BE0", "#009E73": "#22BF92", "#000000": "#E8EEF4"}

POINTS = 500
# The reach of a value, as a share of the column's range: wide enough for calm lines.
REACH = 0.03
# How far a ridge rises into the one behind it; 1 would reach its foot.
RISE = 1.75


def cover(columns):
    """A ridge for each of `columns` (Rows of one column each) in its groups' colours; no axes, no words."""
    figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), facecolor=NIGHT)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(0, 1), ylim=(-0.5, max(len(columns), 1) - 1 + RISE * 1.08))
    for depth, rows in enumerate(column for column in columns if column.drawn):
        foot = len(columns) - 1 - depth
        draw_ridge(axes, rows, foot, zorder=2 * depth)
    return figure


def draw_ridge(axes, rows, foot, zorder):
    across = numpy.linspace(0, 1, POINTS)
    places, ridges = zip(*((place, density(rows, group, across)) for place, group in rows.groups_drawn()))
    highest = max(ridge.max() for ridge in ridges)
    ridges = [foot + ridge / highest * RISE for ridge in ridges]
    # Ridges behind show through the colours only outside of this ridge.
    axes.fill_between(across, foot, numpy.max(ridges, axis=0), color=NIGHT, alpha=0.82, linewidth=0, zorder=zorder)
    for place, ridge in zip(places, ridges):
        shade = ON_NIGHT.get(colour(place), colour(place))
        axes.fill_between(across, foot, ridge, color=shade, alpha=0.5, linewidth=0, zorder=zorder)
        raised = numpy.where(ridge > foot + 0.01, ridge, numpy.nan)
        axes.plot(across, raised, color=shade, linewidth=1.6, zorder=zorder + 1)
    axes.axhline(foot, color="white", alpha=0.25, linewidth=0.8, zorder=zorder + 1)


def density(rows, group, across):
    """The density of the group's values, smoothed with a bell curve; categories keep their order."""
    values, everything = positions(rows, group), positions(rows, None)
    low, high = min(everything), max(everything)
    margin = (high - low) * 0.22 or 1
    counts, _ = numpy.histogram((numpy.array(values) - low + margin) / (high - low + 2 * margin), POINTS, (0, 1))
    bell = numpy.exp(-0.5 * ((across - 0.5) / REACH) ** 2)
    return numpy.convolve(counts, bell / bell.sum(), "same")


def positions(rows, group):
    if rows.is_numeric(0):
        return rows.numbers(0, group)
    places = {label: place for place, label in enumerate(in_order(rows.values[0]))}
    return [places[text] for text, of in zip(rows.values[0], rows.labels) if group is None or of == group]
