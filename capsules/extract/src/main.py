"""Fills in a JSON Schema from a document: extracts its text, lets a model find the values, and checks them.

utils/documents.py extracts the text; utils/wanted.py defines the model's task and checks its answer.
"""

import json

from aod import CapsuleError

from src.utils.documents import Unreadable, read
from src.utils.wanted import SchemaUnfit, Wanted

# What current models read in one request, with space for the answer: about 100,000 tokens.
DOCUMENT_CHARACTERS_MAX = 400_000
# Maximum rounds of corrections by this capsule, in addition to those of the agent.
ROUNDS_MAX = 3


def execute(inputs, ctx):
    """Finds the values of the schema in `document`; reports missing ones."""
    wanted = wanted_of(inputs, ctx)
    text = text_of(inputs["document"], ctx)
    found = find(wanted, text, inputs, ctx)
    data_file = ctx.output_file("data.json")
    data_file.write_text(json.dumps(found.data, ensure_ascii=False, indent=2) + "\n", "utf-8")
    ctx.log.info("found all values" if found.is_complete else "values are missing", missing=found.missing)
    return {"data": found.data, "data_file": data_file, "missing": found.missing, "is_complete": found.is_complete}


def find(wanted, text, inputs, ctx):
    """The values that the model finds: valid by the schema, except for missing ones."""
    agent, problems = ctx.agent(), []
    for _ in range(ROUNDS_MAX):
        given = {"text": text, "instructions": inputs.get("instructions"), "problems": problems}
        found = wanted.found(agent.run(inputs=given, output_schema=wanted.answer_schema).output["data"])
        problems = found.problems
        if not problems:
            return found
        ctx.log.warning("the values do not match the schema", problems=problems)
    message = f"the values do not match the schema after {ROUNDS_MAX} rounds: {'; '.join(problems)}"
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
        raise CapsuleError("schema_unfit", f"'{inputs['schema_file']}' is not JSON: {error}") from error


def text_of(name, ctx):
    """The text of a document, if it is not too long for one request."""
    try:
        # Keeps columns in place, which helps a model to read tables.
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
