"""Summarizes documents: takes out their text, has a model summarize it part by part, and puts the parts together.

Text comes out in utils/documents.py, is cut in utils/parts.py and written in utils/markdown.py: the model summarizes,
nothing else.
"""

import asyncio

from aod import CapsuleError

from src.utils.documents import Unreadable, read
from src.utils.markdown import markdown_of
from src.utils.parts import groups_of, parts_of

# What the model reads at once: some 10,000 tokens, of which it keeps the middle in mind as well as the ends.
PART_CHARACTERS_MAX = 40_000
# Of all documents together; bounds time and money: a hundred parts.
CHARACTERS_MAX = 4_000_000
# What the model answers, for a part as for the whole.
SUMMARY = {
    "type": "object",
    "required": ["title", "summary", "key_points"],
    "additionalProperties": False,
    "properties": {
        "title": {"type": "string", "minLength": 1, "maxLength": 200},
        "summary": {"type": "string", "minLength": 1, "maxLength": 6_000},
        "key_points": {
            "type": "array",
            "minItems": 1,
            "maxItems": 12,
            "items": {"type": "string", "minLength": 1, "maxLength": 600},
        },
    },
}


async def execute(inputs, ctx):
    """Summarizes each of `documents`, then all of them; writes the same as Markdown."""
    documents = texts_of(inputs["documents"], ctx)
    parts = [parts_of(document.text, PART_CHARACTERS_MAX) for document in documents]
    writer = Writer(ctx, inputs, sum(map(len, parts)))
    pairs = list(zip(documents, parts, strict=True))
    summaries = await asyncio.gather(*(writer.document(document.name, pieces) for document, pieces in pairs))
    whole = await writer.together(summaries, "documents")
    answer = {
        **whole,
        "documents": [
            {"document": document.name, **summary, "characters": len(document.text), "parts": len(pieces)}
            for (document, pieces), summary in zip(pairs, summaries, strict=True)
        ],
    }
    summary_file = ctx.output_file("summary.md")
    summary_file.write_text(markdown_of(answer), "utf-8")
    return {"summary_file": summary_file, **answer}


def texts_of(names, ctx):
    """The documents of these names, read before anything is paid for."""
    try:
        documents = [read(ctx.input_file(name), name) for name in names]
    except Unreadable as unreadable:
        raise CapsuleError(unreadable.code, str(unreadable)) from unreadable
    characters = sum(len(document.text) for document in documents)
    if characters > CHARACTERS_MAX:
        message = f"the documents have {characters:,} characters; expected at most {CHARACTERS_MAX:,} in one call"
        raise CapsuleError("documents_too_long", message)
    return documents


class Writer:
    """Has the model write summaries, `parallel` at once; tells how far it is, in parts."""

    def __init__(self, ctx, inputs, parts):
        self.ctx = ctx
        self.agent = ctx.agent()
        self.turns = asyncio.Semaphore(inputs["parallel"])
        self.wishes = {"focus": inputs.get("focus"), "language": inputs.get("language")}
        self.parts, self.done = parts, 0

    async def document(self, name, parts):
        """The summary of a document, from those of its parts."""
        if len(parts) == 1:
            places = [f"the document {name}"]
        else:
            places = [f"part {number} of {len(parts)} of the document {name}" for number in range(1, len(parts) + 1)]
        summaries = await asyncio.gather(*map(self.part, places, parts))
        return await self.together(summaries, f"parts of the document {name}")

    async def part(self, place, text):
        summary = await self.ask(kind="text", place=place, text=text)
        self.done += 1
        self.ctx.progress(self.done / self.parts, f"summarized {place}")
        return summary

    async def together(self, summaries, of):
        """One summary of several, in groups of what the model reads at once, as often as it takes."""
        while len(summaries) > 1:
            groups = groups_of(summaries, PART_CHARACTERS_MAX)
            summaries = await asyncio.gather(*(self.merged(group, of) for group in groups))
        return summaries[0]

    async def merged(self, group, of):
        return await self.ask(kind="summaries", place=of, summaries=group) if len(group) > 1 else group[0]

    async def ask(self, **inputs):
        """One answer of the model to src/ai/task.md."""
        given = {"text": None, "summaries": [], **self.wishes, **inputs}
        async with self.turns:
            return (await self.agent.arun(inputs=given, output_schema=SUMMARY)).output
