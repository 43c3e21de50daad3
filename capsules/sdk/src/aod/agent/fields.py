"""Reads fields of a YAML mapping, and collects all their problems.

Ignores unknown keys: `aod capsule validate` and the registration reject them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..contract.problem import quoted
from ..errors import CapsuleInvalid


class Fields:
    """A mapping and its place in its file; absent or null fields have their default."""

    def __init__(self, values: Any, place: str, problems: list[str]) -> None:
        if values is not None and not isinstance(values, dict):
            problems.append(f"{place or 'top level'}: {quoted(values)} found; expected a mapping")
        self._values: dict[str, Any] = values if isinstance(values, dict) else {}
        self._place = place
        self._problems = problems

    def any(self, key: str) -> Any:
        return self._values.get(key)

    def mapping(self, key: str) -> dict[str, Any]:
        """A mapping of names to any values."""
        return dict(self._checked(key, dict, "a mapping") or {})

    def text(self, key: str) -> str | None:
        value: str | None = self._checked(key, str, "a text")
        return value

    def needed(self, key: str) -> str:
        text = self.text(key)
        if text is None and self._values.get(key) is None:
            self._problem(key, "nothing found; expected a text")
        return text or ""

    def count(self, key: str) -> int | None:
        value: int | None = self._checked(key, int, "a whole number from 0")
        if value is not None and value < 0:
            self._problem(key, f"{value} found; expected a whole number from 0")
        return value

    def number(self, key: str) -> float | None:
        value: float | None = self._checked(key, (int, float), "a number")
        return value

    def integer(self, key: str) -> int | None:
        value: int | None = self._checked(key, int, "a whole number")
        return value

    def flag(self, key: str) -> bool | None:
        value: bool | None = self._checked(key, bool, "true or false")
        return value

    def choice(self, key: str, choices: tuple[str, ...]) -> str | None:
        value = self._values.get(key)
        if value is None or value in choices:
            return value
        self._problem(key, f"{quoted(value)} found; expected one of {', '.join(choices)}")
        return None

    def texts(self, key: str) -> list[str]:
        values = self._checked(key, list, "a list of texts") or []
        if not all(isinstance(value, str) for value in values):
            self._problem(key, f"{quoted(values)} found; expected a list of texts")
            return []
        return values

    def plain(self, key: str) -> dict[str, str]:
        """A mapping of names to texts; numbers and booleans become texts as written."""
        values = self._checked(key, dict, "a mapping") or {}
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}

    def part(self, key: str) -> Fields:
        return Fields(self._values.get(key), self._joined(key), self._problems)

    def table(self, key: str) -> dict[str, Fields]:
        """The members of the mapping ``key``, by their names."""
        members = self._checked(key, dict, "a mapping") or {}
        return {name: Fields(value, f"{self._joined(key)}.{name}", self._problems) for name, value in members.items()}

    def items(self, key: str) -> list[Any]:
        return self._checked(key, list, "a list") or []

    def of(self, value: Any, key: str, index: int) -> Fields:
        """The fields of a list's item."""
        return Fields(value, f"{self._joined(key)}[{index}]", self._problems)

    def _checked(self, key: str, kind: Any, expected: str) -> Any:
        value = self._values.get(key)
        is_flag = isinstance(value, bool) and kind is not bool
        if value is None or (isinstance(value, kind) and not is_flag):
            return value
        self._problem(key, f"{quoted(value)} found; expected {expected}")
        return None

    def _problem(self, key: str, message: str) -> None:
        self._problems.append(f"{self._joined(key)}: {message}")

    def _joined(self, key: str) -> str:
        return f"{self._place}.{key}" if self._place else key


def read_yaml(path: Path) -> Any:
    """The content of the YAML file; None if the file is missing. Raises CapsuleInvalid."""
    import yaml

    from ..yaml_core import load

    try:
        return load(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise CapsuleInvalid(f"{path.name} is unreadable", [" ".join(str(error).split())]) from None
