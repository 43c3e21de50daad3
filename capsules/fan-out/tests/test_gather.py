"""Parallel calls, with functions instead of capsules."""

import threading
import unittest
from pathlib import Path

from src.utils.gather import EntryFailed, gather
from src.utils.naming import places, renamed

# Maximum wait of a test for another thread.
PATIENCE_SECONDS = 10


class Gathering(unittest.TestCase):
    def test_results_keep_the_order_of_the_entries(self):
        last_is_done = threading.Event()

        def call(index, entry):
            if index == 2:
                last_is_done.set()
            else:
                self.assertTrue(last_is_done.wait(PATIENCE_SECONDS))
            return entry * 10

        results = gather([1, 2, 3], call, 3, ValueError)
        self.assertEqual([result.value for result in results], [10, 20, 30])

    def test_as_many_at_once_as_allowed_and_no_more(self):
        everybody = threading.Barrier(3, timeout=PATIENCE_SECONDS)
        lock, under_way, peak = threading.Lock(), 0, 0

        def call(*_):
            nonlocal under_way, peak
            with lock:
                under_way += 1
                peak = max(peak, under_way)
            everybody.wait()
            with lock:
                under_way -= 1

        gather(range(9), call, 3, ValueError)
        self.assertEqual(peak, 3)


class Failing(unittest.TestCase):
    def setUp(self):
        self.begun, self.cancelled = [], []

    def call(self, index, _):
        self.begun.append(index)
        if index == 1:
            raise ValueError("no")
        return index

    def test_failures_are_collected(self):
        results = gather("abcd", self.call, 1, ValueError)
        self.assertEqual([result.value for result in results], [0, None, 2, 3])
        self.assertEqual([str(result.failure) for result in results if result.failure], ["no"])

    def test_the_first_failure_ends_the_whole(self):
        with self.assertRaises(EntryFailed) as failed:
            gather("abcd", self.call, 1, ValueError, lambda: self.cancelled.append(True))
        self.assertEqual((failed.exception.index, str(failed.exception)), (1, "entry 1: no"))
        self.assertEqual((self.begun, self.cancelled), ([0, 1], [True]))

    def test_what_is_cancelled_for_a_failure_is_not_taken_for_it(self):
        waiting, cancelled = threading.Event(), threading.Event()

        def call(index, _):
            if index == 0:
                waiting.set()
                self.assertTrue(cancelled.wait(PATIENCE_SECONDS))
                raise ValueError("cancelled")
            self.assertTrue(waiting.wait(PATIENCE_SECONDS))
            raise ValueError("no")

        with self.assertRaises(EntryFailed) as failed:
            gather("ab", call, 2, ValueError, cancelled.set)
        self.assertEqual(str(failed.exception), "entry 1: no")

    def test_what_is_no_failure_of_a_call_ends_everything(self):
        with self.assertRaises(ValueError):
            gather("abcd", self.call, 1, KeyError)
        self.assertEqual(self.begun, [0, 1])


class Names(unittest.TestCase):
    def test_each_entry_has_a_directory_of_its_own(self):
        incoming = Path("/io/handoff/incoming")
        files = {"a.png": incoming / "a-2.png", "pages/1.txt": incoming / "pages-2" / "1.txt"}
        self.assertEqual([(text, name) for text, _, name in places(7, files)], [
            ("a-2.png", "0007/a.png"),
            ("pages-2/1.txt", "0007/pages/1.txt"),
        ])  # fmt: skip

    def test_names_are_replaced_at_any_depth_and_only_whole(self):
        output = {"file": "a.png", "list": [{"of": "a.png"}, "b.png", "not a.png", 3, None], "a.png": True}
        self.assertEqual(
            renamed(output, {"a.png": "1/a.png"}),
            {"file": "1/a.png", "list": [{"of": "1/a.png"}, "b.png", "not a.png", 3, None], "a.png": True},
        )


if __name__ == "__main__":
    unittest.main()
