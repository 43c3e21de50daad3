"""Documents as passages with stable ids, which reports cite."""

import json
import re
import unicodedata
from dataclasses import asdict, dataclass
from pathlib import PurePath

# A few paragraphs: meaningful by itself, and short enough to find a sentence in it.
PASSAGE_CHARACTERS_MAX = 1_200
# Where a longer paragraph is cut, best first.
CUTS = ("\n", ". ", " ")


@dataclass(frozen=True)
class Passage:
    """A piece of a document; `id` is `doc:number`, with numbers from 1; `page` is None without pages."""

    id: str
    page: int | None
    text: str


@dataclass(frozen=True)
class Source:
    """A document: the prefix of its passages' ids, its file, and its passages in their order."""

    id: str
    file: str
    passages: list[Passage]


class Library:
    """All documents of a run."""

    def __init__(self, sources):
        self.sources = {source.id: source for source in sources}
        self.passages = {passage.id: passage for source in sources for passage in source.passages}

    @classmethod
    def of(cls, documents):
        """The library of `documents`: the same documents in the same order give the same ids."""
        sources = []
        for document in documents:
            word = free_word(document.name, {source.id for source in sources})
            sources.append(Source(word, document.name, passages_of(document, word)))
        return cls(sources)

    def save(self, path):
        path.write_text(json.dumps([asdict(source) for source in self.sources.values()]), "utf-8")

    @classmethod
    def load(cls, path):
        sources = json.loads(path.read_text("utf-8"))
        return cls([
            Source(source["id"], source["file"], [Passage(**passage) for passage in source["passages"]])
            for source in sources
        ])  # fmt: skip


def free_word(file, taken):
    """A unique word for `file`: 'Über uns.pdf' is uber-uns, the next one of that name uber-uns-2."""
    plain = unicodedata.normalize("NFKD", PurePath(file).stem).encode("ascii", "ignore").decode().lower()
    word = re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "document"
    number, found = 1, word
    while found in taken:
        number += 1
        found = f"{word}-{number}"
    return found


def passages_of(document, word):
    """The passages of a document: whole paragraphs of one page, up to the maximum size."""
    passages = []
    for number, text in enumerate(document.pages, 1):
        page = number if document.is_pdf else None
        for piece in pieces_of(text):
            passages.append(Passage(f"{word}:{len(passages) + 1}", page, piece))
    return passages


def pieces_of(text):
    """`text` in pieces of at most PASSAGE_CHARACTERS_MAX characters, cut between paragraphs if possible."""
    pieces = []
    for paragraph in re.split(r"\n\s*\n", text):
        for part in parts_of(paragraph):
            if pieces and len(pieces[-1]) + len(part) + 2 <= PASSAGE_CHARACTERS_MAX:
                pieces[-1] += "\n\n" + part
            else:
                pieces.append(part)
    return pieces


def parts_of(paragraph):
    """The parts of a paragraph that is too long."""
    parts, left = [], paragraph.strip()
    while len(left) > PASSAGE_CHARACTERS_MAX:
        places = [left.rfind(mark, PASSAGE_CHARACTERS_MAX // 2, PASSAGE_CHARACTERS_MAX - 1) for mark in CUTS]
        end = next((place + 1 for place in places if place >= 0), PASSAGE_CHARACTERS_MAX)
        parts.append(left[:end].strip())
        left = left[end:].strip()
    return [*parts, left] if left else parts
