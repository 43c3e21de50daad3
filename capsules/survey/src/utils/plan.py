"""Selects the charts for a table by its findings; the chart capsule draws them."""

from dataclasses import dataclass

from src.utils.measures import by_group
from src.utils.naming import phrase, title_phrase, unit
from src.utils.profile import RELATION_ROWS_MIN
from src.utils.wording import count_of, direction_of, exact, fixed, percent, places_of, shortened, signed, turned

# A reader looks at a few pictures only.
HISTOGRAMS_MAX = 3
BARS_MAX = 2
# The chart capsule accepts titles of up to 200 letters, and some titles name three columns.
NAME_LETTERS_MAX = 44


@dataclass(frozen=True)
class Drawing:
    """A planned chart, with its chapter in the report and its texts."""

    chapter: str
    kind: str
    columns: list
    group: str | None
    # The picture's message, its subject, and the text beside it.
    title: str
    heading: str
    text: str


def plan(profile):
    """The charts of the report in its order; none if the table has neither numbers nor categories."""
    return [*counts(profile), *distributions(profile), *boxes(profile), *overview(profile), *scatters(profile)]


def counts(profile):
    if profile.group and profile.companion:
        with_group = [(profile.companion, profile.group)]
    else:
        with_group = [(name, None) for name in profile.categories[:BARS_MAX]]
    for name, group in with_group:
        labels = profile.labels(name)
        known = sum(count for _, count in labels)
        heading = f"{named(name)} by {words(group)}" if group else named(name)
        title = f"{shortened(labels[0][0])} has {percent(labels[0][1] / known)} of the rows"
        rarest, times = labels[-1]
        text = f"{count_of(known, 'row')} with {count_of(len(labels), 'different value')}; "
        text += f"the rarest is {shortened(rarest)}, in {count_of(times, 'row')}."
        yield Drawing("categories", "bar", [name], group, title, heading, text)


def distributions(profile):
    """The numbers that the group explains best; without a group, the first of the table."""
    for name, share in profile.explained[:HISTOGRAMS_MAX]:
        title = f"{named(profile.group)} explains {percent(share)} of the variance of {words(name)}"
        heading = f"{named(name)} by {words(profile.group)}"
        yield Drawing("groups", "histogram", [name], profile.group, title, heading, extremes(profile, name))
    if not profile.explained:
        for name, found in list(profile.summaries.items())[:HISTOGRAMS_MAX]:
            places = places_of(found.deviation)
            low, median, high = (fixed(v, places) for v in (found.lower_quartile, found.median, found.upper_quartile))
            title = f"Half of the rows lie between {low} and {high}"
            text = f"From {exact(found.minimum)} to {exact(found.maximum)}, with a median of {median}."
            yield Drawing("groups", "histogram", [name], None, title, named(name), text)


def extremes(profile, name):
    """The groups with the greatest and the smallest mean."""
    groups = by_group(profile.numbers[name], profile.table[profile.group])
    means = {group: sum(values) / len(values) for group, values in groups.items()}
    places, of = places_of(profile.summaries[name].deviation), unit(name)
    highest, lowest = (
        f"{shortened(group)} ({fixed(means[group], places)}{'' if of in ('', '%') else ' '}{of})"
        for group in (max(means, key=means.get), min(means, key=means.get))
    )
    return f"The mean is greatest for {highest} and smallest for {lowest}."


def boxes(profile):
    if profile.second:
        number, category, share = profile.second
        title = (
            f"{named(category)} explains {percent(share)} of what {words(profile.group)} leaves open of {words(number)}"
        )
        heading = f"{named(number)} by {words(category)} and {words(profile.group)}"
        text = "A box reaches from quartile to quartile, with the median in it; the dots are single rows."
        yield Drawing("groups", "box", [number, category], profile.group, title, heading, text)


def overview(profile):
    """All correlations at a glance, if enough rows have all the numbers."""
    names = list(profile.numbers)
    full = sum(None not in row for row in zip(*profile.numbers.values()))
    if len(names) >= 3 and full >= RELATION_ROWS_MIN and profile.relations:
        closest = profile.relations[0]
        title = f"Closest are {words(closest.across)} and {words(closest.up)} (r = {signed(closest.overall)})"
        text = "Near 1, two columns rise together; near −1, one falls as the other rises; near 0, no line joins them."
        yield Drawing("relations", "correlation", names, None, title, "All pairs at a glance", text)


def scatters(profile):
    """The closest relation, and the one that reverses within the groups."""
    closest, turning = profile.strongest, profile.reversal
    if closest and closest is not turning:
        pair = f"{named(closest.across)} and {words(closest.up)}"
        title = f"{pair} {direction_of(closest)} (r = {signed(closest.overall)})"
        text = f"{closest.rows:,} rows have both."
        if closest.within is not None:
            taken_out = f"the differences between the groups of {words(profile.group)}"
            text += f" With {taken_out} taken out, r = {signed(closest.within)}."
        yield scatter(profile, closest, title, text)
    if turning:
        whole, inside = ("falls", "rises") if turning.overall < 0 else ("rises", "falls")
        title = f"{named(turning.up)} {whole} with {words(turning.across)} over all, "
        title += f"but {inside} within each {words(profile.group)}"
        yield scatter(profile, turning, title, turned(turning, profile.group))


def scatter(profile, relation, title, text):
    heading = f"{named(relation.up)} against {words(relation.across)}"
    return Drawing("relations", "scatter", [relation.across, relation.up], profile.group, title, heading, text)


def named(column):
    return shortened(title_phrase(column), NAME_LETTERS_MAX)


def words(column):
    return shortened(phrase(column), NAME_LETTERS_MAX)
