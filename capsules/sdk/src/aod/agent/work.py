"""What goes into a run of an agent, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    """All that a run of an agent is made of."""

    manifest: AgentManifest
    choices: list[Choice]
    word: str
    scripts: Scripts
    system: str | None
    task: str
    tools: Sequence[Tool]
    functions: Sequence[Callable[..., Any]]
    output: Output
    meter: Meter
    events: Events


@dataclass(frozen=True)
class Done:
    """An answer that fits, and the last words beside it."""

    output: dict[str, Any]
    text: str
