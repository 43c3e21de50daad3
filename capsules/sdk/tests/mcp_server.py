"""An MCP server for tests, on nothing but the standard library: it starts in no time, and does what a test asks.

Each start adds a line with its process id to the file in STARTS.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from typing import Any

TOOLS = ("add", "environment", "picture", "long", "fail", "slow", "child", "crash", "dotted.name")


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "add":
        total = arguments["a"] + arguments["b"]
        return {**text(str(total)), "structuredContent": {"total": total}}
    if name == "environment":
        return text(json.dumps(dict(os.environ)))
    if name == "picture":
        data = base64.b64encode(b"\x89PNG").decode()
        return {"content": [{"type": "image", "data": data, "mimeType": "image/png"}]}
    if name == "long":
        return text("x" * 100_000)
    if name == "slow":
        time.sleep(60)
    if name == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], stdout=subprocess.DEVNULL)
        return text(str(child.pid))
    if name == "crash":
        os._exit(3)
    return {**text("it is out of order"), "isError": True}


def answer(message: dict[str, Any]) -> dict[str, Any]:
    method, parameters = message["method"], message.get("params", {})
    if method == "initialize":
        about = {"name": "test", "version": "1"}
        version = parameters["protocolVersion"]
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
        return {"result": {"tools": [{"name": n, "description": f"Does {n}.", "inputSchema": schema} for n in TOOLS]}}
    if method == "tools/call":
        return {"result": call(parameters["name"], parameters.get("arguments", {}))}
    return {"error": {"code": -32601, "message": "no such method"}}


def main() -> None:
    if path := os.environ.get("STARTS"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
    print("the server is up", file=sys.stderr, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message)}), flush=True)


if __name__ == "__main__":
    main()
