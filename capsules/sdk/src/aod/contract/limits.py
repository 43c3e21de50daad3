"""Limits of size and depth of a payload."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from .problem import PROBLEMS_MAX, Problem, Unfit, joined, problem

#: Largest input, in bytes of compact JSON; anything larger is a file.
PAYLOAD_SIZE_BYTES_MAX = 16 * 1024 * 1024
#: Largest input without the contents of its texts.
STRUCTURE_SIZE_BYTES_MAX = 256 * 1024
#: Largest output.
OUTPUT_SIZE_BYTES_MAX = 256 * 1024
#: Largest text of binary data, in bytes of UTF-8.
BINARY_TEXT_BYTES_MAX = 64 * 1024
#: Maximum nesting of objects and arrays.
NESTING_DEPTH_MAX = 64

# Both alphabets, with or without padding and line ends; words are too short to match by chance.
_BASE64 = re.compile(r"[A-Za-z0-9+/\-_=\r\n]*")


def check(payload: Any, size_bytes_max: int) -> None:
    """Raises Unfit with all limits that ``payload`` exceeds; ``size_bytes_max`` is the largest size of its side."""
    if deep := too_deep(payload):
        raise Unfit([deep])
    problems = []
    size = structure = serialized_size_bytes(payload)
    for pointer, text in each_string(payload):
        structure -= serialized_size_bytes(text) - 2
        if _size(text) > BINARY_TEXT_BYTES_MAX and (found := _binary(pointer, text)):
            problems.append(found)
    if not problems:
        problems = _too_large(size, size_bytes_max, "")
    if not problems:
        problems = _too_large(structure, STRUCTURE_SIZE_BYTES_MAX, " beside the contents of texts")
    if problems:
        raise Unfit(problems[:PROBLEMS_MAX])


def _too_large(size: int, expected: int, beside: str) -> list[Problem]:
    if size <= expected:
        return []
    message = (
        f"{size} bytes of JSON{beside}; expected at most {expected}: "
        "put large data into files, and pass the names of the files"
    )
    return [problem("", "too_large", message)]


def too_deep(value: Any) -> Problem | None:
    """The first place with more than 64 containers around and including it."""
    pointer = _find_too_deep(value, "", NESTING_DEPTH_MAX)
    if pointer is None:
        return None
    message = f"nested too deep; expected at most {NESTING_DEPTH_MAX} levels"
    return problem(pointer, "too_deep", message)


def _find_too_deep(value: Any, pointer: str, levels: int) -> str | None:
    for part, child in _parts(value):
        if isinstance(child, (dict, list)):
            below = joined(pointer, part)
            found = below if levels <= 1 else _find_too_deep(child, below, levels - 1)
            if found is not None:
                return found
    return None


def _parts(value: Any) -> Iterator[tuple[str | int, Any]]:
    """The members of an object or an array, in the orchestrator's order."""
    if isinstance(value, dict):
        yield from sorted(value.items())
    elif isinstance(value, list):
        yield from enumerate(value)


def each_string(value: Any, pointer: str = "") -> Iterator[tuple[str, str]]:
    """Pointer and text of every string in ``value``, keys not included; for values that are not too deep."""
    if isinstance(value, str):
        yield pointer, value
    else:
        for part, child in _parts(value):
            if isinstance(child, (str, dict, list)):
                yield from each_string(child, joined(pointer, part))


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def serialized_size_bytes(value: Any) -> int:
    """The size of ``value`` as compact JSON; numbers with an exponent may differ by a byte from the gateway's count."""
    return _size(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _binary(pointer: str, text: str) -> Problem | None:
    if text.startswith("data:"):
        found = "a data: URL"
    elif _BASE64.fullmatch(text):
        found = "text in base64"
    else:
        return None
    message = f"{found} of {_size(text)} bytes; put binary data into a file, and pass the name of the file"
    return problem(pointer, "too_large", message)
