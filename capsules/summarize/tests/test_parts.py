"""Long texts in parts, and summaries in groups."""

import unittest

from src.utils.parts import groups_of, parts_of


class Parts(unittest.TestCase):
    def test_a_short_text_is_one_part(self):
        self.assertEqual(parts_of("one\n\ntwo", 8), ["one\n\ntwo"])

    def test_the_best_place_to_cut_is_taken(self):
        for text, expected in [
            ("aaaa bbbb\n\ncc. dd\nee ff", ["aaaa bbbb", "cc. dd\nee ff"]),
            ("aaaa bbbb\ncc. ddee ff", ["aaaa bbbb", "cc. ddee ff"]),
            ("aaaa bbbb. cc ddee ff", ["aaaa bbbb.", "cc ddee ff"]),
            ("aaaa bbbb cccc dddd", ["aaaa bbbb", "cccc dddd"]),
            ("a" * 30, ["a" * 14, "a" * 14, "aa"]),
        ]:
            self.assertEqual(parts_of(text, 14), expected)

    def test_a_cut_far_before_the_end_is_not_taken(self):
        self.assertEqual(parts_of("a\n\nbbbb bbbb bbbb bbbb", 14), ["a\n\nbbbb bbbb", "bbbb bbbb"])

    def test_nothing_is_lost_or_too_long(self):
        text = "\n\n".join(
            " ".join(f"word{number}" for number in range(first, first + 40)) for first in range(0, 4000, 40)
        )
        parts = parts_of(text, 1000)
        self.assertEqual(" ".join(parts).split(), text.split())
        self.assertTrue(all(400 < len(part) <= 1000 for part in parts[:-1]), [len(part) for part in parts])


class Groups(unittest.TestCase):
    def groups(self, *sizes):
        summaries = [{"summary": "s" * (size - 1), "key_points": ["k"]} for size in sizes]
        groups = groups_of(summaries, 10)
        self.assertEqual([summary for group in groups for summary in group], summaries)
        return [len(group) for group in groups]

    def test_as_many_as_are_read_at_once(self):
        self.assertEqual(self.groups(4, 4, 2, 4, 4), [3, 2])

    def test_two_at_least_so_that_there_is_an_end(self):
        self.assertEqual(self.groups(20, 20, 20, 20, 20), [2, 2, 1])


if __name__ == "__main__":
    unittest.main()
