"""`execute` with a double of the callee: its calls, answers and files."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from aod import CapsuleError, Context
from aod.errors import HandoffFailed
from aod.handoff import Answer

from src import main

ENTRIES = [{"pdf": "a.pdf"}, {"pdf": "b.pdf"}, {"pdf": "a.pdf", "first_page": 2}]


class Calls(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.io = Path(directory.name)
        for patch in (mock.patch.dict("os.environ", {"AOD_IO": directory.name}), mock.patch.object(Context, "log")):
            patch.start()
            self.addCleanup(patch.stop)
        for name in ("input/a.pdf", "input/b.pdf", "handoff/incoming/another"):
            path = self.io / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(path.name)
        self.context = Context()
        self.asked = []

    def answer(self, target, arguments):
        """An answer like that of `pdf-text`; its file is renamed here, because other calls use the same name."""
        self.asked.append((target, arguments))
        self.assertEqual((self.io / "handoff/outgoing" / arguments["pdf"]).read_text(), arguments["pdf"])
        name = f"text-{len(self.asked)}.txt"
        path = self.io / "handoff/incoming" / name
        path.write_text(f"of {arguments['pdf']}")
        return Answer({"text": name, "pages": [{"text": name}], "title": "text.txt"}, {"text.txt": path}, "run_1")

    def fail_for_b(self, target, arguments):
        if arguments["pdf"] == "b.pdf":
            self.asked.append((target, arguments))
            error = {"code": "pdf_encrypted", "message": "a password", "detail": {"n": 1}, "retryable": True}
            raise HandoffFailed(target, error, "run_2")
        return self.answer(target, arguments)

    def execute(self, call, **inputs):
        inputs = {"common": {}, "files": ["a.pdf", "b.pdf"], "parallel": 1, "on_failure": "fail", **inputs}
        with mock.patch.object(self.context, "call", call):
            return main.execute({"target": "pdf-text", "entries": ENTRIES, **inputs}, self.context)

    def test_each_entry_is_a_call_and_its_files_are_kept_apart(self):
        answer = self.execute(self.answer, common={"first_page": 1, "keep_layout": True})
        self.assertEqual(self.asked, [
            ("pdf-text", {"pdf": "a.pdf", "first_page": 1, "keep_layout": True}),
            ("pdf-text", {"pdf": "b.pdf", "first_page": 1, "keep_layout": True}),
            ("pdf-text", {"pdf": "a.pdf", "first_page": 2, "keep_layout": True}),
        ])  # fmt: skip
        self.assertEqual((answer["succeeded"], answer["failed"]), (3, 0))
        self.assertEqual(answer["results"][1], {
            "output": {"text": "0001/text.txt", "pages": [{"text": "0001/text.txt"}], "title": "text.txt"},
            "files": ["0001/text.txt"],
            "error": None,
        })  # fmt: skip
        self.assertEqual((self.io / "output/0001/text.txt").read_text(), "of b.pdf")

    def test_failures_are_collected_in_their_places(self):
        answer = self.execute(self.fail_for_b, on_failure="collect", parallel=3)
        self.assertEqual((answer["succeeded"], answer["failed"]), (2, 1))
        error = {"code": "pdf_encrypted", "message": "a password", "retryable": True}
        self.assertEqual(answer["results"][1], {"output": None, "files": [], "error": error})
        self.assertEqual(answer["results"][2]["files"], ["0002/text.txt"])

    def test_the_first_failure_is_that_of_the_whole(self):
        cancelled = mock.Mock()
        with mock.patch.object(self.context, "cancel_calls", cancelled), self.assertRaises(CapsuleError) as failed:
            self.execute(self.fail_for_b)
        self.assertEqual((failed.exception.code, failed.exception.retryable), ("pdf_encrypted", True))
        self.assertEqual(failed.exception.detail, {"entry": 1, "error": {"n": 1}})
        self.assertIn("entry 1: the call to 'pdf-text' failed: a password", str(failed.exception))
        self.assertEqual((len(self.asked), cancelled.call_count), (2, 1))


if __name__ == "__main__":
    unittest.main()
