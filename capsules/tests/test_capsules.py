"""What the capsules have in common: each stands alone, so the little that they share is copied."""

import json
import unittest
from pathlib import Path

CAPSULES = Path(__file__).parents[1]
ALL = ("chart", "csv-query", "fan-out", "pdf-text", "report", "survey", "thumbnail")
# Whom each of those that call others by name may call.
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


class Contracts(unittest.TestCase):
    def test_every_file_is_declared(self):
        counts = {"chart": 2, "report": 3, "survey": 3, "csv-query": 2, "fan-out": 2, "pdf-text": 3, "thumbnail": 2}
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


if __name__ == "__main__":
    unittest.main()
