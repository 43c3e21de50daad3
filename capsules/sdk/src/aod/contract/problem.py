"""Problems of a schema or a payload, in words that help to fix them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

#: Maximum characters of a value in a message.
QUOTED_LENGTH_MAX = 120
#: Maximum characters of a message: a schema's own texts (``enum``, ``pattern``) may be long.
MESSAGE_LENGTH_MAX = 1_000
#: Maximum problems of one answer; the rest appears after these are fixed.
PROBLEMS_MAX = 50


class Problem(NamedTuple):
    """One problem and its place.

    ``pointer`` is a JSON pointer (RFC 6901) into the payload, or into schema.json; empty for the whole.
    Programs may rely on ``code``; ``message`` states what was found and what was expected.
    """

    pointer: str
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.pointer or 'top level'}: {self.message}"


class Unfit(Exception):
    """A schema or a payload violates the contract; ``problems`` has all problems, at most 50."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems[:PROBLEMS_MAX]
        super().__init__("; ".join(map(str, self.problems)))


def problem(pointer: str, code: str, message: str) -> Problem:
    return Problem(pointer, code, _shortened(message, MESSAGE_LENGTH_MAX))


def quoted(value: Any) -> str:
    """``value`` as JSON, at most 120 characters of it; texts in quotes, control characters escaped."""
    if isinstance(value, str):
        return json.dumps(_shortened(value, QUOTED_LENGTH_MAX), ensure_ascii=False)
    return _shortened(json.dumps(value, ensure_ascii=False, default=repr), QUOTED_LENGTH_MAX)


def _shortened(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else text[:length_max] + "…"


def joined(pointer: str, part: str | int) -> str:
    """``pointer`` with one more part."""
    escaped = str(part).replace("~", "~0").replace("/", "~1")
    return f"{pointer}/{escaped}"


def pointer_of(parts: list[str | int]) -> str:
    pointer = ""
    for part in parts:
        pointer = joined(pointer, part)
    return pointer
