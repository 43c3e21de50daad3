"""The handoff over real HTTP, against a stand-in for the orchestrator on the loopback address."""

import json
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from unittest import mock

from src.utils import handoff


class Orchestrator(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.requests.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        status, body, promised = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(promised or len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Handoffs(unittest.TestCase):
    def setUp(self):
        self.server = HTTPServer(("127.0.0.1", 0), Orchestrator)
        self.server.requests = []
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        url = f"http://127.0.0.1:{self.server.server_port}/"
        # A proxy for the world must not come between a capsule and its orchestrator.
        environment = mock.patch.dict("os.environ", {"ORCHESTRATOR_URL": url, "http_proxy": "http://127.0.0.1:9"})
        environment.start()
        self.addCleanup(environment.stop)

    def answer(self, status, body, promised=None):
        self.server.answer = (status, body if isinstance(body, bytes) else json.dumps(body).encode(), promised)

    def failure(self):
        with self.assertRaises(handoff.HandoffFailed) as failed:
            handoff.hand_off("chart", kind="bar")
        return failed.exception

    def test_white_space_comes_first_and_the_output_is_returned(self):
        self.answer(200, b' \n\n {"success": true, "output": {"picture": "a.png"}, "files": ["a.png"], "error": null}')
        self.assertEqual(handoff.hand_off("chart", kind="bar"), {"picture": "a.png"})
        self.assertEqual(self.server.requests, [("/handoff", {"target": "chart", "args": {"kind": "bar"}})])

    def test_the_failure_of_the_other_capsule_keeps_its_code(self):
        error = {
            "code": "column_unknown",
            "message": "there is no column 'x'",
            "detail": "",
            "retryable": False,
            "source": "capsule",
        }
        self.answer(200, {"success": False, "output": None, "error": error})
        failed = self.failure()
        self.assertEqual((failed.code, failed.retryable), ("column_unknown", False))
        self.assertEqual(str(failed), "the capsule 'chart' failed: there is no column 'x'")

    def test_a_refusal_is_read_from_its_problem(self):
        self.answer(403, {"code": "target_not_allowed", "title": "not allowed", "detail": "survey may not call chart"})
        self.assertEqual((self.failure().code, self.failure().retryable), ("target_not_allowed", False))

    def test_not_now_may_be_tried_again(self):
        self.answer(503, b"<html>busy</html>")
        self.assertEqual((self.failure().code, self.failure().retryable), ("handoff_refused", True))

    def test_half_an_answer_is_none(self):
        for body, promised in [(b'{"success": tr', None), (b'{"success": true', 500), (b"", None)]:
            self.answer(200, body, promised)
            self.assertEqual((self.failure().code, self.failure().retryable), ("orchestrator_lost", True))

    def test_an_offered_file_is_copied_under_its_bare_name(self):
        with tempfile.TemporaryDirectory() as directory, mock.patch.object(handoff, "OUTGOING", Path(directory, "out")):
            Path(directory, "out").mkdir()
            Path(directory, "table.csv").write_text("a\n1\n")
            self.assertEqual(handoff.offer(Path(directory, "table.csv")), "table.csv")
            self.assertEqual(Path(directory, "out", "table.csv").read_text(), "a\n1\n")


if __name__ == "__main__":
    unittest.main()
