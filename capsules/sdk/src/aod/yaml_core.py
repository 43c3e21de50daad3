"""YAML 1.2, like the orchestrator: PyYAML itself reads `off` as false, 12:30 as 750, and dates not as texts.

Source: YAML 1.2.2, "10.3.2. Tag Resolution" of the core schema.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

# The parser in C is about ten times as fast, if PyYAML has it.
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_PREFIX = "tag:yaml.org,2002:"
#: Patterns of plain scalars, and their first characters. Null and merge keys are PyYAML's own.
_PATTERNS = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
}
_OTHERS = {_PREFIX + name for name in ("bool", "int", "float", "timestamp", "value")}


class _Loader(_Base):  # type: ignore[misc]
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _OTHERS]
        for first, resolvers in _Base.yaml_implicit_resolvers.items()
    }


def _integer(loader: Any, node: Any) -> int:
    text = loader.construct_scalar(node)
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text, 10)


def _number(loader: Any, node: Any) -> float:
    return float(re.sub(r"\.(?=[iInN])", "", loader.construct_scalar(node)))


for _name, (_pattern, _first) in _PATTERNS.items():
    _Loader.add_implicit_resolver(_PREFIX + _name, re.compile(f"(?:{_pattern})$"), list(_first))
_Loader.add_constructor(_PREFIX + "int", _integer)
_Loader.add_constructor(_PREFIX + "float", _number)


def load(content: bytes) -> Any:
    """The only document in ``content``; None if it is empty. Raises yaml.YAMLError, ValueError."""
    return yaml.load(content, _Loader)
