"""The code that capsules share: each is self-contained, so the few shared files are copies."""

import json
import re
import unittest
from pathlib import Path

CAPSULES = Path(__file__).parents[1]
VERSIONS = CAPSULES.parent / "deploy" / "versions.env"
ALL = ("chart", "csv-query", "extract", "fan-out", "pdf-text", "report", "research", "summarize", "survey", "thumbnail")
WITH_MODEL = ("extract", "research", "summarize")
# The grants of capsules that call other capsules by name.
CALLEES = {"chart": [], "report": ["chart"], "survey": ["chart", "report"]}


class Copies(unittest.TestCase):
    def check(self, file, capsules):
        texts = {(CAPSULES / capsule / file).read_text("utf-8") for capsule in capsules}
        self.assertEqual(len(texts), 1, f"{file} differs between {' and '.join(capsules)}: change all or none")

    def test_the_bridge(self):
        self.check("run.py", ALL)

    def test_the_table(self):
        for file in ("src/utils/table.py", "src/utils/naming.py"):
            self.check(file, ("chart", "survey"))

    def test_the_reading_of_documents_and_all_that_an_agent_needs(self):
        for file in ("src/utils/documents.py", "src/utils/html_text.py", "requirements.txt", "Dockerfile"):
            self.check(file, WITH_MODEL)


class Contracts(unittest.TestCase):
    def test_every_file_is_declared(self):
        counts = {
            "chart": 2, "report": 3, "survey": 3, "csv-query": 2, "fan-out": 2, "pdf-text": 3, "thumbnail": 2,
            "extract": 3, "research": 2, "summarize": 2,
        }  # fmt: skip
        self.assertEqual(sorted(counts), sorted(ALL))
        for capsule, references in counts.items():
            text = (CAPSULES / capsule / "schema.json").read_text("utf-8")
            self.assertEqual(sorted(set(json.loads(text)) - {"$schema"}), ["input", "output"])
            self.assertEqual(text.count('"format": "file_path"'), references, capsule)

    def test_only_declared_capsules_are_called(self):
        for capsule, callees in CALLEES.items():
            tools = (CAPSULES / capsule / "tools.yaml").read_text("utf-8")
            self.assertEqual([callee for callee in CALLEES if f"- {callee}" in tools], callees)
            source = (CAPSULES / capsule / "src" / "main.py").read_text("utf-8")
            self.assertEqual([callee for callee in CALLEES if f'ctx.call("{callee}"' in source], callees)

    def test_what_is_installed_for_an_agent_is_what_the_sdk_is_tested_with(self):
        versions = dict(
            line.split("=", 1)
            for line in VERSIONS.read_text("utf-8").splitlines()
            if re.match(r"[A-Z0-9_]+_VERSION=", line)
        )
        pinned = (CAPSULES / "summarize" / "requirements.txt").read_text("utf-8").splitlines()
        for package, variable in [
            ("anthropic", "ANTHROPIC"), ("Jinja2", "JINJA2"), ("jsonschema-rs", "JSONSCHEMA_RS"), ("mcp", "MCP"),
            ("openai", "OPENAI"), ("pydantic-ai-slim", "PYDANTIC_AI"), ("PyYAML", "PYYAML"),
        ]:  # fmt: skip
            self.assertIn(f"{package}=={versions[f'{variable}_VERSION']}", pinned)


if __name__ == "__main__":
    unittest.main()
