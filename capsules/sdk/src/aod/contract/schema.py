"""Reads and compiles schema.json, and rejects schemas that cannot be checked safely."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from . import limits, numbers
from .numbers import parse_float, parse_int
from .problem import PROBLEMS_MAX, Problem, Unfit, joined, pointer_of, problem, quoted
from .references import FILE_FORMATS

if TYPE_CHECKING:
    import jsonschema_rs

#: Largest schema.json, in bytes.
SCHEMA_SIZE_BYTES_MAX = 256 * 1024
#: Maximum patterns of one side.
PATTERNS_MAX = 200
#: Largest compiled pattern, in bytes.
PATTERN_SIZE_BYTES_MAX = 1024 * 1024

# Keywords whose value is a schema, a list of schemas, a map of schemas.
_SINGLE_KEYWORDS = frozenset(
    [
        "additionalItems",
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
_LIST_KEYWORDS = frozenset(["allOf", "anyOf", "items", "oneOf", "prefixItems"])
_MAP_KEYWORDS = frozenset(
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"]
)


class Draft(NamedTuple):
    """A draft of JSON Schema."""

    uri: str
    #: The name of its validator in jsonschema_rs.
    validator: str
    id_keyword: str = "$id"
    #: In drafts 4 to 7 a ``$ref`` hides all keywords beside it.
    reference_hides_siblings: bool = False


_LATEST = Draft("https://json-schema.org/draft/2020-12/schema", "Draft202012Validator")
_DRAFTS = (
    _LATEST,
    Draft("https://json-schema.org/draft/2019-09/schema", "Draft201909Validator"),
    Draft("http://json-schema.org/draft-07/schema", "Draft7Validator", reference_hides_siblings=True),
    Draft("http://json-schema.org/draft-06/schema", "Draft6Validator", reference_hides_siblings=True),
    Draft("http://json-schema.org/draft-04/schema", "Draft4Validator", "id", reference_hides_siblings=True),
)


class Schema:
    """One side of a contract; ``document`` is its JSON."""

    def __init__(self, document: Any, draft: Draft, anchors: dict[str, str]) -> None:
        self.document = document
        self.reference_hides_siblings = draft.reference_hides_siblings
        self.validator = _validator(document, draft)
        self._anchors = anchors

    def resolve(self, reference: str) -> Any | None:
        """The schema of ``reference``, a ``$ref``; None if it is not in this document."""
        return _resolve(self.document, self._anchors, reference)

    def misfits(self, payload: Any) -> list[Problem]:
        """The problems of ``payload``, place by place."""
        errors = islice(self.validator.iter_errors(in_order(payload)), PROBLEMS_MAX)
        return [problem(pointer_of(error.instance_path), "does_not_fit", _message(error)) for error in errors]


def parse(schema_json: bytes) -> tuple[Schema, Schema]:
    """The input side and the output side. Raises Unfit with all problems."""
    file = _read(schema_json)
    draft = _draft_of(file, _LATEST)
    problems: list[Problem] = []
    sides = [_side(file, name, draft, problems) for name in ("input", "output")]
    if sides[0] is None or sides[1] is None:
        raise Unfit(problems)
    return sides[0], sides[1]


def _read(schema_json: bytes) -> dict[str, Any]:
    if len(schema_json) > SCHEMA_SIZE_BYTES_MAX:
        message = f"{len(schema_json)} bytes; expected at most {SCHEMA_SIZE_BYTES_MAX}"
        raise Unfit([problem("", "too_large", message)])
    try:
        file = read_json(schema_json)
    except ValueError as error:
        message = f"not JSON: {error}; expected JSON in UTF-8"
        raise Unfit([problem("", "schema_malformed", message)]) from None
    if inexact := numbers.problems(file):
        raise Unfit(inexact)
    if deep := limits.too_deep(file):
        raise Unfit([deep])
    if not isinstance(file, dict):
        message = f'{quoted(file)} found; expected an object with "input" and "output"'
        raise Unfit([problem("", "schema_malformed", message)])
    ordered: dict[str, Any] = in_order(file)
    return ordered


def in_order(value: Any) -> Any:
    """``value`` with sorted keys, for the orchestrator's order of problems."""
    if isinstance(value, dict):
        return {key: in_order(member) for key, member in sorted(value.items())}
    return [in_order(item) for item in value] if isinstance(value, list) else value


def read_json(text: bytes) -> Any:
    """Reads JSON in UTF-8, strictly. Numbers that would change are Inexact. Raises ValueError."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no JSON")

    try:
        return json.loads(text.decode(), parse_constant=refuse, parse_float=parse_float, parse_int=parse_int)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _draft_of(document: Any, default: Draft | None) -> Draft | None:
    """The draft of ``$schema``, or ``default``; None if it is unknown."""
    uri = document.get("$schema") if isinstance(document, dict) else None
    if not isinstance(uri, str):
        return default
    place = re.sub("^https?:", "", uri.rstrip("#"))
    # A URI without a version is the current draft.
    if place == "//json-schema.org/schema":
        return _LATEST
    return next((draft for draft in _DRAFTS if draft.uri.endswith(":" + place)), None)


def _side(file: dict[str, Any], name: str, draft_of_file: Draft | None, problems: list[Problem]) -> Schema | None:
    root = f"/{name}"
    if name not in file:
        problems.append(problem("", "schema_malformed", f"no {quoted(name)} found; expected a JSON schema there"))
        return None
    document = file[name]
    if not isinstance(document, (dict, bool)):
        problems.append(problem(root, "schema_invalid", f"{quoted(document)} found; expected a JSON schema"))
        return None
    draft = _draft_of(document, draft_of_file)
    if draft is None:
        message = 'unknown "$schema"; expected a draft of json-schema.org from 4 to 2020-12'
        problems.append(problem(root, "schema_reference", message))
        return None
    scan = _Scan(document, draft, root)
    found = [*scan.problems(), *_schema_errors(document, draft, root)]
    if not found:
        try:
            return Schema(document, draft, scan.anchors)
        except ValueError as error:
            found = [_schema_error(error, root)]
    problems.extend(found)
    return None


def _validator(document: Any, draft: Draft) -> jsonschema_rs.Validator:
    """Never fetches a schema, and no pattern backtracks.

    The file formats are registered because drafts 4 to 7 report only formats that are known.
    """
    import jsonschema_rs

    make: Callable[..., jsonschema_rs.Validator] = getattr(jsonschema_rs, draft.validator)
    return make(
        document,
        formats={name: lambda _: True for name in FILE_FORMATS},
        pattern_options=jsonschema_rs.RegexOptions(size_limit=PATTERN_SIZE_BYTES_MAX),
        offline=True,
    )


def _schema_errors(document: Any, draft: Draft, root: str) -> list[Problem]:
    """Where ``document`` violates its draft; each place and reason once."""
    import jsonschema_rs

    make: Callable[..., jsonschema_rs.Validator] = getattr(jsonschema_rs, draft.validator)
    errors = make({"$ref": draft.uri + "#"}, offline=True).iter_errors(document)
    distinct = dict.fromkeys(_schema_error(error, root) for error in errors)
    return list(distinct)[:PROBLEMS_MAX]


def _schema_error(error: ValueError, root: str) -> Problem:
    import jsonschema_rs

    if not isinstance(error, jsonschema_rs.ValidationError):
        return problem(root, "schema_invalid", str(error))
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Referencing):
        return problem(root, "schema_reference", error.message)
    return problem(root + pointer_of(error.instance_path), "schema_invalid", _message(error))


def _message(error: jsonschema_rs.ValidationError) -> str:
    import jsonschema_rs

    kind = error.kind
    kinds = jsonschema_rs.ValidationErrorKind
    value = quoted(error.instance)
    if isinstance(kind, kinds.Required):
        return f"the required property {quoted(kind.property)} is missing"
    if isinstance(kind, kinds.Constant):
        return f"{value} found; expected {quoted(kind.expected_value)}"
    if isinstance(kind, kinds.FalseSchema):
        return f"{value} found; the schema allows no value here"
    if isinstance(kind, (kinds.AnyOf, kinds.OneOfNotValid)):
        reasons = "; or ".join(errors[0].message for errors in kind.context if errors)
        return f"{value} matches none of {len(kind.context)} alternatives: {reasons}"
    # The engine's message quotes the whole value, which may be long.
    return error.message.replace(json.dumps(error.instance, ensure_ascii=False), value, 1)


class _Scan:
    """Visits every schema of a document once, including those that only a ``$ref`` reaches."""

    def __init__(self, document: Any, draft: Draft, root: str) -> None:
        self.document = document
        self.draft = draft
        self.root = root
        self.anchors: dict[str, str] = {}
        self._open: list[tuple[Any, str]] = [(document, "")]
        self._references: list[tuple[str, str]] = []
        self._patterns = 0

    def problems(self) -> Iterator[Problem]:
        seen: set[int] = set()
        while self._open:
            while self._open:
                schema, pointer = self._open.pop()
                if isinstance(schema, dict) and id(schema) not in seen:
                    seen.add(id(schema))
                    yield from self._visit(schema, pointer)
            # All anchors are known only now; a target may be a place without a keyword.
            references, self._references = self._references, []
            for pointer, reference in references:
                target = _resolve(self.document, self.anchors, reference)
                if target is None:
                    message = (
                        f'{quoted(reference)} has no target; expected "#", "#/…" or "#anchor" within this schema, '
                        f"of which {self.root} is the root"
                    )
                    yield problem(self.root + pointer, "schema_reference", message)
                else:
                    self._open.append((target, pointer))
        if self._patterns > PATTERNS_MAX:
            message = f"{self._patterns} patterns; expected at most {PATTERNS_MAX}"
            yield problem(self.root, "too_complex", message)

    def _visit(self, keywords: dict[str, Any], pointer: str) -> Iterator[Problem]:
        yield from self._unsupported(keywords, pointer)
        if isinstance(reference := keywords.get("$ref"), str):
            self._references.append((joined(pointer, "$ref"), reference))
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := keywords.get(keyword), str):
                self.anchors[anchor] = pointer
        patterns = keywords.get("patternProperties")
        self._patterns += ("pattern" in keywords) + (len(patterns) if isinstance(patterns, dict) else 0)
        for keyword, child in keywords.items():
            below = joined(pointer, keyword)
            if isinstance(child, list) and keyword in _LIST_KEYWORDS:
                self._open.extend((item, joined(below, index)) for index, item in enumerate(child))
            elif isinstance(child, dict) and keyword in _MAP_KEYWORDS:
                self._open.extend((member, joined(below, key)) for key, member in child.items())
            elif keyword in _SINGLE_KEYWORDS:
                self._open.append((child, below))

    def _unsupported(self, keywords: dict[str, Any], pointer: str) -> Iterator[Problem]:
        """Keywords that ``_resolve`` does not support, and that would evade the bounds of a walk."""
        nested = [self.draft.id_keyword, "$schema"] if pointer else []
        for keyword in [*nested, "$dynamicRef", "$recursiveRef"]:
            if keyword in keywords:
                expected = "expected only at the root of a schema" if keyword in nested else 'expected "$ref"'
                message = f"{quoted(keyword)} is not supported here; {expected}"
                yield problem(self.root + joined(pointer, keyword), "schema_reference", message)


def _resolve(document: Any, anchors: dict[str, str], reference: str) -> Any | None:
    if not reference.startswith("#"):
        return None
    fragment = _percent_decoded(reference[1:])
    if fragment is None:
        return None
    if fragment and not fragment.startswith("/"):
        fragment = anchors.get(fragment)
    return None if fragment is None else _at(document, fragment)


def _at(document: Any, pointer: str) -> Any | None:
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict):
            document = document.get(key)
        elif isinstance(document, list) and re.fullmatch("0|[1-9][0-9]*", key) and int(key) < len(document):
            document = document[int(key)]
        else:
            return None
    return document


def _percent_decoded(text: str) -> str | None:
    first, *pieces = text.split("%")
    encoded = first.encode()
    for piece in pieces:
        if not re.match("[0-9A-Fa-f]{2}", piece):
            return None
        encoded += bytes.fromhex(piece[:2]) + piece[2:].encode()
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        return None
