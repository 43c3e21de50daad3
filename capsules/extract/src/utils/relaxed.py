"""A caller's JSON Schema for a model: without references, with all properties required and nullable."""

import copy

# Keywords whose values are schemas, lists of schemas, and schemas by name. Source: JSON Schema Core 2020-12, section 10.
SINGLE = ("additionalProperties", "contains", "else", "items", "then", "unevaluatedItems", "unevaluatedProperties")
# Also schemas, but conditions: what they say must stay as it is.
CONDITIONS = ("if", "not", "propertyNames")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
NAMED = ("dependentSchemas", "patternProperties", "properties")
# Keywords that are useless without references.
DROPPED = ("$schema", "$id", "$anchor", "$defs", "definitions")
# Keywords beside a reference that do not restrict values.
REMARKS = {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"}
# Types that may be in a list of types: for other types, agent libraries ignore the content.
PLAIN_TYPES = {"string", "number", "integer", "boolean", "null"}
# Keywords beside the type that null would not pass.
BEYOND_TYPE = {"enum", "allOf", "anyOf", "oneOf", "not", "if"}
# In an answer these are names of its files; here they are texts in a document.
FILE_FORMATS = ("file_path", "file-path", "directory_path", "directory-path", "path")


class SchemaUnfit(Exception):
    """The caller's schema is not supported."""


def answer_schema(schema):
    """The schema of the answer `{"data": …}` with the values of `schema`, each of which may be missing.

    Raises SchemaUnfit for recursive references, which cannot be inlined.
    """
    return {
        "type": "object",
        "required": ["data"],
        "additionalProperties": False,
        "properties": {"data": relaxed(inlined(schema, schema, ()))},
    }


def inlined(schema, root, inside):
    """`schema` with inlined references; `inside` are the references that led to it."""
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in ("$ref", *DROPPED)}
    rest = with_parts(kept, (*SINGLE, *CONDITIONS), lambda part: inlined(part, root, inside))
    if "$ref" not in schema:
        return rest
    reference = schema["$ref"]
    if reference in inside:
        raise SchemaUnfit(f"'{reference}' refers to itself; expected a schema without recursion")
    found = inlined(target(root, reference), root, (*inside, reference))
    if rest.keys() <= REMARKS and isinstance(found, dict):
        return {**found, **rest}
    return {"allOf": [found, rest]}


def target(root, reference):
    """The schema of a reference such as #/$defs/article."""
    if reference != "#" and not reference.startswith("#/"):
        raise SchemaUnfit(f"unsupported reference '{reference}'; expected one such as #/$defs/article")
    found = root
    for step in reference.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        found = found[int(step)] if isinstance(found, list) else found[step]
    return found


def relaxed(schema):
    """A copy of `schema` in which the properties of each object are required and nullable."""
    if not isinstance(schema, dict):
        return schema
    made = with_parts(schema, SINGLE, relaxed)
    if made.get("format") in FILE_FORMATS:
        del made["format"]
    if "oneOf" in made and "anyOf" not in made:
        # With nulls, several alternatives may be valid instead of exactly one.
        made["anyOf"] = made.pop("oneOf")
    if "properties" in made:
        made["properties"] = {name: nullable(each) for name, each in made["properties"].items()}
        made["required"] = list(dict.fromkeys([*made.get("required", []), *made["properties"]]))
    return made


def with_parts(schema, single, change):
    """`schema` with `change` made to the schemas in it, as far as they are in `single`, LISTS or NAMED."""
    made = {}
    for key, value in schema.items():
        if key in single:
            made[key] = change(value)
        elif key in LISTS:
            made[key] = [change(each) for each in value]
        elif key in NAMED:
            made[key] = {name: change(each) for name, each in value.items()}
        else:
            made[key] = copy.deepcopy(value)
    return made


def nullable(schema):
    """`schema` or null; a constant needs no search and stays."""
    if not isinstance(schema, dict) or "const" in schema or not (BEYOND_TYPE | {"type"}) & schema.keys():
        return schema
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if BEYOND_TYPE & schema.keys() or not set(kinds) <= PLAIN_TYPES:
        return {"anyOf": [schema, {"type": "null"}]}
    return {**schema, "type": list(dict.fromkeys([*kinds, "null"]))}
