"""`execute` with a double of the agent: its input, and its report."""

import os
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from aod import CapsuleError, Context, ToolError

from src import main
from src.utils.passages import Library


class Research(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.io = Path(directory.name)
        (self.io / "input/old").mkdir(parents=True)
        (self.io / "input/letter.txt").write_text("There is no light after 22:00.")
        (self.io / "input/old/notice.html").write_text("<title>Notice</title><p>The ferry runs until midnight.")
        for patch in (
            mock.patch.dict("os.environ", {"AOD_IO": directory.name}),
            mock.patch.object(Context, "log"),
            mock.patch.object(
                Context, "agent", lambda _, tools: SimpleNamespace(run=lambda **given: self.run_agent(tools, given))
            ),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def run_agent(self, tools, given):
        (write_report,) = tools
        self.given = given["inputs"]
        with self.assertRaisesRegex(ToolError, "unknown passage \\[letter:2\\]"):
            write_report("# Ferry\n\nDark [letter:2].")
        report = write_report("# Ferry\n\nIt runs late [notice:1], in the dark [letter:1].")
        answer = {"report": report, "title": "Ferry", "answer": "Late and dark.", "open_questions": []}
        self.assertEqual(sorted(given["output_schema"]["required"]), sorted(answer))
        return SimpleNamespace(output=answer)

    def execute(self, **inputs):
        return main.execute({"question": "When?", "documents": ["letter.txt", "old/notice.html"], **inputs}, Context())

    def test_an_answer_and_its_citations(self):
        answer = self.execute()
        self.assertEqual((self.given["question"], self.given["language"]), ("When?", None))
        self.assertEqual([source.id for source in self.given["sources"]], ["letter", "notice"])
        self.assertEqual([each["passage"] for each in answer["citations"]], ["notice:1", "letter:1"])
        self.assertEqual(answer["citations"][0], {
            "passage": "notice:1", "document": "old/notice.html", "page": None,
            "text": "Notice\n\nThe ferry runs until midnight.",
        })  # fmt: skip
        self.assertIn(
            "## Sources\n\n- [notice:1] old/notice.html\n", (self.io / "output" / answer["report"]).read_text()
        )

    def test_the_server_finds_the_documents(self):
        self.execute()
        library = Library.load(Path(os.environ["LIBRARY"]))
        self.assertEqual(sorted(library.passages), ["letter:1", "notice:1"])

    def test_what_cannot_be_read_costs_nothing(self):
        with mock.patch.object(main, "CHARACTERS_MAX", 20), self.assertRaises(CapsuleError) as refused:
            self.execute()
        self.assertEqual(refused.exception.code, "documents_too_long")
        (self.io / "input/letter.txt").write_bytes(b"\0")
        with self.assertRaises(CapsuleError) as refused:
            self.execute()
        self.assertEqual(refused.exception.code, "document_unreadable")


if __name__ == "__main__":
    unittest.main()
