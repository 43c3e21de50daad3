"""The survey's analysis of a table: the kinds of its columns, its main group, and its findings.

Everything here is decided by rules and stays numeric; wording.py writes texts, plan.py selects charts.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import combinations

from src.utils import measures
from src.utils.table import kind_of, numbers

# As many as a table of correlations can show, and few enough to compare all pairs.
NUMBERS_MAX = 12
# A group has members, and a separate colour in every chart.
GROUPS_MAX = 8
GROUP_ROWS_MIN = 3
# Cohen (1988) calls |r| = 0.3 medium and 1 % of variance small; smaller effects are not reported.
CORRELATION_MIN = 0.3
EXPLAINED_MIN = 0.02
# A reversal is reported only if it is visible on both sides.
REVERSAL_OVERALL_MIN, REVERSAL_WITHIN_MIN = 0.1, 0.3
RELATION_ROWS_MIN = 10


@dataclass(frozen=True)
class Relation:
    """The relation of two numbers: r over all rows, within the groups, and in each group.

    `within` is None and `in_groups` empty if the table has no group.
    """

    across: str
    up: str
    rows: int
    overall: float
    within: float | None
    in_groups: dict

    @property
    def reversed(self):
        """Whether all groups, together and each, contradict the whole (Simpson's paradox)."""
        if self.within is None or not self.in_groups:
            return False
        opposite = all(r * self.overall < 0 for r in self.in_groups.values())
        return opposite and abs(self.overall) >= REVERSAL_OVERALL_MIN and abs(self.within) >= REVERSAL_WITHIN_MIN


@dataclass(frozen=True)
class Profile:
    """A table and its analysis, with the column names of the table."""

    table: dict
    kinds: dict
    numbers: dict
    # {number: Summary}
    summaries: dict
    categories: list
    group: str | None
    # (number, share of its variance that the group explains), best explained first.
    explained: list
    # (number, category, share of the variance left by the group), the greatest share; or None.
    second: tuple | None
    # The category most closely associated with the group, for counting both; or None.
    companion: str | None
    relations: list

    @classmethod
    def of(cls, table):
        """Analyses `table`, {column: [text or None, ...]}."""
        kinds = {name: kind_of(values) for name, values in table.items()}
        named = [name for name, kind in kinds.items() if kind == "number"]
        # Of too many numbers, only those with the most values are analysed, in the order of the table.
        fullest = sorted(named, key=lambda name: table[name].count(None))[:NUMBERS_MAX]
        parsed = {name: numbers(table[name]) for name in named if name in fullest}
        categories = [name for name, kind in kinds.items() if kind == "category" and len(set(table[name]) - {None}) > 1]
        group = main_group(table, parsed, categories)
        return cls(
            table=table,
            kinds=kinds,
            numbers=parsed,
            summaries={
                name: measures.summarize([value for value in values if value is not None])
                for name, values in parsed.items()
            },
            categories=categories,
            group=group,
            explained=explained_by(table, parsed, group),
            second=second_category(table, parsed, categories, group),
            companion=companion_of(table, categories, group),
            relations=relations(table, parsed, group),
        )

    @property
    def rows(self):
        return len(next(iter(self.table.values())))

    @property
    def missing(self):
        """The number of missing values in the whole table."""
        return sum(values.count(None) for values in self.table.values())

    @property
    def complete_rows(self):
        return sum(None not in row for row in zip(*self.table.values()))

    @property
    def strongest(self):
        """The closest relation above the minimum, or None."""
        return next((found for found in self.relations if abs(found.overall) >= CORRELATION_MIN), None)

    @property
    def reversal(self):
        """The clearest relation that reverses within the groups, or None."""
        turned = [found for found in self.relations if found.reversed]
        return max(turned, key=lambda found: abs(found.within), default=None)

    def labels(self, name):
        """The values of a category with their counts, the most frequent first."""
        counts = Counter(value for value in self.table[name] if value is not None)
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def main_group(table, parsed, categories):
    """The category that explains the numbers best on average; without numbers, the first one that can be a group."""
    fit = [name for name in categories if can_group(table[name])]
    if not fit or not parsed:
        return fit[0] if fit else None

    def score(name):
        shares = [measures.explained(values, table[name]) for values in parsed.values()]
        return sum(share or 0.0 for share in shares) / len(shares)

    return max(fit, key=score)


def can_group(values):
    counts = Counter(value for value in values if value is not None)
    return 2 <= len(counts) <= GROUPS_MAX and min(counts.values()) >= GROUP_ROWS_MIN


def explained_by(table, parsed, group):
    if group is None:
        return []
    shares = [(name, measures.explained(values, table[group])) for name, values in parsed.items()]
    return sorted((pair for pair in shares if pair[1] is not None), key=lambda pair: -pair[1])


def second_category(table, parsed, categories, group):
    """The other category that explains most of the remaining variance of a number within the groups."""
    if group is None:
        return None
    others = [category for category in categories if category != group and can_group(table[category])]
    found = []
    for name, values in parsed.items():
        left = measures.residuals(values, table[group])
        found += [(name, category, measures.explained(left, table[category]) or 0.0) for category in others]
    best = max(found, key=lambda each: each[2], default=None)
    return best if best and best[2] >= EXPLAINED_MIN else None


def companion_of(table, categories, group):
    others = [name for name in categories if name != group]
    if group is None:
        return None
    return max(others, key=lambda name: measures.association(table[name], table[group]) or 0.0, default=None)


def relations(table, parsed, group):
    """Every pair of numbers with enough rows and spread, the closest relation first."""
    labels = table[group] if group else None
    # The residuals of each number after subtracting the mean of its group.
    left = {name: measures.residuals(values, labels) for name, values in parsed.items()} if group else {}
    found = []
    for across, up in combinations(parsed, 2):
        rows = sum(None not in pair for pair in zip(parsed[across], parsed[up]))
        overall = measures.correlation(parsed[across], parsed[up])
        if rows < RELATION_ROWS_MIN or overall is None:
            continue
        within = measures.correlation(left[across], left[up]) if group else None
        in_groups = correlations_in_groups(parsed[across], parsed[up], labels) if group else {}
        found.append(Relation(across, up, rows, overall, within, in_groups))
    return sorted(found, key=lambda relation: -abs(relation.overall))


def correlations_in_groups(across, up, labels):
    """{label: r}, without groups of too few rows."""
    rows = defaultdict(list)
    for a, u, label in zip(across, up, labels):
        if a is not None and u is not None and label is not None:
            rows[label].append((a, u))
    found = {label: measures.pearson(*zip(*pairs)) for label, pairs in rows.items() if len(pairs) >= RELATION_ROWS_MIN}
    return {label: r for label, r in found.items() if r is not None}
