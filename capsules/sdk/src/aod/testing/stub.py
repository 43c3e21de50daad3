"""A server that answers like model providers, from a script: OpenAI (Chat Completions and Responses), Anthropic
(Messages) and Google (generateContent), whole and streamed. Only for tests.

As a program, `python -m aod.testing.stub --script FILE` prints its port on a separate line, and serves until it ends;
`GET /requests` returns the received requests. A script is YAML or JSON, a list of steps, one for each request::

    - text: words
    - tool: chart                          # a call of a tool
      args: {table: penguins.csv}
    - tools: [{tool: a, args: {}}, …]      # several calls together
    - output: {title: …}                   # a call of the tool "answer" if it is offered, else JSON
    - status: 503                          # an error in the provider's format, or ``body``
      message: overloaded
      headers: {Retry-After: "1"}
    - raw: "<html>"                        # this body, with status 200
    - drop: true                           # no answer at all

and may hold ``usage`` (``input_tokens``, ``output_tokens``), ``delay_seconds``, ``headers``, ``truncate: true`` (the
connection ends in the middle of the answer) and ``times`` (default 1). After the last step, the answer is 500.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from .formats import Call, Format, Said, format_of, is_streamed

#: The tool for the final answer of the SDK's agents.
OUTPUT_TOOL = "answer"

#: The path of the received requests.
REQUESTS_PATH = "/requests"


class Recorded(NamedTuple):
    """A received request: names of ``headers`` are in lower case, ``body`` is its JSON."""

    path: str
    headers: dict[str, str]
    body: Any


class StubServer:
    """Serves within its ``with`` block: ``with StubServer([{"text": "hello"}]) as stub: … stub.url``."""

    def __init__(self, steps: Iterable[Mapping[str, Any]], port: int = 0) -> None:
        self._steps = [step for step in steps for _ in range(step.get("times", 1))]
        self._lock = threading.Lock()
        self._taken = 0
        self.requests: list[Recorded] = []
        handler = type("Handler", (_Handler,), {"stub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def steps_left(self) -> int:
        return len(self._steps) - self._taken

    def __enter__(self) -> Self:
        # Polls for its end this often: a test must not wait for it.
        threading.Thread(target=self._server.serve_forever, args=(0.02,), name="stub", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, request: Recorded) -> Mapping[str, Any]:
        """The step for ``request``."""
        with self._lock:
            self.requests.append(request)
            if self._taken == len(self._steps):
                return {"status": 500, "message": f"the script has only {self._taken} steps"}
            self._taken += 1
            return self._steps[self._taken - 1]


class _Handler(BaseHTTPRequestHandler):
    stub: StubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path != REQUESTS_PATH:
            self._send(404, {}, _json({"error": {"message": f"unknown path {self.path}"}}))
            return
        self._send(200, {}, _json([request._asdict() for request in self.stub.requests]))

    def do_POST(self) -> None:
        content = self._content()
        spoken = format_of(self.path)
        if spoken is None:
            self._send(404, {}, _json({"error": {"message": f"no model route {self.path}"}}))
            return
        try:
            body = json.loads(content)
        except ValueError as error:
            self._send(400, {}, _json(spoken.error(400, f"the request is not JSON: {error}")))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        step = self.stub.take(Recorded(self.path, headers, body))
        time.sleep(step.get("delay_seconds", 0))
        if step.get("drop"):
            self._hang_up()
        else:
            self._answer(step, spoken, body)

    def _content(self) -> bytes:
        """The body, with a content length or, from a proxy that passes it on, chunked."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        content = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # Trailers, up to the empty line.
        return content

    def _answer(self, step: Mapping[str, Any], spoken: Format, body: dict[str, Any]) -> None:
        headers = {name: str(value) for name, value in (step.get("headers") or {}).items()}
        is_cut = bool(step.get("truncate"))
        if "status" in step:
            status = int(step["status"])
            document = step.get("body") or spoken.error(status, str(step.get("message", "as the script says")))
            self._send(status, headers, _json(document), is_cut=is_cut)
        elif "raw" in step:
            self._send(200, headers, str(step["raw"]).encode(), is_cut=is_cut)
        elif is_streamed(self.path, body):
            said = _said(step, spoken, body, self.path)
            self._stream(headers, list(spoken.events(said, body)), is_cut=is_cut)
        else:
            whole = spoken.whole(_said(step, spoken, body, self.path))
            self._send(200, headers, _json(whole), is_cut=is_cut)

    def _send(self, status: int, headers: dict[str, str], content: bytes, *, is_cut: bool = False) -> None:
        self.send_response(status)
        kinds = {"Content-Type": "application/json", "Content-Length": str(len(content))}
        for name, value in {**kinds, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if is_cut else content)
        if is_cut:
            self._hang_up()

    def _stream(self, headers: dict[str, str], events: list[bytes], *, is_cut: bool) -> None:
        self.send_response(200)
        for name, value in {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        for event in events[: len(events) // 2] if is_cut else events:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.flush()
        if is_cut:
            self._hang_up()
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)


def _json(document: Any) -> bytes:
    return json.dumps(document).encode()


def _said(step: Mapping[str, Any], spoken: Format, body: dict[str, Any], path: str) -> Said:
    usage = step.get("usage") or {}
    text, calls = str(step.get("text", "")), list(step.get("tools") or [])
    if "tool" in step:
        calls = [step]
    elif "output" in step and OUTPUT_TOOL in spoken.offered(body):
        calls = [{"tool": OUTPUT_TOOL, "args": step["output"]}]
    elif "output" in step:
        text = json.dumps(step["output"])
    return Said(
        # Google has the model in the path.
        model=body.get("model") or path.rsplit("/", 1)[-1].partition(":")[0],
        text=text,
        calls=[Call(f"call_{index}", call["tool"], call.get("args") or {}) for index, call in enumerate(calls)],
        input_tokens=int(usage.get("input_tokens", 10)),
        output_tokens=int(usage.get("output_tokens", 5)),
    )


def _steps(script: bytes) -> list[dict[str, Any]]:
    """Reads a script; JSON needs no YAML library."""
    try:
        steps = json.loads(script)
    except ValueError:
        from ..yaml_core import load

        steps = load(script)
    return list(steps or [])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m aod.testing.stub", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--port", type=int, default=0, help="TCP port (default: any free port)")
    parser.add_argument("--script", required=True, type=argparse.FileType("rb"), help="the steps, as YAML or JSON")
    arguments = parser.parse_args()
    with arguments.script as file, StubServer(_steps(file.read()), arguments.port) as stub:
        print(stub.port, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
