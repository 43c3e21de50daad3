"""YAML with the orchestrator's rules."""

from __future__ import annotations

import math
from typing import Any

import pytest

from aod.yaml_core import load


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("FALSE", False),
        ("off", "off"),
        ("yes", "yes"),
        ("n", "n"),
        ("12", 12),
        ("-7", -7),
        ("010", 10),
        ("0o17", 15),
        ("0xff", 255),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2026-01-31", "2026-01-31"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("1.2.3", "1.2.3"),
        ("=", "="),
        ("'12'", "12"),
        ("{a: [1, off]}", {"a": [1, "off"]}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
    ],
)
def test_a_plain_scalar_is_what_yaml_1_2_says(text: str, expected: Any) -> None:
    found = load(text.encode())
    assert (found, type(found)) == (expected, type(expected))


def test_not_a_number_is_one() -> None:
    assert math.isnan(load(b".nan"))
