"""schema.json: what a capsule takes and gives, and which texts in it name files.

The same rules as the orchestrator's, on the same engine: a payload is held against its schema, defaults are
filled in, file references are found and, once the files have their final names, rewritten.

A reference is *declared* where the schema says ``"format": "file_path"`` (or another name in FILE_FORMATS) and
*inferred* where any other text equals the name of an existing file. Declared ones are strict and may be rewritten;
inferred ones are neither.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import limits, schema
from .problem import Problem, Unfit, problem, quoted
from .references import FILE_FORMATS, Exists, FileKind, Reference, find, rewrite
from .walk import walk

__all__ = [
    "FILE_FORMATS",
    "Checked",
    "Contract",
    "Exists",
    "FileKind",
    "Problem",
    "Reference",
    "Unfit",
    "rewrite",
]


class Checked(NamedTuple):
    """A payload that fits its schema, defaults filled in, nothing rewritten yet.

    ``references`` are sorted by their pointers; one for each place.
    """

    payload: dict[str, Any]
    references: list[Reference]


class Contract:
    """The compiled schema.json of a capsule."""

    def __init__(self, schema_json: bytes) -> None:
        """Compiles ``{"input": schema, "output": schema}``, at most 256 KiB of JSON.

        Raises Unfit with all that is wrong; pointers lead into the file.
        """
        self._input, self._output = schema.parse(schema_json)

    @property
    def input_schema(self) -> Any:
        return self._input.document

    @property
    def output_schema(self) -> Any:
        return self._output.document

    def check_input(self, payload: Any, directory: str, exists: Exists) -> Checked:
        """Checks what a capsule is called with; names are relative to ``directory``, "input" or "outgoing".

        Defaults are those of ``properties``, at any depth, through ``$ref`` and ``allOf``, in ``items`` and in
        ``additionalProperties``; the first one found wins. Inside ``anyOf``, ``oneOf``, ``if`` and the like none
        is applied, since which branch holds is only known afterwards. They are filled into ``payload`` itself.
        Raises Unfit.
        """
        return _check(self._input, payload, True, directory, exists)

    def check_output(self, output: Any, exists: Exists) -> Checked:
        """Checks what a capsule answered. Raises Unfit."""
        return _check(self._output, output, False, "output", exists)


def _check(side: schema.Schema, payload: Any, fill_defaults: bool, directory: str, exists: Exists) -> Checked:
    """Limits come first, so that everything after them is bounded; the walk comes before the validation."""
    if not isinstance(payload, dict):
        message = f"{quoted(payload)} given; expected a JSON object"
        raise Unfit([problem("", "not_an_object", message)])
    limits.check(payload)
    walk(side, payload, fill_defaults)
    limits.check(payload)
    evaluation = side.validator.evaluate(payload)
    if not evaluation.valid:
        raise Unfit(side.misfits(payload))
    return Checked(payload, find(payload, evaluation, directory, exists))
