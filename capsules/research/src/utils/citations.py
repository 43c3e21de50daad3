"""Checks the citations of a report: each names a passage, quotes are exact, each section has a citation."""

import re
import unicodedata
from dataclasses import dataclass

CITATION = re.compile(r"\[([a-z0-9-]+:[0-9]+)\]")
# A malformed citation: brackets that contain a colon, without a link.
NEARLY = re.compile(r"\[([^\[\]\n]*\w:[^\[\]\n]*)\](?!\(|:)")
HEADING = re.compile(r"(#{1,6})\s+(.*)")
FENCE = re.compile(r"\s*(```|~~~)")
# An item of a list, or a heading, is a separate block; other blocks end at an empty line.
ITEM = re.compile(r"\s*([-*+]|\d+[.)])\s+")
QUOTED = re.compile(r"„([^“”]+)[“”]|“([^“”]+)”|«([^«»]+)»|\"([^\"]+)\"")
OMITTED = re.compile(r"\[?(?:…|\.\.\.)\]?")
# Characters with the same meaning in different documents.
SAME = str.maketrans(
    {"‘": "'", "’": "'", "‚": "'", "“": '"', "”": '"', "„": '"', "–": "-", "—": "-", "‐": "-", "‑": "-"}
)
# Maximum characters of a quote in a message.
SHOWN_CHARACTERS_MAX = 120


@dataclass(frozen=True)
class Block:
    """A paragraph, an item of a list or a quote; lines count from 1, `section` is the line and title of its heading."""

    line: int
    section: tuple[int, str]
    text: str
    is_quote: bool = False


def problems_of(report, library):
    """All problems of the citations of `report`, in Markdown: one sentence each, with the place and what to do."""
    blocks = blocks_of(report)
    problems = [problem for block in blocks for problem in problems_of_block(block, library)]
    sections = {}
    for block in blocks:
        sections.setdefault(block.section, []).append(block)
    for (_, title), members in sections.items():
        if not any(CITATION.search(block.text) for block in members):
            name = f"section '{title}'" if title else "the text before the first heading"
            problems.append(f"line {members[0].line}: {name} has no citation; expected at least one such as [doc:3]")
    return problems or ([] if blocks else ["the report has no text; expected sections with citations"])


def cited(report):
    """The ids that `report` cites, each once, in the order of their first citation."""
    return list(dict.fromkeys(id for block in blocks_of(report) for id in CITATION.findall(block.text)))


def problems_of_block(block, library):
    ids = CITATION.findall(block.text)
    for text in NEARLY.findall(block.text):
        if not CITATION.fullmatch(f"[{text}]"):
            yield f"line {block.line}: '[{text}]' is not a citation; expected one passage in each pair of brackets: [doc:3]"
    for id in dict.fromkeys(ids):
        if id not in library.passages:
            yield f"line {block.line}: unknown passage [{id}]; {known(id, library)}"
    passages = " ".join(plain(library.passages[id].text) for id in ids if id in library.passages)
    for quote in quotes_of(block):
        shown = quote if len(quote) <= SHOWN_CHARACTERS_MAX else quote[:SHOWN_CHARACTERS_MAX] + "…"
        if not ids:
            yield f'line {block.line}: "{shown}" is quoted without a citation in the same paragraph'
        elif not is_in(quote, passages):
            places = ", ".join(f"[{id}]" for id in dict.fromkeys(ids))
            yield (
                f'line {block.line}: "{shown}" is not in {places}; quote word for word, or paraphrase '
                "without quotation marks"
            )


def known(id, library):
    word = id.partition(":")[0]
    if word in library.sources:
        return f"{word} has passages {word}:1 to {word}:{len(library.sources[word].passages)}"
    return f"the documents are {', '.join(library.sources)}"


def blocks_of(report):
    """The blocks of a report, without headings and code."""
    blocks, section, is_code, is_open = [], (0, ""), False, False
    for number, line in enumerate(report.splitlines(), 1):
        if FENCE.match(line):
            is_code, is_open = not is_code, False
        elif is_code:
            continue
        elif heading := HEADING.match(line):
            section, is_open = (number, heading[2].strip()), False
        elif not line.strip():
            is_open = False
        else:
            is_quote, text = line.lstrip().startswith(">"), line.lstrip(" >").rstrip()
            if is_open and not ITEM.match(line) and blocks[-1].is_quote == is_quote:
                last = blocks.pop()
                blocks.append(Block(last.line, section, f"{last.text} {text}", is_quote))
            else:
                blocks.append(Block(number, section, text, is_quote))
            is_open = True
    return blocks


def quotes_of(block):
    """The quoted texts of `block`: all of a quote, otherwise the texts in quotation marks."""
    if block.is_quote:
        return [CITATION.sub("", block.text).strip().strip('"“”„«»').strip()]
    return [next(filter(None, found)) for found in QUOTED.findall(block.text)]


def is_in(quote, passages):
    """Whether `passages` contain all pieces of `quote`, separated by ellipses, in their order."""
    begin = 0
    for piece in OMITTED.split(quote):
        # A sentence that continues after a quote may end the quote with a different sign.
        wanted = plain(piece).strip(" .,;:")
        place = passages.find(wanted, begin)
        if place < 0:
            return False
        begin = place + len(wanted)
    return True


def plain(text):
    """`text` normalized for comparison: lower case, one line, unified signs, no hyphens in words."""
    text = unicodedata.normalize("NFKC", text).replace("\u00ad", "").translate(SAME)
    text = re.sub(r"(?<=\w)-(\n\s*)?(?=\w)", "", text)
    return " ".join(text.replace("*", "").replace("_", "").split()).casefold()
