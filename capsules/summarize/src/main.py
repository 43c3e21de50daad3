"""Summarizes documents: extracts their text, lets a model summarize it part by part, and combines the parts.

utils/documents.py extracts the text, utils/parts.py splits it, and utils/markdown.py writes the result; the model only
summarizes.
"""

import asyncio

from aod import CapsuleError

from src.utils.documents import Unreadable, read
from src.utils.markdown import markdown_of
from src.utils.parts import groups_of, parts_of

# Text in one model request: about 10,000 tokens, of which a model remembers the middle as well as the ends.
PART_CHARACTERS_MAX = 40_000
# Of all documents together; bounds time and cost: a hundred parts.
CHARACTERS_MAX = 4_000_000
# The model's answer, for a part as well as the whole.
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
    """The named documents, read before the first paid request."""
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
    """Lets the model write summaries, `parallel` concurrently; reports its progress in parts."""

    def __init__(self, ctx, inputs, parts):
        self.ctx = ctx
        self.agent = ctx.agent()
        self.turns = asyncio.Semaphore(inputs["parallel"])
        self.wishes = {"focus": inputs.get("focus"), "language": inputs.get("language")}
        self.parts, self.done = parts, 0

    async def document(self, name, parts):
        """The summary of a document, from the summaries of its parts."""
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
        """One summary of several, in groups that fit into one request, repeated until one is left."""
        while len(summaries) > 1:
            groups = groups_of(summaries, PART_CHARACTERS_MAX)
            summaries = await asyncio.gather(*(self.merged(group, of) for group in groups))
        return summaries[0]

    async def merged(self, group, of):
        return await self.ask(kind="summaries", place=of, summaries=group) if len(group) > 1 else group[0]

    async def ask(self, **inputs):
        """The model's answer to src/ai/task.md."""
        given = {"text": None, "summaries": [], **self.wishes, **inputs}
        async with self.turns:
            return (await self.agent.arun(inputs=given, output_schema=SUMMARY)).output
