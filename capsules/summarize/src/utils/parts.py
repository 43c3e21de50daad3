"""Long texts in parts, cut where a reader would pause."""

# Where to cut, the best first: between paragraphs, lines, sentences, words.
CUTS = ("\n\n", "\n", ". ", " ")


def parts_of(text, characters_max):
    """`text` in parts of at most `characters_max` characters; together they are all of it but white space at the cuts.

    No part is shorter than half of that where a better cut would make it so, the last one excepted.
    """
    parts, begin = [], 0
    while len(text) - begin > characters_max:
        end = cut(text, begin, characters_max)
        parts.append(text[begin:end])
        begin = end
    parts.append(text[begin:])
    return [part.strip() for part in parts if part.strip()]


def cut(text, begin, characters_max):
    """Where the part that begins at `begin` ends."""
    for mark in CUTS:
        place = text.rfind(mark, begin + characters_max // 2, begin + characters_max)
        if place >= 0:
            return place + len(mark)
    return begin + characters_max


def groups_of(summaries, characters_max):
    """`summaries` in groups of at most `characters_max` characters, but of two at least: so there are fewer each time."""
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
