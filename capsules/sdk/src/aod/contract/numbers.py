"""Numbers that 64 bits cannot hold. The orchestrator rejects them, because they would change."""

from __future__ import annotations

from typing import Any

from .problem import PROBLEMS_MAX, QUOTED_LENGTH_MAX, Problem, joined, problem

INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**64 - 1
#: Maximum characters of an integer in this range.
_INTEGER_LENGTH_MAX = 20
#: Maximum characters of a key in a pointer.
_KEY_LENGTH_MAX = 80


class Inexact(float):
    """A number in JSON text whose digits this float does not have."""

    literal: str


def parse_float(literal: str) -> float:
    """The float of a literal; Inexact if it would change. For ``json.loads``."""
    from decimal import Decimal  # Most capsules have no such number, and start faster without this import.

    number = float(literal)
    is_zero = not literal.lower().partition("e")[0].strip("-0.")
    if is_zero or (number not in (0, float("inf"), float("-inf")) and Decimal(literal) == Decimal(repr(number))):
        return number
    return _inexact(literal, number)


def parse_int(literal: str) -> int | float:
    """The integer of a literal; Inexact if it is far too long. For ``json.loads``."""
    return int(literal) if len(literal) <= _INTEGER_LENGTH_MAX else _inexact(literal, float(literal))


def _inexact(literal: str, number: float) -> Inexact:
    inexact = Inexact(number)
    inexact.literal = literal
    return inexact


def problems(value: Any) -> list[Problem]:
    """All numbers in ``value`` that would change, at most 50."""
    found: list[Problem] = []
    rest: list[tuple[str, Any]] = [("", value)]
    while rest and len(found) < PROBLEMS_MAX:
        pointer, value = rest.pop()
        if isinstance(value, dict):
            rest += [(joined(pointer, key[:_KEY_LENGTH_MAX]), member) for key, member in reversed(value.items())]
        elif isinstance(value, list):
            rest += [(joined(pointer, index), value[index]) for index in reversed(range(len(value)))]
        elif message := _message(value):
            found.append(problem(pointer, "number_inexact", message))
    return found


def _message(value: Any) -> str:
    if isinstance(value, Inexact):
        literal = value.literal
        if literal.lstrip("-").isdecimal():
            return _integer_message(literal)
        if value in (float("inf"), float("-inf")):
            largest = 1.7976931348623157e308
            return f"{_cut(literal)} given; expected a number from -{largest} to {largest}, or a string"
        return f"{_cut(literal)} given; a 64-bit number keeps only {float(value)}: expected that number, or a string"
    if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
        return _integer_message(str(value))
    return ""


def _integer_message(literal: str) -> str:
    return f"{_cut(literal)} given; expected an integer from {INTEGER_MIN} to {INTEGER_MAX}, or a string"


def _cut(literal: str) -> str:
    return literal if len(literal) <= QUOTED_LENGTH_MAX else literal[:QUOTED_LENGTH_MAX] + "…"
