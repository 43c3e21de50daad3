"""The rows of a chart, and their arithmetic."""

import math
from collections import Counter
from dataclasses import dataclass

from src.utils.table import in_order, number

# As many groups as have distinguishable colours; the least frequent ones become one.
GROUPS_MAX = 8
OTHER = "other"
ALL = ""


@dataclass(frozen=True)
class Rows:
    """The rows with values in all drawn columns.

    `values` is a list of texts for each column, `labels` the group of each row (ALL without one), `groups` the labels
    of the whole table in order: a group has the same colour in every chart.
    """

    columns: list
    group: str | None
    values: list
    labels: list
    groups: list
    left_out: int

    @classmethod
    def of(cls, table, columns, group):
        """Takes `columns` of `table` (a dictionary of equally long columns), coloured by `group`."""
        length = len(next(iter(table.values())))
        labels, groups = grouped(table[group]) if group else ([ALL] * length, [ALL])
        chosen = [table[name] for name in columns]
        complete = [
            i for i in range(length) if labels[i] is not None and all(column[i] is not None for column in chosen)
        ]
        return cls(
            columns=list(columns),
            group=group,
            values=[[column[i] for i in complete] for column in chosen],
            labels=[labels[i] for i in complete],
            groups=groups,
            left_out=length - len(complete),
        )

    @property
    def drawn(self):
        return len(self.labels)

    def is_numeric(self, index):
        return all(number(text) is not None for text in self.values[index])

    def numbers(self, index, label=None):
        """Column `index` as numbers, of all rows or of those of one group."""
        pairs = zip(self.values[index], self.labels)
        return [number(text) for text, of in pairs if label is None or of == label]

    def groups_drawn(self):
        """The groups with drawn rows, with their index among all groups (their colour)."""
        present = set(self.labels)
        return [(place, label) for place, label in enumerate(self.groups) if label in present]


def grouped(values):
    """The group of each row, and all groups in order; beyond GROUPS_MAX the rarest become OTHER."""
    counts = Counter(value for value in values if value is not None)
    if len(counts) <= GROUPS_MAX:
        return list(values), in_order(counts)
    kept = {label for label, _ in counts.most_common(GROUPS_MAX - 1)}
    labels = [value if value is None or value in kept else OTHER for value in values]
    return labels, [*in_order(kept - {OTHER}), OTHER]


def quantile(ordered, share):
    """The value below which `share` of the sorted values lie, interpolated (type 7 of R and NumPy)."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def bin_edges(groups):
    """Edges of equal bins on round numbers, some 4 to 60 of them, for all of `groups` (lists of numbers).

    The width follows Freedman and Diaconis (1981), for the middle group: over all rows, it would hide the differences
    between the groups. Whole numbers get whole widths, so that no bin covers more of them than its neighbours.
    """
    values = [value for group in groups for value in group]
    low, high = min(values), max(values)
    if low == high:
        return [low - 0.5, low + 0.5]
    width = quantile(sorted(freedman_diaconis(sorted(group)) for group in groups if group), 0.5)
    width = rounded(min(max(width, (high - low) / 40), (high - low) / 5))
    if all(value.is_integer() for value in values):
        width = max(1.0, float(math.ceil(width)))
    first, last = math.floor(low / width), math.floor(high / width) + 1
    return [position * width for position in range(first, last + 1)]


def freedman_diaconis(ordered):
    spread = quantile(ordered, 0.75) - quantile(ordered, 0.25)
    return 2 * spread / len(ordered) ** (1 / 3)


def rounded(width):
    """The nearest, as a ratio, of 1, 2, 2.5 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(width))
    return min((step * power for step in (1, 2, 2.5, 5, 10)), key=lambda step: abs(math.log(step / width)))


def correlation(across, up):
    """Pearson's r, or None if it is meaningless: fewer than three rows, or only one value."""
    line = trend(across, up)
    return line and line[2]


def trend(across, up):
    """(slope, offset, r) of the line with the least squares; None when there is none."""
    count = len(across)
    if count < 3:
        return None
    mean_across, mean_up = math.fsum(across) / count, math.fsum(up) / count
    square_across = math.fsum((a - mean_across) ** 2 for a in across)
    square_up = math.fsum((u - mean_up) ** 2 for u in up)
    if square_across == 0 or square_up == 0:
        return None
    product = math.fsum((a - mean_across) * (u - mean_up) for a, u in zip(across, up))
    slope = product / square_across
    return slope, mean_up - slope * mean_across, product / math.sqrt(square_across * square_up)
