"""Measures how long a capsule with an agent takes from its start to its first request of a model, in seconds.

Ends with 1 where that takes longer than it may. Each number is the least of a few, and judged only on a machine that
has a processor for each program that wants one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).with_name("src")
sys.path.insert(0, str(SOURCES))

from aod.testing import Recorded, StubServer

ROUNDS = 4
#: Maximum time until the first request, in seconds: without and with an MCP server.
PLAIN_SECONDS_MAX, SERVER_SECONDS_MAX = 2.0, 3.5

ENDS_SECONDS_MAX = 60
MCP_SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("bench")

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

server.run()
"""
FILES = {
    "run.py": "import aod\n\naod.run()\n",
    "schema.json": '{"input": {}, "output": {"type": "object"}}',
    "agent.yaml": "model: openai/bench\n",
    "src/main.py": "def execute(inputs, ctx):\n    return ctx.agent().run().output\n",
    "src/ai/task.md": "Add {{ n }} to itself.\n",
    "server.py": MCP_SERVER,
}
SERVER = {"mcp_servers": {"bench": {"command": sys.executable, "args": ["server.py"], "allow": ["add"]}}}


class Timed(StubServer):
    """A provider that records the time of its first request."""

    first: float | None = None

    def take(self, request: Recorded) -> Mapping[str, Any]:
        self.first = self.first or time.monotonic()
        return super().take(request)


def seconds(tools: dict[str, Any]) -> float:
    """From the start of one capsule to its first request."""
    with tempfile.TemporaryDirectory() as directory, Timed([{"output": {}}]) as provider:
        root = Path(directory)
        for name, text in {**FILES, "tools.yaml": json.dumps(tools), "io/input.json": '{"n": 3}'}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        environment = {**os.environ, "PYTHONPATH": str(SOURCES), "AOD_IO": str(root / "io"), "AOD_URL": provider.url}
        # Measured with compiled modules, as in an image.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(Path(sys.prefix) / "pycache")
        began = time.monotonic()
        command = [sys.executable, str(root / "run.py")]
        subprocess.run(command, env=environment, check=True, timeout=ENDS_SECONDS_MAX, stderr=subprocess.DEVNULL)
        assert provider.first is not None
        return provider.first - began


def main() -> int:
    missed = 0
    for meaning, tools, most in (("alone", {}, PLAIN_SECONDS_MAX), ("with an MCP server", SERVER, SERVER_SECONDS_MAX)):
        seconds(tools)  # Compiles.
        least = min(seconds(tools) for _ in range(ROUNDS))
        print(f"{least:7.2f} s   from the start to the first request, {meaning}; at most {most} s")
        missed += least > most
    is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    if missed:
        print("not judged: the machine is busy" if is_busy else "missed: an agent is slow to begin", file=sys.stderr)
    return 1 if missed and not is_busy else 0


if __name__ == "__main__":
    sys.exit(main())
