"""The templates with agents of `aod capsule new`: their cases pass with what this tree has, and what their images get
is what is tested here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import RUN_SECONDS_MAX, SOURCES

REPOSITORY = Path(__file__).parents[3]
TEMPLATES = REPOSITORY / "crates/kit/templates"
CASES = sorted(path.parent for path in TEMPLATES.glob("*/tests/cases/*/script.yaml"))

#: Distributions of templates by the beginnings of their names in deploy/versions.env.
DISTRIBUTIONS = {
    "jsonschema-rs": "JSONSCHEMA_RS",
    "PyYAML": "PYYAML",
    "pydantic-ai-slim": "PYDANTIC_AI",
    "openai": "OPENAI",
    "anthropic": "ANTHROPIC",
    "google-genai": "GOOGLE_GENAI",
    "mcp": "MCP",
    "jinja2": "JINJA2",
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parts[-4]}/{case.name}")
def test_a_case_of_a_template_passes_with_its_script(case: Path, tmp_path: Path) -> None:
    for name in ("input", "output"):
        (tmp_path / name).mkdir()
    if (case / "files").exists():
        shutil.copytree(case / "files", tmp_path / "input", dirs_exist_ok=True)
    shutil.copyfile(case / "input.json", tmp_path / "input.json")
    environment = {
        # Servers of templates are started as `python3`.
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(SOURCES),
        "PYTHONDONTWRITEBYTECODE": "1",
        "AOD_IO": str(tmp_path),
        "AOD_MODEL": f"script/{case / 'script.yaml'}",
    }
    command = [sys.executable, str(case.parents[2] / "run.py")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)
    assert ran.returncode == 0, ran.stderr
    assert (
        json.loads((tmp_path / "output.json").read_text()) == json.loads((case / "expect.json").read_text())["output"]
    )


def test_there_are_such_templates() -> None:
    assert {case.parts[-4] for case in CASES} >= {"agent", "mcp"}


def test_images_get_the_versions_that_are_tested_here() -> None:
    text = (REPOSITORY / "deploy/versions.env").read_text()
    versions = dict(re.findall(r"^([A-Z0-9_]+)_VERSION=(.+)$", text, re.MULTILINE))
    for path in sorted(TEMPLATES.glob("*/Dockerfile")):
        for distribution, version in re.findall(r"([\w-]+)==([\w.]+[\w])", path.read_text()):
            assert version == versions[DISTRIBUTIONS[distribution]], f"{path}: {distribution}"
