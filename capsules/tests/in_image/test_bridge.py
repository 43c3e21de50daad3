"""The bridge, as a process, around a capsule of a few lines."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BRIDGE = Path("/capsule/run.py")
SCHEMA = {
    "input": {"type": "object", "required": ["count"], "properties": {"count": {"type": "integer"}}},
    "output": {"type": "object", "required": ["doubled"], "properties": {"doubled": {"type": "integer"}}},
}
# A test that waits longer than this for a process has failed.
PATIENCE_SECONDS = 30


class Bridge(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        shutil.copy(BRIDGE, self.directory)
        (self.directory / "src").mkdir()
        (self.directory / "schema.json").write_text(json.dumps(SCHEMA))
        self.environment = {
            **os.environ,
            "AOD_INPUT": str(self.directory / "input.json"),
            "AOD_OUTPUT": str(self.directory / "output.json"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def start(self, body, payload):
        (self.directory / "src" / "main.py").write_text(f"def execute(inputs):\n    {body}\n")
        (self.directory / "input.json").write_text(payload)
        process = subprocess.Popen(
            [sys.executable, "run.py"],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def check(self, body, payload, code, expected):
        process = self.start(body, payload)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        self.assertEqual(process.returncode, code, errors)
        self.assertEqual(json.loads((self.directory / "output.json").read_text()), expected)
        self.assertEqual([path.name for path in self.directory.glob("*.part")], [])
        return errors

    def failure(self, code, message, detail, retryable=False):
        return {"error": {"code": code, "message": message, "detail": detail, "retryable": retryable}}

    def test_the_answer_is_written(self):
        self.check('return {"doubled": inputs["count"] * 2}', '{"count": 21}', 0, {"doubled": 42})

    def test_an_unfit_payload_never_reaches_the_logic(self):
        expected = self.failure("input_invalid", "input.count: 'x' is not of type 'integer'", "ContractBroken")
        self.check("1 / 0", '{"count": "x"}', 2, expected)

    def test_an_unfit_answer_is_a_failure(self):
        expected = self.failure("output_invalid", "output: 'doubled' is a required property", "ContractBroken")
        self.check('return {"tripled": 63}', '{"count": 21}', 3, expected)

    def test_an_exception_is_told_and_logged(self):
        errors = self.check('raise KeyError("x")', '{"count": 1}', 70, self.failure("exception", "'x'", "KeyError"))
        self.assertIn("Traceback", errors)

    def test_an_exception_may_bring_its_own_code(self):
        body = 'raise type("Busy", (Exception,), {"code": "busy", "detail": "later", "retryable": True})("not now")'
        self.check(body, '{"count": 1}', 70, self.failure("busy", "not now", "later", True))

    def test_a_payload_that_is_no_json(self):
        process = self.start("return {}", '{"count": ')
        process.communicate(timeout=PATIENCE_SECONDS)
        self.assertEqual(process.returncode, 70)
        self.assertEqual(json.loads((self.directory / "output.json").read_text())["error"]["detail"], "JSONDecodeError")

    def test_what_json_cannot_say_leaves_no_half_answer(self):
        process = self.start('return {"doubled": 1, "more": float("nan")}', '{"count": 1}')
        process.communicate(timeout=PATIENCE_SECONDS)
        self.assertEqual(process.returncode, 70)
        self.assertEqual(json.loads((self.directory / "output.json").read_text())["error"]["code"], "exception")

    def test_a_stop_ends_it_at_once_and_leaves_no_answer(self):
        process = self.start("print('working', flush=True); import time; time.sleep(600)", '{"count": 1}')
        self.assertEqual(process.stdout.readline(), "working\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE_SECONDS), 143)
        self.assertFalse((self.directory / "output.json").exists())


if __name__ == "__main__":
    unittest.main()
