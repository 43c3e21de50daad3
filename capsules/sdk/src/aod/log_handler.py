"""Logs of libraries in the capsule's log format."""

from __future__ import annotations

import logging
from typing import Any

from .logs import log

_LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warning"), (logging.INFO, "info"))


class LogHandler(logging.Handler):
    """Passes records of Python's ``logging`` to ``aod.log``::

    logging.basicConfig(level=logging.INFO, handlers=[aod.LogHandler()])
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level = next((name for least, name in _LEVELS if record.levelno >= least), "debug")
            fields: dict[str, Any] = {"logger": record.name}
            if record.exc_info:
                fields["exception"] = logging.Formatter().formatException(record.exc_info)
            log.write(level, record.getMessage(), fields)
        except Exception:
            self.handleError(record)
