"""Splits long texts where a reader would pause."""

# Where to cut, best first: between paragraphs, lines, sentences, words.
CUTS = ("\n\n", "\n", ". ", " ")


def parts_of(text, characters_max):
    """`text` in parts of at most `characters_max` characters; together they are the whole text without white space at the cuts.

    No part except the last is shorter than half of that.
    """
    parts, begin = [], 0
    while len(text) - begin > characters_max:
        end = cut(text, begin, characters_max)
        parts.append(text[begin:end])
        begin = end
    parts.append(text[begin:])
    return [part.strip() for part in parts if part.strip()]


def cut(text, begin, characters_max):
    """The end of the part that begins at `begin`."""
    for mark in CUTS:
        place = text.rfind(mark, begin + characters_max // 2, begin + characters_max)
        if place >= 0:
            return place + len(mark)
    return begin + characters_max


def groups_of(summaries, characters_max):
    """`summaries` in groups of at most `characters_max` characters, at least two each: their number decreases."""
    groups, size = [], 0
    for summary in summaries:
        length = len(summary["summary"]) + sum(map(len, summary["key_points"]))
        if groups and (size + length <= characters_max or len(groups[-1]) < 2):
            groups[-1].append(summary)
            size += length
        else:
            groups.append([summary])
            size = length
    return groups
