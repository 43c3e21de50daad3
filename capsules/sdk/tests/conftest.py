"""Shared fixtures: a capsule in a directory, and an orchestrator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aod import Context
from aod.agent import pauses
from orchestrator import Orchestrator

SOURCES = Path(__file__).parents[1] / "src"
#: Ends a hanging run.
RUN_SECONDS_MAX = 60

FILE = {"type": "string", "format": "file_path"}
ANYTHING: dict[str, Any] = {"input": {}, "output": {}}
#: The form of an answer.
TITLE = {"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}, "picture": FILE}}


class Ended(NamedTuple):
    """The results of a run: its exit code, its output.json, its log lines, the rest of stderr."""

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


class AgentCapsule:
    """A capsule with an agent in a separate directory, and the environment of its runs."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.io = root / "capsule", root / "io"
        self._monkeypatch = monkeypatch
        for name in list(os.environ):
            if name.startswith(("AOD_", "ORCHESTRATOR_")) or name.endswith(("_API_KEY", "_BASE_URL")):
                monkeypatch.delenv(name)
        self.set(AOD_IO=str(self.io))
        self.write(**{"src/ai/task.md": "Do it.", "schema.json": {"input": {}, "output": TITLE}})
        for name in ("input", "output", "handoff/outgoing", "handoff/incoming"):
            (self.io / name).mkdir(parents=True, exist_ok=True)

    def set(self, **variables: str) -> None:
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)

    def write(self, **files: Any) -> None:
        """Writes files by name; values other than texts as JSON, which is also YAML."""
        for name, content in files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content))

    def context(self, **inputs: Any) -> Context:
        return Context(capsule=self.directory, inputs=inputs)

    def scripted(self, *steps: Any, **files: Any) -> Context:
        """The context of a run with a scripted model."""
        self.write(**{"script.yaml": list(steps)}, **files)
        self.set(AOD_MODEL="script/script.yaml")
        return self.context()


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentCapsule:
    return AgentCapsule(tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of agents in this process, which take no time."""
    seconds: list[float] = []

    async def sleep(pause: float) -> None:
        seconds.append(pause)

    monkeypatch.setattr(pauses, "sleep", sleep)
    return seconds


class Told:
    """The log lines of the test so far."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self._lines: list[dict[str, Any]] = []

    def lines(self) -> list[dict[str, Any]]:
        self._lines += [json.loads(line) for line in self._capfd.readouterr().err.splitlines() if line.startswith("{")]
        return self._lines

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line["fields"] for line in self.lines() if line.get("fields", {}).get("event") == name]


@pytest.fixture
def told(capfd: pytest.CaptureFixture[str]) -> Told:
    return Told(capfd)


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
