"""Text into paragraphs, grids into columns; needs no library."""

import unittest

from src.utils.blocks import blocks_of, column_widths, is_numeric, squared


class Text(unittest.TestCase):
    def test_paragraphs_and_points(self):
        text = "One\n goes on\n\n\nTwo\n- first\n  goes on\n- second\n\nThree"
        self.assertEqual(blocks_of(text), [
            ("paragraph", "One goes on"), ("paragraph", "Two"),
            ("point", "first goes on"), ("point", "second"), ("paragraph", "Three"),
        ])  # fmt: skip

    def test_nothing(self):
        self.assertEqual(blocks_of(" \n\n"), [])


class Grids(unittest.TestCase):
    def test_short_rows_are_filled(self):
        self.assertEqual(squared([["a", "b"], ["c"]]), [["a", "b"], ["c", ""]])

    def test_numbers_are_known(self):
        self.assertTrue(is_numeric(["1,234", "−0.5", "78%", "190.0 ± 6.5", "–", ""]))
        self.assertFalse(is_numeric(["12 mm", "3"]))
        self.assertFalse(is_numeric(["", ""]))

    def test_room_that_is_left_is_shared_out(self):
        self.assertEqual(column_widths([10, 30], 80), [20, 60])

    def test_narrow_columns_keep_their_width(self):
        self.assertEqual(column_widths([10, 20, 500, 900], 230), [10, 20, 100, 100])
        self.assertEqual(column_widths([10, 110, 500], 300), [10, 110, 180])

    def test_the_widths_never_exceed_the_room(self):
        for natural in ([1000] * 12, [1, 1000], [99, 101], [5.5, 400, 3, 80, 80, 80]):
            widths = column_widths(natural, 200)
            self.assertLessEqual(sum(widths), 200 + 1e-6)
            self.assertGreater(min(widths), 0)


if __name__ == "__main__":
    unittest.main()
