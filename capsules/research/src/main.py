"""Answers a question from documents: an agent searches and reads them, and writes a report that cites passages.

Documents become passages in utils/passages.py, which the agent reaches through the MCP server in mcp_servers/. The one way to
hand in a report is `write_report`, whose citations utils/citations.py checks: the model decides what to read and what
to write, software whether it is founded.
"""

import os

from aod import CapsuleError

from src.utils.desk import Desk
from src.utils.documents import Unreadable, read
from src.utils.passages import Library

# Of all documents together. Measured: the index takes ten bytes a character, and a second for two million of them.
CHARACTERS_MAX = 20_000_000
REPORT = "report.md"
# What the model answers once the report is written; the rest of the answer is told by software.
ANSWER = {
    "type": "object",
    "required": ["report", "title", "answer", "open_questions"],
    "additionalProperties": False,
    "properties": {
        # No other file: this one is there only if its citations hold.
        "report": {"const": REPORT, "format": "file_path", "description": "What write_report answered."},
        "title": {"type": "string", "minLength": 1, "maxLength": 200},
        "answer": {
            "type": "string",
            "minLength": 1,
            "maxLength": 4_000,
            "description": "The answer to the question in a few sentences, without citations.",
        },
        "open_questions": {
            "type": "array",
            "maxItems": 20,
            "items": {"type": "string", "minLength": 1, "maxLength": 600},
            "description": "What the documents do not answer; empty if they answer all.",
        },
    },
}


def execute(inputs, ctx):
    """Has an agent answer `question` from `documents`; returns its report, and what that cites."""
    library = Library.of(documents_of(inputs["documents"], ctx))
    saved = ctx.workspace / "library.json"
    library.save(saved)
    # tools.yaml hands it on to the server.
    os.environ["LIBRARY"] = str(saved)
    desk = Desk(library, ctx.output_file(REPORT))
    given = {**inputs, "language": inputs.get("language"), "sources": list(library.sources.values())}
    answer = ctx.agent(tools=[desk.write_report]).run(inputs=given, output_schema=ANSWER).output
    return {**answer, "citations": desk.citations}


def documents_of(names, ctx):
    """The documents of these names, read before anything is paid for."""
    try:
        documents = [read(ctx.input_file(name), name) for name in names]
    except Unreadable as unreadable:
        raise CapsuleError(unreadable.code, str(unreadable)) from unreadable
    characters = sum(len(document.text) for document in documents)
    if characters > CHARACTERS_MAX:
        message = f"the documents have {characters:,} characters; expected at most {CHARACTERS_MAX:,}"
        raise CapsuleError("documents_too_long", message)
    return documents
