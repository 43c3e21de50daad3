"""The input and the result of an agent's run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .choice import Choice
from .events import Events
from .manifest import AgentManifest
from .meter import Meter
from .output import Output
from .script import Scripts
from .tool import Tool


@dataclass(frozen=True)
class Work:
    """The input of an agent's run."""

    manifest: AgentManifest
    choices: list[Choice]
    word: str
    scripts: Scripts
    system: str | None
    task: str
    deadline: datetime | None
    tools: Sequence[Tool]
    functions: Sequence[Callable[..., Any]]
    output: Output
    meter: Meter
    events: Events


@dataclass(frozen=True)
class Done:
    """A valid answer, and the last text beside it."""

    output: dict[str, Any]
    text: str
