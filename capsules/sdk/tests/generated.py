"""Generates cases of the contract from a seed: schemas and payloads that cover all keywords."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

NAMES = ("a", "b", "c", "d/e", "f~g")
FILES = ("graph.png", "sub/data.csv", "notes", "ü.txt")
DIRECTORIES = ("sub", "pages")
FORMATS = ("file_path", "file-path", "directory_path", "directory-path", "path", "date", "uri")
DRAFTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-04/schema#",
    "https://json-schema.org/schema",
    "https://example.com/unknown",
)
TEXTS = (
    *FILES,
    *DIRECTORIES,
    "gone.txt",
    "./notes",
    "/io/input/notes",
    "/io/output/notes",
    "/io/handoff/outgoing/sub/data.csv",
    "../notes",
    "sub/",
    "a\nb",
    "",
    "2020-01-01",
    "word",
)
REFERENCES = ("#", "#/$defs/a", "#/$defs/b", "#/%24defs/a", "#/properties/a", "#named", "#/nowhere", "other.json")
TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")


def cases(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """The same ``count`` cases for the same seed."""
    draw = random.Random(seed)
    for _ in range(count):
        yield _Maker(draw).case()


class _Maker:
    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        # Most schemas should be valid; a few contain mistakes.
        self.is_wrong = draw.random() < 0.1

    def case(self) -> dict[str, Any]:
        draw = self.draw
        instance = self.value(3) if draw.random() < 0.05 else self.members(4)
        root = self.fitting(instance) if draw.random() < 0.6 else self.schema(3)
        document = {**root, "$defs": {name: self.schema(2) for name in "ab"}}
        if draw.random() < 0.3:
            document["$defs"]["n"] = {"$anchor": "named", **self.schema(1)}
        if draw.random() < 0.25:
            document["$schema"] = draw.choice(DRAFTS[: 7 if self.is_wrong else 6])
        side = draw.choice(("input", "handoff", "output"))
        schema = {"input": {}, "output": {}, "output" if side == "output" else "input": document}
        rename = {name: f"{name}-2" for name in FILES if draw.random() < 0.2}
        return {
            "schema": schema,
            "side": side,
            "instance": instance,
            "files": FILES,
            "directories": DIRECTORIES,
            "rename": rename,
        }

    def members(self, depth: int) -> dict[str, Any]:
        names = self.draw.sample(NAMES, self.draw.randint(0, len(NAMES)))
        return {name: self.value(depth - 1) for name in names}

    def value(self, depth: int) -> Any:
        draw = self.draw
        kind = draw.random()
        if depth > 0 and kind < 0.25:
            return self.members(depth)
        if depth > 0 and kind < 0.45:
            return [self.value(depth - 1) for _ in range(draw.randint(0, 3))]
        if kind < 0.85:
            return draw.choice(TEXTS)
        if kind > 0.997:
            return draw.choice((2**64, -(2**63) - 1, 10**30))
        return draw.choice((None, True, False, 0, 1, -3, 2.0, 0.5, 1e30, 2**60, 2**64 - 1, -(2**63), 0.1))

    def fitting(self, value: Any) -> dict[str, Any]:
        """A schema that is valid for most of ``value``, and refers to its texts."""
        draw = self.draw
        if draw.random() < 0.1:
            return self.schema(1)
        if isinstance(value, dict):
            schema: dict[str, Any] = {"properties": {name: self.fitting(member) for name, member in value.items()}}
            absent = [name for name in NAMES if name not in value]
            for name in absent[: draw.randint(0, 2)]:
                schema["properties"][name] = {"default": self.value(2)}
        elif isinstance(value, list):
            schema = {"prefixItems": [self.fitting(item) for item in value]}
        elif isinstance(value, str):
            schema = {"type": "string"} if draw.random() < 0.6 else {"format": draw.choice(FORMATS)}
        else:
            schema = self.schema(1) if draw.random() < 0.3 else {}
        wrapped = {"allOf": [schema]}, {"anyOf": [{"type": "null"}, schema]}, {"oneOf": [schema, False]}
        return draw.choice((schema, schema, schema, *wrapped))

    def schema(self, depth: int) -> dict[str, Any]:
        """A schema of a few keywords that are often valid."""
        schema: dict[str, Any] = {}
        for _ in range(self.draw.choice((1, 1, 2, 3))):
            makers = (self.leaf,) if depth == 0 else (self.leaf, self.map, self.map, self.list, self.single)
            keyword, value = self.draw.choice(makers)(depth)
            schema[keyword] = value
        return schema

    def any(self, depth: int) -> Any:
        return self.schema(depth) if self.draw.random() < 0.9 else self.draw.random() < 0.7

    def leaf(self, _depth: int) -> tuple[str, Any]:
        draw = self.draw
        leaves = {
            "format": draw.choice(FORMATS),
            "default": self.value(2),
            "$ref": draw.choice(REFERENCES if self.is_wrong else REFERENCES[:4]),
            "type": draw.choice((draw.choice(TYPES), draw.sample(TYPES, 4), "string", "object")),
            "enum": [self.value(1) for _ in range(3)],
            "const": draw.choice(TEXTS),
            "required": draw.sample(NAMES, 1),
            "minimum": draw.choice((0, 0.5, -5)),
            "multipleOf": draw.choice((1, 0.5, 3)),
            "maxLength": draw.choice((3, 10, 20)),
            "minItems": draw.choice((1, 2)),
            "maxProperties": draw.choice((2, 4)),
            "uniqueItems": True,
            "pattern": draw.choice(("^[a-z]", "t$", ".", "(x)\\1" if self.is_wrong else "o+")),
        }
        if self.is_wrong:
            leaves |= {"$id": "https://example.com/", "$dynamicRef": "#x", "minLength": -1, "properties": 5}
        keyword = draw.choice(("format", "format", "format", "default", "default", *leaves))
        return keyword, leaves[keyword]

    def map(self, depth: int) -> tuple[str, Any]:
        draw = self.draw
        keyword = draw.choice(("properties", "properties", "properties", "patternProperties", "dependentSchemas"))
        names = ("^a", "[bc]", ".") if keyword == "patternProperties" else NAMES
        return keyword, {name: self.any(depth - 1) for name in draw.sample(names, draw.randint(1, 3))}

    def list(self, depth: int) -> tuple[str, Any]:
        # A list of `items` is no longer a schema in the newest draft.
        keywords = ("allOf", "anyOf", "oneOf", "prefixItems", *(("items",) if self.is_wrong else ()))
        keyword = self.draw.choice(keywords)
        return keyword, [self.any(depth - 1) for _ in range(self.draw.randint(1, 3))]

    def single(self, depth: int) -> tuple[str, Any]:
        keywords = (
            *("items", "items", "additionalProperties", "additionalProperties", "contains", "if", "then", "else"),
            *("not", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "additionalItems"),
        )
        return self.draw.choice(keywords), self.any(depth - 1)
