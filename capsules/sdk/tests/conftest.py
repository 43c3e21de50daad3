"""What the tests share: a capsule in a directory, and an orchestrator to ask."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orchestrator import Orchestrator

SOURCES = Path(__file__).parents[1] / "src"
#: A run that hangs must end, too.
RUN_SECONDS_MAX = 60

FILE = {"type": "string", "format": "file_path"}
ANYTHING: dict[str, Any] = {"input": {}, "output": {}}


class Ended(NamedTuple):
    """What a run left behind: its exit code, its output.json, its log lines, what else is on stderr."""

    exit_code: int
    output: Any
    log: list[dict[str, Any]]
    stderr: str


class Capsule:
    """A capsule directory and the /io of one run."""

    def __init__(self, root: Path) -> None:
        self.directory, self.io = root / "capsule", root / "io"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AOD_", "ORCHESTRATOR_"))},
            "PYTHONPATH": str(SOURCES),
            "PYTHONDONTWRITEBYTECODE": "1",
            "AOD_IO": str(self.io),
        }

    def write(
        self, main: str, schema: Any = ANYTHING, payload: Any = None, inputs: dict[str, str] | None = None
    ) -> None:
        (self.directory / "src").mkdir(parents=True, exist_ok=True)
        (self.directory / "run.py").write_text("import aod\n\naod.run()\n")
        (self.directory / "schema.json").write_text(schema if isinstance(schema, str) else json.dumps(schema))
        (self.directory / "src" / "main.py").write_text(main)
        for name in ("input", "output", "handoff/outgoing", "handoff/incoming"):
            (self.io / name).mkdir(parents=True, exist_ok=True)
        (self.io / "input.json").write_text(payload if isinstance(payload, str) else json.dumps(payload or {}))
        for name, text in (inputs or {}).items():
            (self.io / "input" / name).write_text(text)

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, str(self.directory / "run.py")]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.environment, stdout=pipe, stderr=pipe, text=True, cwd="/")

    def ended(self, process: subprocess.Popen[str]) -> Ended:
        try:
            _, stderr = process.communicate(timeout=RUN_SECONDS_MAX)
        finally:
            process.kill()
        path = self.io / "output.json"
        output = json.loads(path.read_text()) if path.exists() else None
        lines = [line for line in stderr.splitlines() if line.startswith("{")]
        assert not list(self.io.glob("*.part"))
        return Ended(process.returncode, output, [json.loads(line) for line in lines], stderr)

    def run(
        self, main: str, schema: Any = ANYTHING, payload: Any = None, inputs: dict[str, str] | None = None
    ) -> Ended:
        self.write(main, schema, payload, inputs)
        return self.ended(self.start())


@pytest.fixture
def capsule(tmp_path: Path) -> Capsule:
    return Capsule(tmp_path)


@pytest.fixture
def orchestrator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Orchestrator]:
    io = tmp_path / "io"
    for name in ("input", "output", "handoff/outgoing", "handoff/incoming"):
        (io / name).mkdir(parents=True, exist_ok=True)
    with Orchestrator(io) as running:
        monkeypatch.setenv("AOD_IO", str(io))
        monkeypatch.setenv("AOD_URL", running.url)
        yield running
