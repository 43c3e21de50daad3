"""Walks through schema and payload before the validation: fills in defaults, and bounds its cost.

The engine has no limits: a few dozen ``anyOf``s that refer to each other would take years, and a long chain of
``$ref``s overflows its stack. So each application of a schema to a value is counted first, as in the gateway.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .limits import STRUCTURE_SIZE_BYTES_MAX, serialized_size_bytes
from .problem import Unfit, problem
from .references import copied

if TYPE_CHECKING:
    from .schema import Schema

#: Maximum applications of a schema to a value in one check.
STEPS_MAX = 300_000
#: Maximum nesting of schemas in one check, values and references together.
VALIDATION_DEPTH_MAX = 200
#: Number of ``enum`` values that count as one step.
ENUM_VALUES_PER_STEP = 16


def walk(schema: Schema, payload: Any, fill_defaults: bool) -> None:
    """Fills ``payload`` in place. Raises Unfit if its validation would be too expensive."""
    _Walk(schema, fill_defaults).value([_Applied(schema.document, True, 0)], payload)


class _Applied(NamedTuple):
    """A schema that applies to the current value."""

    schema: Any
    #: Whether it applies to any value; false within ``anyOf`` and the like.
    certain: bool
    #: The number of schemas around it in the validator.
    depth: int

    def below(self, schema: Any, certain: bool = True) -> _Applied:
        return _Applied(schema, self.certain and certain, self.depth + 1)

    def keyword(self, name: str) -> Any:
        return self.schema.get(name) if isinstance(self.schema, dict) else None

    def schemas(self, name: str) -> dict[str, Any]:
        value = self.keyword(name)
        return value if isinstance(value, dict) else {}

    def list(self, name: str) -> list[Any]:
        value = self.keyword(name)
        return value if isinstance(value, list) else []

    def has(self, name: str) -> bool:
        return isinstance(self.schema, dict) and name in self.schema


class _Walk:
    def __init__(self, schema: Schema, fill_defaults: bool) -> None:
        self.schema = schema
        self.fill_defaults = fill_defaults
        self.steps = 0
        self.filled_bytes = 0

    def value(self, applied: list[_Applied], value: Any) -> None:
        here: list[_Applied] = []
        for schema in applied:
            self.expand(schema, [], here)
        if isinstance(value, dict):
            if self.fill_defaults:
                self.fill(here, value)
            for key, member in value.items():
                self.property_names(here)
                self.value(list(_property_schemas(here, key)), member)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                self.value(list(_item_schemas(here, index)), item)

    def expand(self, applied: _Applied, path: list[Any], here: list[_Applied]) -> None:
        """Adds ``applied`` and all schemas for the same value to ``here``.

        A cycle of references ends at its start, as in the validator.
        """
        self.count(1 + len(applied.list("enum")) // ENUM_VALUES_PER_STEP)
        if applied.depth > VALIDATION_DEPTH_MAX:
            raise _too_complex(f"{VALIDATION_DEPTH_MAX} schemas inside one another")
        if not isinstance(applied.schema, dict) or any(schema is applied.schema for schema in path):
            return
        path.append(applied.schema)
        reference = applied.keyword("$ref")
        refers = isinstance(reference, str)
        if not refers or not self.schema.reference_hides_siblings:
            here.append(applied)
            for beside in _schemas_beside(applied):
                self.expand(beside, path, here)
        target = self.schema.resolve(reference) if refers else None
        if target is not None:
            self.expand(applied.below(target), path, here)
        path.pop()

    def fill(self, here: list[_Applied], members: dict[str, Any]) -> None:
        for applied in here:
            if not applied.certain:
                continue
            for name, schema in applied.schemas("properties").items():
                if name in members:
                    continue
                for default in self.default_of(applied.below(schema)):
                    self.filled_bytes += len(name.encode()) + serialized_size_bytes(default)
                    if self.filled_bytes > STRUCTURE_SIZE_BYTES_MAX:
                        raise _too_complex(f"{STRUCTURE_SIZE_BYTES_MAX} bytes of defaults")
                    members[name] = copied(default)

    def default_of(self, schema: _Applied) -> list[Any]:
        """The ``default`` of a property, if any: its own, else that of its references."""
        has_own = schema.has("default")
        refers = schema.has("$ref") or schema.has("allOf")
        if not refers or (has_own and not self.schema.reference_hides_siblings):
            return [schema.keyword("default")] if has_own else []
        here: list[_Applied] = []
        self.expand(schema, [], here)
        return [applied.keyword("default") for applied in here if applied.certain and applied.has("default")][:1]

    def property_names(self, here: list[_Applied]) -> None:
        """Counts the schemas for property names, which are validated but not walked through."""
        for applied in here:
            if applied.has("propertyNames"):
                self.expand(applied.below(applied.keyword("propertyNames"), False), [], [])

    def count(self, steps: int) -> None:
        self.steps += steps
        if self.steps > STEPS_MAX:
            raise _too_complex(f"{STEPS_MAX} steps")


def _too_complex(bound: str) -> Unfit:
    message = f"checking this value against its schema is too expensive; expected at most {bound}"
    return Unfit([problem("", "too_complex", message)])


def _schemas_beside(applied: _Applied) -> Iterator[_Applied]:
    """The schemas for the same value as ``applied``, except ``$ref``."""
    for keyword, certain in (("allOf", True), ("anyOf", False), ("oneOf", False)):
        for schema in applied.list(keyword):
            yield applied.below(schema, certain)
    for keyword in ("dependentSchemas", "dependencies"):
        for schema in applied.schemas(keyword).values():
            yield applied.below(schema, False)
    for keyword in ("not", "if", "then", "else"):
        if applied.has(keyword):
            yield applied.below(applied.keyword(keyword), False)


def _property_schemas(here: list[_Applied], key: str) -> Iterator[_Applied]:
    for applied in here:
        named = applied.schemas("properties")
        if key in named:
            yield applied.below(named[key])
        # Only the validator knows whether a pattern matches; it is counted as if it does.
        patterns = applied.schemas("patternProperties")
        for schema in patterns.values():
            yield applied.below(schema, False)
        if key not in named and applied.has("additionalProperties"):
            yield applied.below(applied.keyword("additionalProperties"), not patterns)
        if applied.has("unevaluatedProperties"):
            yield applied.below(applied.keyword("unevaluatedProperties"), False)


def _item_schemas(here: list[_Applied], index: int) -> Iterator[_Applied]:
    for applied in here:
        # Before draft 2019-09, the list is `items` itself, and `additionalItems` is for the rest.
        is_old = isinstance(applied.keyword("items"), list)
        listed = applied.list("items" if is_old else "prefixItems")
        rest = "additionalItems" if is_old else "items"
        if index < len(listed):
            yield applied.below(listed[index])
        elif applied.has(rest):
            yield applied.below(applied.keyword(rest))
        for keyword in ("contains", "unevaluatedItems"):
            if applied.has(keyword):
                yield applied.below(applied.keyword(keyword), False)
