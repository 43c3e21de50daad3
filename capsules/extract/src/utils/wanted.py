"""The values that a caller's JSON Schema requires, and the check of a model's findings."""

import copy
import json
from dataclasses import dataclass

import jsonschema_rs
from aod import Contract, Unfit

from src.utils.relaxed import SchemaUnfit, answer_schema

# Maximum problems in a message.
PROBLEMS_MAX = 20
# Errors of an object that a missing member may cause.
FOR_WANT = ("Required", "MinProperties", "AnyOf", "OneOfNotValid")


@dataclass(frozen=True)
class Found:
    """Data, JSON pointers of values missing in the document, problems, and whether all required values are present."""

    data: object
    missing: list[str]
    problems: list[str]
    is_complete: bool


class Wanted:
    """A caller's schema; raises SchemaUnfit."""

    def __init__(self, schema):
        if not isinstance(schema, dict):
            raise SchemaUnfit('the schema is not a JSON object; expected such as {"type": "object", "properties": …}')
        try:
            # The SDK must accept the schema as safe, because the agent validates with it.
            Contract(json.dumps({"input": {}, "output": schema}).encode())
        except Unfit as unfit:
            raise SchemaUnfit(f"the schema is invalid: {unfit}".replace("/output", "")) from unfit
        self.validator = jsonschema_rs.validator_for(schema, validate_formats=True)
        self.answer_schema = answer_schema(schema)

    def found(self, data):
        """The Found of `data`, which is valid by `answer_schema`: without nulls that the schema does not allow."""
        data = copy.deepcopy(data)
        missing = list(nulls(data, ()))
        for holder in holders(data):
            names = [name for name, value in holder.items() if value is None]
            # First each member separately, then all: with alternative schemas, only removing all may help.
            for group in [*([name] for name in names), names]:
                self.leave_out(data, holder, group)
        errors = list(self.validator.iter_errors(data))
        problems = [told(error) for error in errors if not is_excused(error, missing)]
        return Found(data, [pointer(path) for path in missing], problems[:PROBLEMS_MAX], not errors)

    def leave_out(self, data, holder, names):
        """Removes null members of an object in `data`, if that leaves fewer problems."""
        before, members = self.count(data), dict(holder)
        for name in names:
            holder.pop(name, None)
        if self.count(data) >= before:
            holder.clear()
            holder.update(members)

    def count(self, data):
        return sum(1 for _ in self.validator.iter_errors(data))


def nulls(value, path):
    """The paths of all nulls in a JSON value."""
    if value is None:
        yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from nulls(member, (*path, key))


def holders(value):
    """All objects in a JSON value that contain a null, innermost first."""
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for member in members:
        yield from holders(member)
    if isinstance(value, dict) and None in value.values():
        yield value


def is_excused(error, missing):
    """Whether a missing value causes an error: at its place, or below for errors of a whole."""
    path = tuple(error.instance_path)
    return path in missing or (
        type(error.kind).__name__ in FOR_WANT and any(path == each[: len(path)] for each in missing)
    )


def told(error):
    return f"{pointer(error.instance_path) or 'top level'}: {error.message}"


def pointer(path):
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
