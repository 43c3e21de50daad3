"""The rows of charts, and their arithmetic; needs no library."""

import unittest

from src.utils.rows import ALL, GROUPS_MAX, OTHER, Rows, bin_edges, correlation, quantile, trend


class Choosing(unittest.TestCase):
    TABLE = {"n": ["1", None, "3", "4"], "c": ["a", "b", None, "a"], "g": ["y", "x", "x", None]}

    def test_rows_with_gaps_are_left_out_and_counted(self):
        rows = Rows.of(self.TABLE, ["n", "c"], None)
        self.assertEqual((rows.values, rows.labels), ([["1", "4"], ["a", "a"]], [ALL, ALL]))
        self.assertEqual((rows.drawn, rows.left_out), (2, 2))

    def test_a_group_keeps_its_place_when_others_have_no_rows(self):
        rows = Rows.of(self.TABLE, ["n"], "g")
        self.assertEqual(rows.groups, ["x", "y"])
        self.assertEqual(rows.numbers(0, "x"), [3.0])
        self.assertEqual(Rows.of(self.TABLE, ["n", "c"], "g").groups_drawn(), [(1, "y")])

    def test_the_rarest_of_many_groups_become_one(self):
        table = {"g": [str(group) for group in range(12) for _ in range(12 - group)]}
        rows = Rows.of(table, ["g"], "g")
        self.assertEqual(rows.groups, ["0", "1", "2", "3", "4", "5", "6", OTHER])
        self.assertEqual((len(rows.groups), rows.labels.count(OTHER)), (GROUPS_MAX, 5 + 4 + 3 + 2 + 1))

    def test_words_are_no_numbers(self):
        self.assertFalse(Rows.of(self.TABLE, ["c"], None).is_numeric(0))
        self.assertTrue(Rows.of(self.TABLE, ["n"], None).is_numeric(0))


class Bins(unittest.TestCase):
    def check(self, groups, first, width, last):
        edges = bin_edges(groups)
        self.assertEqual((edges[0], edges[-1]), (first, last))
        for left, right in zip(edges, edges[1:]):
            self.assertAlmostEqual(right - left, width)

    def test_round_numbers(self):
        self.check([[index / 10 for index in range(100)]], 0.0, 2.0, 10.0)

    def test_whole_numbers_get_whole_bins(self):
        self.check([[1.0, 2.0, 2.0, 3.0, 3.0, 3.0]], 1.0, 1.0, 4.0)

    def test_one_value(self):
        self.check([[7.0, 7.0]], 6.5, 1.0, 7.5)

    def test_every_value_has_a_bin_even_far_out(self):
        for values in ([0.0] * 50 + [1e6], [-1e-6, 1e-6, 0.0], [1e9, 1e9 + 0.5]):
            edges = bin_edges([values])
            self.assertLessEqual(edges[0], min(values))
            self.assertGreater(edges[-1], max(values))
            self.assertLess(len(edges), 90)

    def test_the_groups_decide_not_their_distance(self):
        near = [0.01 * index for index in range(100)]
        self.assertGreater(len(bin_edges([near, [value + 5 for value in near]])), 20)


class Lines(unittest.TestCase):
    def test_trend(self):
        slope, offset, r = trend([1.0, 2.0, 3.0], [5.0, 3.0, 1.0])
        self.assertAlmostEqual(slope, -2.0)
        self.assertAlmostEqual(offset, 7.0)
        self.assertAlmostEqual(r, -1.0)

    def test_what_has_no_spread_has_no_line(self):
        self.assertIsNone(trend([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]))
        self.assertIsNone(correlation([1.0, 2.0], [1.0, 2.0]))

    def test_quantile(self):
        self.assertEqual(quantile([1.0, 2.0, 3.0, 4.0], 0.25), 1.75)


if __name__ == "__main__":
    unittest.main()
