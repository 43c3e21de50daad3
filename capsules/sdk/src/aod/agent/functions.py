"""Functions of the capsule as tools: ``python`` in tools.yaml."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import CapsuleInvalid


def functions(capsule: Path, references: list[str]) -> list[Callable[..., Any]]:
    """The functions of ``references`` (``module:function``, relative to the capsule's directory).

    Raises CapsuleInvalid, and exceptions of the modules.
    """
    if references and str(capsule) not in sys.path:
        sys.path.insert(0, str(capsule))
    found, problems = [], []
    for reference in references:
        module, _, name = reference.partition(":")
        try:
            function = getattr(importlib.import_module(module), name, None)
        except ModuleNotFoundError as error:
            problems.append(f"python: {reference!r}: {error}; expected module:function")
            continue
        if callable(function):
            found.append(function)
        else:
            problems.append(f"python: {reference!r}: {module} has no function {name!r}")
    if problems:
        raise CapsuleInvalid("tools.yaml is invalid", problems)
    return found
