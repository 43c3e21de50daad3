"""The chapters of the survey for the report capsule: text, tables of numbers and charts."""

from src.utils import measures
from src.utils.naming import label, phrase, title_phrase
from src.utils.table import in_order
from src.utils.wording import count_of, exact, findings, fixed, listed, percent, places_of, shortened, signed

# With more groups there is no space for the spread beside each mean.
GROUPS_WITH_DEVIATION_MAX = 4
# More labels are counted instead of named.
LABELS_NAMED_MAX, CATEGORIES_NAMED_MAX = 6, 40

METHOD = """\
By software alone, from the table and nothing else; the same table gives the same report.

- A column is of numbers when all its values are; whole numbers with few different values, such as
  years, count as categories.
- Empty cells and NA, N/A, NaN and null are missing. A row is left out only where a value that is
  needed is missing.
- The main group is the category, of two to eight values, that explains the numbers best on average
  (eta squared).
- Findings about rows within groups compare each value with the mean of its group.
- These are descriptions. Nothing here says that one column causes another, or that what was found
  holds for rows that are not in the table.
"""


def chapters(profile, figures):
    """The sections of the report; `figures` maps a chapter's name to its sections with pictures."""
    return [
        {"heading": "In short", "text": "\n".join(f"- {sentence}" for sentence in findings(profile))},
        columns_chapter(profile),
        *numbers_chapter(profile),
        *categories_chapter(profile, figures.get("categories", [])),
        *groups_chapter(profile, figures.get("groups", [])),
        *relations_chapter(profile, figures.get("relations", [])),
        method_chapter(),
    ]


def columns_chapter(profile):
    gaps = {name: values.count(None) for name, values in profile.table.items() if None in values}
    worst = sorted(gaps, key=lambda name: -gaps[name])
    text = "Each row of this table is a column of the file, in the file's order."
    if worst:
        text += f" Values are missing in {listed([f'{shortened(name)} ({gaps[name]:,})' for name in worst], 6)}."
    grid = [["Column", "Kind", "Missing", "Different", "What it holds"]]
    for name, values in profile.table.items():
        counts = [f"{count:,}" for count in (values.count(None), len(set(values) - {None}))]
        grid.append([shortened(name), profile.kinds[name], *counts, holds(profile, name)])
    return {"heading": "The columns", "text": text, "grid": grid}


def holds(profile, name):
    """The range of numbers and dates, the labels of a category, or an example of other kinds."""
    present = [value for value in profile.table[name] if value is not None]
    kind = profile.kinds[name]
    if name in profile.summaries:
        return f"{exact(profile.summaries[name].minimum)} to {exact(profile.summaries[name].maximum)}"
    if kind == "date":
        return f"{min(present)} to {max(present)}"
    if kind == "category":
        counts = [f"{shortened(text, 24)} ({count:,})" for text, count in profile.labels(name)]
        return listed(counts, LABELS_NAMED_MAX)
    return f"for instance {shortened(present[0])}" if present else "nothing"


def numbers_chapter(profile):
    if not profile.numbers:
        return
    grid = [["Column", "Rows", "Mean", "Deviation", "Minimum", "1st quartile", "Median", "3rd quartile", "Maximum"]]
    for name, found in profile.summaries.items():
        places = places_of(found.deviation)
        middle = [fixed(value, places) for value in (found.lower_quartile, found.median, found.upper_quartile)]
        center = [fixed(found.mean, places), fixed(found.deviation, places)]
        grid.append(
            [label(shortened(name)), f"{found.count:,}", *center, exact(found.minimum), *middle, exact(found.maximum)]
        )
    unread = list(profile.kinds.values()).count("number") - len(profile.numbers)
    text = "The deviation is the standard deviation of a sample. "
    text += "A quarter of the rows lies below the first quartile, a quarter above the third."
    if unread:
        further = count_of(unread, "further column")
        text += f" {further} of numbers, those with the most missing values, had no place here."
    yield {"heading": "The numbers", "text": text, "grid": grid}


def categories_chapter(profile, figures):
    if not profile.categories:
        return
    lines = []
    for name in profile.categories[:CATEGORIES_NAMED_MAX]:
        known = sum(count for _, count in profile.labels(name))
        shares = [f"{shortened(text, 30)} {percent(count / known)}" for text, count in profile.labels(name)]
        lines.append(f"- {title_phrase(shortened(name))}: {listed(shares, LABELS_NAMED_MAX)}.")
    unnamed = len(profile.categories) - len(lines)
    if unnamed:
        lines.append(f"- {count_of(unnamed, 'further category', 'further categories')}.")
    yield {"heading": "The categories", "text": "\n".join(["Shares of the rows that have a value.", "", *lines])}
    yield from figures


def groups_chapter(profile, figures):
    if not profile.explained:
        if figures:
            yield {"heading": "Distributions", "text": "How often the values of the numbers occur."}
            yield from figures
        return
    groups = in_order(value for value in profile.table[profile.group] if value is not None)
    spread = len(groups) <= GROUPS_WITH_DEVIATION_MAX
    grid = [["Mean ± deviation" if spread else "Mean", *(shortened(group, 24) for group in groups), "Explained"]]
    for name, share in profile.explained:
        found = measures.by_group(profile.numbers[name], profile.table[profile.group])
        places = places_of(profile.summaries[name].deviation)
        cells = [mean_cell(found[group], places, spread) if group in found else "–" for group in groups]
        grid.append([label(shortened(name)), *cells, percent(share)])
    group = title_phrase(shortened(profile.group))
    text = (
        f"{group} is the category that tells the rows apart best. The last column says which share of a number's "
        "variance it explains: 100% would mean that all rows of a group are equal, 0% that the groups do not differ."
    )
    yield {"heading": f"Groups: {phrase(shortened(profile.group))}", "text": text, "grid": grid}
    yield from figures


def mean_cell(values, places, spread):
    found = measures.summarize(values)
    mean = fixed(found.mean, places)
    return f"{mean} ± {fixed(found.deviation, places)}" if spread else mean


def relations_chapter(profile, figures):
    if not figures:
        return
    text = "How the numbers go together, measured by Pearson's correlation r."
    if profile.relations and not profile.strongest:
        text += f" No two go together closely: the closest have r = {signed(profile.relations[0].overall)}."
    yield {"heading": "Relations", "text": text}
    yield from figures


def method_chapter():
    return {"heading": "How this was made", "text": METHOD}
