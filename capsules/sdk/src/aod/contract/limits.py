"""How large and how deep a payload may be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from .problem import PROBLEMS_MAX, Problem, Unfit, joined, problem

#: Largest payload or output, in bytes of compact JSON; anything larger is a file.
PAYLOAD_SIZE_BYTES_MAX = 256 * 1024
#: Largest text in a payload, in bytes of UTF-8.
STRING_SIZE_BYTES_MAX = 64 * 1024
#: Most objects and arrays inside one another.
NESTING_DEPTH_MAX = 64

# Both alphabets, with or without padding and line ends; such a text is long, so no word by chance.
_BASE64 = re.compile(r"[A-Za-z0-9+/\-_=\r\n]*")


def check(payload: Any) -> None:
    """Raises Unfit with all limits that ``payload`` breaks."""
    if deep := too_deep(payload):
        raise Unfit([deep])
    texts = ((pointer, text) for pointer, text in each_string(payload) if _size(text) > STRING_SIZE_BYTES_MAX)
    problems = [_long_string(pointer, text) for pointer, text in texts]
    size = serialized_size_bytes(payload)
    if not problems and size > PAYLOAD_SIZE_BYTES_MAX:
        message = (
            f"{size} bytes of JSON; expected at most {PAYLOAD_SIZE_BYTES_MAX}: "
            "put large data into files and give their names"
        )
        problems = [problem("", "too_large", message)]
    if problems:
        raise Unfit(problems[:PROBLEMS_MAX])


def too_deep(value: Any) -> Problem | None:
    """The first place with more than 64 containers around and including it."""
    pointer = _find_too_deep(value, "", NESTING_DEPTH_MAX)
    if pointer is None:
        return None
    message = f"nested deeper than expected: at most {NESTING_DEPTH_MAX} levels are taken"
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
    """What is in an object or an array, in the order in which the orchestrator goes through it."""
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


def _long_string(pointer: str, text: str) -> Problem:
    size = _size(text)
    if text.startswith("data:"):
        found = "a data: URL"
    elif _BASE64.fullmatch(text):
        found = "what looks like base64"
    else:
        message = (
            f"a text of {size} bytes; expected at most {STRING_SIZE_BYTES_MAX}: put it into a file and give its name"
        )
        return problem(pointer, "too_large", message)
    message = f"{found} of {size} bytes; binary data belongs in a file: put it there and give its name"
    return problem(pointer, "too_large", message)
