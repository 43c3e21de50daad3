"""Log lines: one JSON object each, on stderr, unbuffered."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import Any

_STDERR = 2


class Log:
    """Writes log lines with any fields: ``log.info("read", rows=344)``.

    A line has ``time`` (RFC 3339, UTC), ``level``, ``message``, ``run_id``, ``trace_id`` and ``span_id`` if known, and
    ``fields``. A value that is not JSON is written as its text.
    """

    def debug(self, message: str, **fields: Any) -> None:
        self.write("debug", message, fields)

    def info(self, message: str, **fields: Any) -> None:
        self.write("info", message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        self.write("warning", message, fields)

    def error(self, message: str, **fields: Any) -> None:
        self.write("error", message, fields)

    def write(self, level: str, message: str, fields: dict[str, Any]) -> None:
        """Writes one line; ``level`` is "debug", "info", "warning" or "error"."""
        line: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": level,
            "message": message,
            **_place(),
        }
        if fields:
            line["fields"] = fields
        # Bypasses Python's buffers: whole lines even from several threads, and nothing to flush when the run is
        # stopped.
        _write_all((json.dumps(line, ensure_ascii=False, default=str) + "\n").encode(errors="replace"))


def _place() -> dict[str, str]:
    """The run and its span (W3C Trace Context: version, trace, span, flags)."""
    place = {"run_id": os.environ["AOD_RUN_ID"]} if os.environ.get("AOD_RUN_ID") else {}
    parts = os.environ.get("TRACEPARENT", "").split("-")
    if len(parts) >= 4:
        place |= {"trace_id": parts[1], "span_id": parts[2]}
    return place


def _write_all(line: bytes) -> None:
    while line:
        try:
            line = line[os.write(_STDERR, line) :]
        except OSError:
            return  # A log without a reader is no error.


log = Log()
