"""`execute` with a double of the model: its requests, part by part, and its answers."""

import asyncio
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from aod import CapsuleError, Context

from src import main


class Model:
    """Answers each request with its number; records all requests, and their maximum concurrency."""

    def __init__(self):
        self.asked = []
        self.open = self.most_open = 0

    async def arun(self, *, inputs, output_schema):
        self.asked.append(inputs)
        number = len(self.asked)
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        await asyncio.sleep(0)
        self.open -= 1
        answer = {"title": f"title {number}", "summary": f"summary {number}", "key_points": [f"point {number}"]}
        return SimpleNamespace(output=answer)


class Summaries(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.io = Path(directory.name)
        (self.io / "input").mkdir()
        self.model = Model()
        for patch in (
            mock.patch.dict("os.environ", {"AOD_IO": directory.name}),
            mock.patch.object(Context, "log"),
            mock.patch.object(Context, "progress"),
            mock.patch.object(Context, "agent", lambda _: self.model),
            mock.patch.object(main, "PART_CHARACTERS_MAX", 50),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def execute(self, parallel=1, **texts):
        for name, text in texts.items():
            (self.io / "input" / f"{name}.txt").write_text(text)
        inputs = {"documents": [f"{name}.txt" for name in texts], "language": "Dutch", "parallel": parallel}
        return asyncio.run(main.execute(inputs, Context()))

    def test_one_short_document_is_one_question(self):
        answer = self.execute(a="short")
        self.assertEqual(self.model.asked, [
            {"kind": "text", "place": "the document a.txt", "text": "short", "summaries": [], "focus": None,
             "language": "Dutch"},
        ])  # fmt: skip
        self.assertEqual((answer["title"], answer["key_points"]), ("title 1", ["point 1"]))
        self.assertEqual(answer["documents"][0]["parts"], 1)
        self.assertEqual(answer["summary_file"].read_text(), "# title 1\n\nsummary 1\n\n- point 1\n")

    def test_a_long_document_is_read_in_parts_and_put_together(self):
        answer = self.execute(a="\n\n".join(letter * 30 for letter in "abcde"))
        asked = [(each["kind"], each["place"], each["text"] or len(each["summaries"])) for each in self.model.asked]
        self.assertEqual(asked, [
            *(("text", f"part {n} of 5 of the document a.txt", "abcde"[n - 1] * 30) for n in range(1, 6)),
            ("summaries", "parts of the document a.txt", 3),
            ("summaries", "parts of the document a.txt", 2),
            ("summaries", "parts of the document a.txt", 2),
        ])  # fmt: skip
        self.assertEqual([each["title"] for each in self.model.asked[-1]["summaries"]], ["title 6", "title 7"])
        self.assertEqual((answer["title"], answer["documents"][0]["title"]), ("title 8", "title 8"))
        self.assertEqual((answer["documents"][0]["parts"], answer["documents"][0]["characters"]), (5, 158))

    def test_several_documents_are_told_apart_and_together(self):
        answer = self.execute(a="short", b="other")
        self.assertEqual([each["title"] for each in answer["documents"]], ["title 1", "title 2"])
        self.assertEqual(answer["title"], "title 3")
        written = answer["summary_file"].read_text()
        self.assertIn("# title 3\n\nsummary 3\n\n- point 3\n\n## title 1\n\nDocument: a.txt\n\nsummary 1", written)

    def test_as_many_at_once_as_allowed_and_no_more(self):
        texts = {letter: "\n\n".join([letter * 30] * 3) for letter in "abc"}
        for parallel in (1, 4):
            self.model.most_open = 0
            answer = self.execute(parallel, **texts)
            self.assertEqual(self.model.most_open, parallel)
            self.assertEqual([each["document"] for each in answer["documents"]], ["a.txt", "b.txt", "c.txt"])

    def test_what_cannot_be_read_costs_nothing(self):
        with mock.patch.object(main, "CHARACTERS_MAX", 8), self.assertRaises(CapsuleError) as refused:
            self.execute(a="short", b="other")
        self.assertEqual(refused.exception.code, "documents_too_long")
        with self.assertRaises(CapsuleError) as refused:
            self.execute(a="short", b="")
        self.assertEqual(refused.exception.code, "document_without_text")
        with self.assertRaises(CapsuleError) as refused:
            self.execute(a="%PDF-1.7 and nothing more")
        self.assertEqual(refused.exception.code, "document_unreadable")
        self.assertIn("'a.txt' is a damaged PDF: ", str(refused.exception))
        self.assertEqual(self.model.asked, [])


if __name__ == "__main__":
    unittest.main()
