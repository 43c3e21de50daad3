"""The statistics of the survey: spread, correlation, and explained variance."""

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from operator import mul


@dataclass(frozen=True)
class Summary:
    """Statistics of a column of numbers; `deviation` is of a sample (n - 1), None for one value."""

    count: int
    mean: float
    deviation: float | None
    minimum: float
    lower_quartile: float
    median: float
    upper_quartile: float
    maximum: float


def summarize(values):
    """The Summary of at least one number."""
    ordered = sorted(values)
    count = len(ordered)
    mean = math.fsum(ordered) / count
    square = math.fsum((value - mean) ** 2 for value in ordered)
    return Summary(
        count=count,
        mean=mean,
        deviation=math.sqrt(square / (count - 1)) if count > 1 else None,
        minimum=ordered[0],
        lower_quartile=quantile(ordered, 0.25),
        median=quantile(ordered, 0.5),
        upper_quartile=quantile(ordered, 0.75),
        maximum=ordered[-1],
    )


def quantile(ordered, share):
    """The value below which `share` of the sorted values lie, interpolated (type 7 of R and NumPy)."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def complete(*columns):
    """The columns without incomplete rows."""
    if not any(None in column for column in columns):
        return list(columns)
    rows = [row for row in zip(*columns) if None not in row]
    return [list(column) for column in zip(*rows)] if rows else [[] for _ in columns]


def by_group(values, labels):
    """{label: its numbers}, without rows that lack a number or a label."""
    groups = defaultdict(list)
    for value, label in zip(values, labels):
        if value is not None and label is not None:
            groups[label].append(value)
    return dict(groups)


def correlation(across, up):
    """Pearson's r of the complete rows; None for fewer than three, or without spread."""
    across, up = complete(across, up)
    return pearson(across, up) if len(across) >= 3 else None


def pearson(across, up):
    """r of two columns without gaps, of at least one row; None if one of them has no spread."""
    across, up = deviations(across), deviations(up)
    spread = math.sqrt(sum(map(mul, across, across)) * sum(map(mul, up, up)))
    return sum(map(mul, across, up)) / spread if spread else None


def deviations(values):
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values]


def residuals(values, labels):
    """Each value minus the mean of its group; None if value or label is missing."""
    means = {label: math.fsum(group) / len(group) for label, group in by_group(values, labels).items()}
    return [None if value is None or label is None else value - means[label] for value, label in zip(values, labels)]


def explained(values, labels):
    """The share of the variance that the groups explain (eta squared), from 0 to 1; None without spread."""
    values, labels = complete(values, labels)
    if len(values) < 3 or len(set(labels)) < 2:
        return None
    deviated, left = deviations(values), residuals(values, labels)
    total, within = sum(map(mul, deviated, deviated)), sum(map(mul, left, left))
    # Rounding may make equal sums differ; then nothing is left to explain.
    return max(0.0, 1 - within / total) if total > 0 else None


def association(first, second):
    """The association of two categories (Cramér's V), from 0 to 1; None if one of them has only one value."""
    first, second = complete(first, second)
    rows, columns, cells = Counter(first), Counter(second), Counter(zip(first, second))
    if min(len(rows), len(columns)) < 2:
        return None
    count = len(first)
    square = sum(
        (cells[row, column] - expected) ** 2 / expected
        for row in rows
        for column in columns
        for expected in [rows[row] * columns[column] / count]
    )
    return math.sqrt(square / (count * (min(len(rows), len(columns)) - 1)))
