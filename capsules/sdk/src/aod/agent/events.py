"""An agent's log events: requests, tools, limits; contents only if agent.yaml enables them."""

from __future__ import annotations

import time
from typing import Any

from ..logs import log


class Events:
    """Writes an agent's events; ``with_content`` is ``telemetry.capture_content`` of agent.yaml."""

    def __init__(self, with_content: bool) -> None:
        self.with_content = with_content

    def tell(self, event: str, message: str, *, level: str = "info", content: Any = None, **fields: Any) -> None:
        """Writes one line; programs may rely on ``fields.event``."""
        given = {name: value for name, value in fields.items() if value is not None}
        if self.with_content and content is not None:
            given["content"] = content
        log.write(level, message, {"event": event, **given})


class Stopwatch:
    """Measures the time since its creation."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def milliseconds(self) -> int:
        return round((time.monotonic() - self._began) * 1000)
