"""A double of the channel that a run has to its orchestrator: real HTTP, answers as a test tells it.

It keeps the rules that the SDK relies on: the same key joins the same callee, its head comes at once, white space
while it waits, and a call may be polled and cancelled.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

#: Ends a test that waits for a missing event.
WAIT_SECONDS_MAX = 30


class Callee:
    """The request of one key, and its result."""

    def __init__(self, number: int, key: str, body: dict[str, Any]) -> None:
        self.run_id = f"run_{number}"
        self.key = key
        self.body = body
        self.document: dict[str, Any] | None = None
        self.ended = threading.Event()

    def succeed(self, output: Any, files: dict[str, str] | None = None) -> None:
        self._end({"success": True, "output": output, "files": files or {}, "run_id": self.run_id, "error": None})

    def fail(self, code: str, source: str = "capsule", **more: Any) -> None:
        error = {"code": code, "message": f"it is {code}", "detail": None, "retryable": False, "source": source, **more}
        self._end({"success": False, "output": None, "files": {}, "run_id": self.run_id, "error": error})

    def _end(self, document: dict[str, Any]) -> None:
        self.document = document
        self.ended.set()


class Orchestrator:
    """Answers each new call as ``on_call`` does with its callee; ``None`` leaves it waiting.

    ``refusals`` are given out first, each a status, headers and a body. ``breaks`` connections are cut after the head.
    """

    def __init__(self, io: Path) -> None:
        self.io = io
        self.on_call: Callable[[Callee], None] | None = lambda callee: callee.succeed({"echo": callee.body["args"]})
        self.refusals: list[tuple[int, dict[str, str], Any]] = []
        self.breaks = 0
        #: Callable capsules, by name: ``title``, ``description`` and ``schema``.
        self.capsules: dict[str, dict[str, Any]] = {}
        self.callees: dict[str, Callee] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.changed = threading.Condition()
        self.waiting = self.waiting_max = 0
        handler = type("Handler", (_Handler,), {"orchestrator": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait_until(self, holds: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(holds, WAIT_SECONDS_MAX), "not in time"

    def callee(self, key: str, body: dict[str, Any]) -> Callee:
        with self.changed:
            is_new = key not in self.callees
            callee = self.callees.setdefault(key, Callee(len(self.callees), key, body))
            self.changed.notify_all()
        assert callee.body == body, "one key, two requests"
        if is_new and self.on_call:
            self.on_call(callee)
        return callee


class _Handler(BaseHTTPRequestHandler):
    orchestrator: Orchestrator
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._noted()
        if self.path.endswith("/cancel"):
            self._by_run(self.path.split("/")[2]).fail("cancelled", "caller", retryable=True)
            self._send(202, {}, None)
        elif self.orchestrator.refusals:
            self._send(*self.orchestrator.refusals.pop(0))
        else:
            self._handoff(json.loads(body))

    def do_GET(self) -> None:
        self._noted()
        parts = urlsplit(self.path)
        if parts.path.startswith("/capsules"):
            self._capsules(parts.path.split("/")[2:])
            return
        callee = self._by_run(parts.path.split("/")[2])
        seconds = int(parse_qs(parts.query)["wait"][0])
        if self._waited(callee, seconds):
            self._send(200, {}, callee.document)
        else:
            self._send(202, {}, None)

    def _capsules(self, place: list[str]) -> None:
        known = self.orchestrator.capsules
        if not place:
            self._send(200, {}, {"capsules": known})
        elif place[0] in known:
            self._send(200, {}, known[place[0]]["schema"])
        else:
            self._send(404, {}, {"code": "unknown_capsule", "detail": f"this run may not call {place[0]}"})

    def _handoff(self, body: dict[str, Any]) -> None:
        callee = self.orchestrator.callee(self.headers["Idempotency-Key"], body)
        run = {"Aod-Run-Id": callee.run_id}
        if "respond-async" in self.headers.get("Prefer", ""):
            self._send(202, run, {"run_id": callee.run_id})
            return
        self.send_response(200)
        self.send_header("Aod-Run-Id", callee.run_id)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        self._chunk(b" ")
        if self.orchestrator.breaks > 0:
            self.orchestrator.breaks -= 1
            return
        self._waited(callee, WAIT_SECONDS_MAX)
        self._chunk(json.dumps(callee.document).encode())
        self._chunk(b"")

    def _waited(self, callee: Callee, seconds: float) -> bool:
        orchestrator = self.orchestrator
        with orchestrator.changed:
            orchestrator.waiting += 1
            orchestrator.waiting_max = max(orchestrator.waiting, orchestrator.waiting_max)
            orchestrator.changed.notify_all()
        ended = callee.ended.wait(seconds)
        with orchestrator.changed:
            orchestrator.waiting -= 1
        return ended

    def _noted(self) -> None:
        with self.orchestrator.changed:
            self.orchestrator.requests.append((self.command, self.path, self.headers.get("Idempotency-Key")))
            self.orchestrator.changed.notify_all()

    def _by_run(self, run_id: str) -> Callee:
        return next(callee for callee in self.orchestrator.callees.values() if callee.run_id == run_id)

    def _send(self, status: int, headers: dict[str, str], body: Any) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        self.wfile.flush()
