"""Answers a question from documents: an agent searches and reads them, and writes a report that cites passages.

utils/passages.py splits documents into passages, which the agent reads through the MCP server in mcp_servers/. The
agent submits its report with `write_report`, whose citations utils/citations.py checks: the model decides what to read
and to write, software verifies the citations.
"""

import os

from aod import CapsuleError

from src.utils.desk import Desk
from src.utils.documents import Unreadable, read
from src.utils.passages import Library

# Of all documents together. Measured: the index takes ten bytes for each character, and a second for two million of
# them.
CHARACTERS_MAX = 20_000_000
REPORT = "report.md"
# The model's answer after the report; software adds the rest of the output.
ANSWER = {
    "type": "object",
    "required": ["report", "title", "answer", "open_questions"],
    "additionalProperties": False,
    "properties": {
        # Only this file, which exists only if its citations are valid.
        "report": {"const": REPORT, "format": "file_path", "description": "The return value of write_report."},
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
            "description": "Questions that the documents do not answer; empty if there are none.",
        },
    },
}


def execute(inputs, ctx):
    """Lets an agent answer `question` from `documents`; returns its report with the cited passages."""
    library = Library.of(documents_of(inputs["documents"], ctx))
    saved = ctx.workspace / "library.json"
    library.save(saved)
    # tools.yaml passes it on to the server.
    os.environ["LIBRARY"] = str(saved)
    desk = Desk(library, ctx.output_file(REPORT))
    given = {**inputs, "language": inputs.get("language"), "sources": list(library.sources.values())}
    answer = ctx.agent(tools=[desk.write_report]).run(inputs=given, output_schema=ANSWER).output
    return {**answer, "citations": desk.citations}


def documents_of(names, ctx):
    """The named documents, read before the first paid request."""
    try:
        documents = [read(ctx.input_file(name), name) for name in names]
    except Unreadable as unreadable:
        raise CapsuleError(unreadable.code, str(unreadable)) from unreadable
    characters = sum(len(document.text) for document in documents)
    if characters > CHARACTERS_MAX:
        message = f"the documents have {characters:,} characters; expected at most {CHARACTERS_MAX:,}"
        raise CapsuleError("documents_too_long", message)
    return documents
