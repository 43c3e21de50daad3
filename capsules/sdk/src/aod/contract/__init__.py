"""schema.json: the input and output of a capsule, and the texts in them that name files.

The same rules as the orchestrator's, on the same engine: checks a payload against its schema, fills in defaults, finds
file references and, when the files have their final names, rewrites them.

A reference is *declared* if the schema has ``"format": "file_path"`` (or another name in FILE_FORMATS), and *inferred*
if any other text equals the name of an existing file. Declared ones are strict and may be rewritten; inferred ones are
neither.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import limits, numbers, schema
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
    """A valid payload with defaults filled in, not yet rewritten.

    ``references`` are sorted by pointer, one for each place.
    """

    payload: dict[str, Any]
    references: list[Reference]


class Contract:
    """The compiled schema.json of a capsule."""

    def __init__(self, schema_json: bytes) -> None:
        """Compiles ``{"input": schema, "output": schema}``, at most 256 KiB of JSON.

        Raises Unfit with all problems; pointers lead into the file.
        """
        self._input, self._output = schema.parse(schema_json)

    @property
    def input_schema(self) -> Any:
        return self._input.document

    @property
    def output_schema(self) -> Any:
        return self._output.document

    def check_input(self, payload: Any, directory: str, exists: Exists) -> Checked:
        """Checks the input of a capsule; names are relative to ``directory``, "input" or "outgoing".

        Fills the defaults of ``properties`` into ``payload`` itself, at any depth, through ``$ref`` and ``allOf``, in
        ``items`` and in ``additionalProperties``; the first one found wins. Inside ``anyOf``, ``oneOf``, ``if`` and
        the like no default applies, because the valid branch is only known afterwards.
        Raises Unfit.
        """
        return _check(self._input, payload, True, directory, exists)

    def check_output(self, output: Any, exists: Exists) -> Checked:
        """Checks the output of a capsule. Raises Unfit."""
        return _check(self._output, output, False, "output", exists)


def _check(side: schema.Schema, payload: Any, fill_defaults: bool, directory: str, exists: Exists) -> Checked:
    """Checks numbers and limits first, which bound everything after them; walks before the validation."""
    if inexact := numbers.problems(payload):
        raise Unfit(inexact)
    if not isinstance(payload, dict):
        message = f"{quoted(payload)} given; expected a JSON object"
        raise Unfit([problem("", "not_an_object", message)])
    size_bytes_max = limits.OUTPUT_SIZE_BYTES_MAX if directory == "output" else limits.PAYLOAD_SIZE_BYTES_MAX
    limits.check(payload, size_bytes_max)
    walk(side, payload, fill_defaults)
    limits.check(payload, size_bytes_max)
    evaluation = side.validator.evaluate(payload)
    if not evaluation.valid:
        raise Unfit(side.misfits(payload))
    return Checked(payload, find(payload, evaluation, directory, exists))
