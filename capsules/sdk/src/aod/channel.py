"""HTTP to the orchestrator at the loopback address of the container, without a network or a proxy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, NamedTuple
from urllib.parse import urlsplit

#: Timeout of a connection on this machine, in seconds.
CONNECT_SECONDS_MAX = 10.0


class Broken(Exception):
    """No complete answer; a retry with the same key is the same call."""


class Reply(NamedTuple):
    """A complete answer; ``document`` is its JSON, empty if it has none."""

    status: int
    retry_after_seconds: float
    document: dict[str, Any]


class Channel:
    """A run's requests to the orchestrator; each has a separate connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"the orchestrator's address is {url!r}; expected http://HOST:PORT")
        self._host, self._port, self._prefix = parts.hostname, parts.port or 80, parts.path.rstrip("/")

    @classmethod
    def from_environment(cls) -> Channel | None:
        """The channel of this run; None without an orchestrator."""
        url = os.environ.get("AOD_URL") or os.environ.get("ORCHESTRATOR_URL")
        return cls(url) if url else None

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        on_head: Callable[[str], None] = lambda run_id: None,
        answer_seconds_max: float | None = None,
    ) -> Reply:
        """Sends a request, and waits for the complete answer, without a limit unless ``answer_seconds_max`` is set.

        Calls ``on_head`` with the run's id as soon as the orchestrator has stored a call. Raises Broken.
        """
        connection = HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS_MAX)
        try:
            connection.connect()
            connection.sock.settimeout(answer_seconds_max)
            content = None if body is None else json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
            content_type = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, self._prefix + path, content, {**content_type, **(headers or {})})
            response = connection.getresponse()
            if run_id := response.getheader("Aod-Run-Id"):
                on_head(run_id)
            return _reply(response)
        except (OSError, HTTPException) as error:
            raise Broken(f"{method} {path}: {error or type(error).__name__}") from error
        finally:
            connection.close()


def _reply(response: HTTPResponse) -> Reply:
    # While the callee runs, the orchestrator sends white space, which JSON allows before a value.
    text = response.read().strip()
    try:
        document = json.loads(text) if text else {}
    except ValueError as error:
        raise HTTPException(f"the answer is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise HTTPException("the answer is not a JSON object")
    seconds = response.getheader("Retry-After", "")
    return Reply(response.status, float(seconds) if seconds.isdecimal() else 0.0, document)
