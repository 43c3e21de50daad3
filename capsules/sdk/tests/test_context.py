"""The context of a run: identity, files, log."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import aod
from conftest import SOURCES


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> aod.Context:
    monkeypatch.setenv("AOD_IO", str(tmp_path))
    return aod.Context()


def test_who_it_is(context: aod.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AOD_RUN_ID", "AOD_ROOT_RUN_ID", "AOD_ATTEMPT", "AOD_DEADLINE"):
        monkeypatch.delenv(name, raising=False)
    assert (context.run_id, context.root_run_id, context.attempt, context.deadline) == (None, None, 1, None)
    monkeypatch.setenv("AOD_RUN_ID", "run_a-b")
    monkeypatch.setenv("AOD_ROOT_RUN_ID", "run_a")
    monkeypatch.setenv("AOD_ATTEMPT", "2")
    monkeypatch.setenv("AOD_DEADLINE", "2026-01-02T03:04:05.123456789Z")
    assert (context.run_id, context.root_run_id, context.attempt) == ("run_a-b", "run_a", 2)
    assert context.deadline == datetime(2026, 1, 2, 3, 4, 5, 123456, UTC)


def test_files_have_their_places(context: aod.Context, tmp_path: Path) -> None:
    for make, place in ((context.output_file, "output"), (context.outgoing_file, "handoff/outgoing")):
        path = make("a/b.txt")
        assert path == tmp_path / place / "a/b.txt"
        assert path.parent.is_dir()
        assert make(path) == path
        assert make(f"/io/{place}/a/./b.txt".replace("/./", "/")) == path
        for name in ("../x", "/etc/passwd", "", "a\0b", "x" * 256):
            with pytest.raises(aod.NameRefused):
                make(name)
    for find, place in ((context.input_file, "input"), (context.incoming_file, "handoff/incoming")):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "a.txt").write_text("x")
        assert find("a.txt") == tmp_path / place / "a.txt"
        with pytest.raises(FileNotFoundError, match="gone"):
            find("gone.txt")
        with pytest.raises(aod.NameRefused):
            find("../a.txt")
    assert context.workspace == tmp_path / "workspace"
    assert context.workspace.is_dir()


def test_a_secret_is_the_content_of_its_file(
    context: aod.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aod import secret

    monkeypatch.setattr(secret, "_DIRECTORY", tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "KEY").write_bytes(b"line\r\nline\n")
    assert context.secret("KEY") == "line\r\nline\n"
    (tmp_path / "elsewhere").write_bytes(b"opensesame\n")
    monkeypatch.setenv("KEY_FILE", str(tmp_path / "elsewhere"))
    assert context.secret("KEY") == "opensesame"
    with pytest.raises(aod.SecretMissing, match=r"OTHER.*agent\.yaml") as caught:
        context.secret("OTHER")
    assert (caught.value.name, caught.value.code, caught.value.exit_code) == ("OTHER", "secret_missing", 1)
    for name in ("", "../KEY", "a/b", ".x", "a\0b"):
        with pytest.raises(ValueError, match="not a secret name"):
            context.secret(name)


def test_in_a_container_the_places_are_those_of_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    from aod.directories import Directories

    for name in ("AOD_IO", "AOD_INPUT", "AOD_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    directories = Directories()
    assert (str(directories.input_json), str(directories.output_json)) == ("/io/input.json", "/io/output.json")
    assert str(directories.path("incoming")) == "/io/handoff/incoming"
    assert str(directories.workspace()) == "/workspace"


def test_log_lines(context: aod.Context, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AOD_RUN_ID", "run_a")
    monkeypatch.setenv("TRACEPARENT", f"00-{'a' * 32}-{'b' * 16}-01")
    context.log.info("read ü", rows=344, path=Path("a"))
    aod.log.warning("careful")
    context.progress(0.5, "half")
    context.progress(1)
    with pytest.raises(ValueError, match="0 to 1"):
        context.progress(50)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(line["level"], line["message"], line.get("fields")) for line in lines] == [
        ("info", "read ü", {"rows": 344, "path": "a"}),
        ("warning", "careful", None),
        ("info", "half", {"progress": 0.5}),
        ("info", "progress", {"progress": 1}),
    ]
    for line in lines:
        assert (line["run_id"], line["trace_id"], line["span_id"]) == ("run_a", "a" * 32, "b" * 16)
        assert datetime.fromisoformat(line["time"]).tzinfo is not None


def test_the_logs_of_libraries(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.Logger("library")  # noqa: LOG001
    logger.addHandler(aod.LogHandler())
    logger.debug("small %s", "talk")
    try:
        raise KeyError("x")
    except KeyError:
        logger.exception("went wrong")
    small, wrong = (json.loads(line) for line in capfd.readouterr().err.splitlines())
    assert (small["level"], small["message"], small["fields"]) == ("debug", "small talk", {"logger": "library"})
    assert (wrong["level"], wrong["fields"]["logger"]) == ("error", "library")
    assert "KeyError" in wrong["fields"]["exception"]


def test_importing_loads_nothing_heavy() -> None:
    code = "import sys, aod; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    loaded = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    heavy = {"jsonschema_rs", "yaml", "asyncio", "http.client", "ssl", "json", "logging", "pathlib", "inspect"}
    assert not heavy & set(loaded.stdout.split())


def test_every_public_name_is_there() -> None:
    assert set(aod.__all__) <= set(dir(aod))
    for name in aod.__all__:
        assert getattr(aod, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        aod.nonsense  # type: ignore[attr-defined]  # noqa: B018
    readme = (SOURCES.parent / "README.md").read_text()
    assert [name for name in aod.__all__ if name not in readme] == []
