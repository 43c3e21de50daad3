"""Fills in a JSON Schema from a document: takes out its text, has a model find the values, and checks what it found.

Text comes out in utils/documents.py; what the model is asked for, and what is made of its answer, is in utils/wanted.py.
"""

import json

from aod import CapsuleError

from src.utils.documents import Unreadable, read
from src.utils.wanted import SchemaUnfit, Wanted

# What models of today read at once, with room for the answer: some 100,000 tokens.
DOCUMENT_CHARACTERS_MAX = 400_000
# How often the model is told what does not fit, beyond what the agent tells it itself.
ROUNDS_MAX = 3


def execute(inputs, ctx):
    """Finds in `document` what the schema asks for; tells what is not there."""
    wanted = wanted_of(inputs, ctx)
    text = text_of(inputs["document"], ctx)
    found = find(wanted, text, inputs, ctx)
    data_file = ctx.output_file("data.json")
    data_file.write_text(json.dumps(found.data, ensure_ascii=False, indent=2) + "\n", "utf-8")
    ctx.log.info("found" if found.is_complete else "not all found", missing=found.missing)
    return {"data": found.data, "data_file": data_file, "missing": found.missing, "is_complete": found.is_complete}


def find(wanted, text, inputs, ctx):
    """What the model finds: it fits the schema but for what is missing."""
    agent, problems = ctx.agent(), []
    for _ in range(ROUNDS_MAX):
        given = {"text": text, "instructions": inputs.get("instructions"), "problems": problems}
        found = wanted.found(agent.run(inputs=given, output_schema=wanted.answer_schema).output["data"])
        problems = found.problems
        if not problems:
            return found
        ctx.log.warning("what was found does not fit", problems=problems)
    message = f"after {ROUNDS_MAX} rounds what was found does not fit the schema: {'; '.join(problems)}"
    raise CapsuleError("data_unfit", message, detail={"problems": problems[:20]}, retryable=True)


def wanted_of(inputs, ctx):
    schema = inputs.get("schema")
    try:
        if schema is None:
            schema = json.loads(ctx.input_file(inputs["schema_file"]).read_bytes())
        return Wanted(schema)
    except SchemaUnfit as unfit:
        raise CapsuleError("schema_unfit", str(unfit)) from unfit
    except ValueError as error:
        raise CapsuleError("schema_unfit", f"'{inputs['schema_file']}' is no JSON: {error}") from error


def text_of(name, ctx):
    """The text of a document that is not too long to be read at once."""
    try:
        # Columns stay where they are: a model reads tables better like that.
        text = read(ctx.input_file(name), name, keep_layout=True).text
    except Unreadable as unreadable:
        raise CapsuleError(unreadable.code, str(unreadable)) from unreadable
    if len(text) > DOCUMENT_CHARACTERS_MAX:
        message = (
            f"'{name}' has {len(text):,} characters; expected at most {DOCUMENT_CHARACTERS_MAX:,}: "
            "call once for each part of it"
        )
        raise CapsuleError("document_too_long", message)
    return text
