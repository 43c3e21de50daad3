"""Numbers and findings as text: '4,202', '78%', 'Adelie, Chinstrap and Gentoo'."""

import math

from src.utils.naming import phrase, title_phrase
from src.utils.profile import EXPLAINED_MIN


def exact(value):
    """A value of the table, with separators from ten thousand on."""
    return typeset(f"{value:{',' if abs(value) >= 10_000 else ''}.10g}")


def fixed(value, places):
    """A computed number with `places` decimals; '–' for None."""
    return "–" if value is None else typeset(f"{value:{',' if abs(value) >= 10_000 else ''}.{places}f}")


def places_of(deviation):
    """The number of meaningful decimals for numbers that differ by `deviation`: three of its digits."""
    return min(8, max(0, 2 - math.floor(math.log10(deviation)))) if deviation else 2


def typeset(text):
    return text.replace("-", "−")


def percent(share):
    """'78%'; small shares keep one decimal, and a share above zero is never shown as 0%."""
    if 0 < share < 0.001:
        return "less than 0.1%"
    return f"{share:.0%}" if share >= 0.1 or share == 0 else f"{share:.1%}"


def signed(r):
    return typeset(f"{round(r, 2) + 0.0:.2f}")


def count_of(count, thing, things=None):
    """'1 row', '2,752 rows'."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def listed(words, most=8):
    """'a, b and c'; words beyond `most` are counted."""
    words = list(words)
    if len(words) > most:
        words = [*words[: most - 1], f"{len(words) - most + 1} others"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def shortened(text, letters=40):
    return text if len(text) <= letters else text[: letters - 1].rstrip() + "…"


def findings(profile):
    """The findings of the table as a list of sentences, the most general first."""
    sentences = [size(profile), completeness(profile)]
    if profile.explained:
        sentences.append(separation(profile))
    if profile.second:
        sentences.append(second(profile))
    if profile.strongest:
        sentences.append(together(profile.strongest))
    if profile.reversal:
        sentences.append(turned(profile.reversal, profile.group))
    return sentences


def size(profile):
    """'344 rows and 8 columns: 4 of numbers and 4 of categories.'"""
    plural = {
        "number": "of numbers",
        "category": "of categories",
        "date": "of dates",
        "identifier": "of identifiers",
        "text": "of text",
        "empty": "empty",
    }
    kinds = list(profile.kinds.values())
    parts = [f"{kinds.count(kind)} {words}" for kind, words in plural.items() if kind in kinds]
    return f"{count_of(profile.rows, 'row')} and {count_of(len(kinds), 'column')}: {listed(parts)}."


def completeness(profile):
    values = profile.rows * len(profile.table)
    if not profile.missing:
        return f"None of the {values:,} values is missing."
    complete = profile.complete_rows
    rows = f"{count_of(complete, 'row is', 'rows are')} complete" if complete else "no row is complete"
    verb = "is" if profile.missing == 1 else "are"
    share = percent(profile.missing / values)
    return f"{profile.missing:,} of {values:,} values {verb} missing ({share}); {rows}."


def separation(profile):
    """The category that separates the rows best, and what it explains; or that none does."""
    group, (name, share) = title_phrase(profile.group), profile.explained[0]
    if share < EXPLAINED_MIN:
        return (
            f"No category separates the rows: even {phrase(profile.group)} explains no more than "
            f"{percent(share)} of the variance of a number ({phrase(name)})."
        )
    shares = [f"{percent(share)} of {phrase(name)}" for name, share in profile.explained[:3]]
    return f"{group} separates the rows best: it explains {listed(shares)} (shares of variance)."


def second(profile):
    number, category, share = profile.second
    group = phrase(profile.group)
    return f"Within each {group}, {phrase(category)} explains {percent(share)} of what remains of {phrase(number)}."


def together(relation):
    pair = f"{title_phrase(relation.across)} and {phrase(relation.up)}"
    return f"{pair} {direction_of(relation)}: r = {signed(relation.overall)} over {relation.rows:,} rows."


def direction_of(relation):
    return "rise together" if relation.overall > 0 else "go in opposite directions"


def turned(relation, group):
    """A sentence that prevents the wrong conclusion."""
    low, high = min(relation.in_groups.values()), max(relation.in_groups.values())
    whole, inside = ("falls", "rises") if relation.overall < 0 else ("rises", "falls")
    return (
        f"Over all rows {phrase(relation.up)} {whole} with {phrase(relation.across)} (r = {signed(relation.overall)}), "
        f"but within every single {phrase(group)} it {inside} (r = {signed(low)} to {signed(high)}): "
        f"the groups must be looked at one by one."
    )
