"""Statistics, compared with values computed by hand, or by NumPy on the penguins."""

import unittest
from pathlib import Path

from src.utils import measures
from src.utils.table import numbers, read_table

PENGUINS = Path(__file__).parents[1] / "example" / "penguins.csv"


class ByHand(unittest.TestCase):
    def test_summary(self):
        found = measures.summarize([4.0, 1.0, 3.0, 2.0])
        self.assertEqual((found.count, found.mean, found.minimum, found.maximum), (4, 2.5, 1.0, 4.0))
        self.assertEqual((found.lower_quartile, found.median, found.upper_quartile), (1.75, 2.5, 3.25))
        self.assertAlmostEqual(found.deviation, 1.2909944487)

    def test_one_value_has_no_deviation(self):
        self.assertIsNone(measures.summarize([7.0]).deviation)

    def test_correlation_leaves_out_rows_with_gaps(self):
        self.assertAlmostEqual(measures.correlation([1, 2, None, 3], [2, 4, 99, 6]), 1.0)
        self.assertIsNone(measures.correlation([1, 1, 1], [1, 2, 3]))
        self.assertIsNone(measures.correlation([1, None, 3], [1, 2, 3]))

    def test_explained(self):
        self.assertEqual(measures.explained([1, 1, 5, 5], ["a", "a", "b", "b"]), 1.0)
        self.assertEqual(measures.explained([1, 5, 1, 5], ["a", "a", "b", "b"]), 0.0)
        self.assertIsNone(measures.explained([2, 2, 2, 2], ["a", "a", "b", "b"]))
        self.assertIsNone(measures.explained([1, 2, 3], ["a", "a", "a"]))

    def test_association(self):
        self.assertAlmostEqual(measures.association(list("aabb"), list("xxyy")), 1.0)
        self.assertAlmostEqual(measures.association(list("abab"), list("xxyy")), 0.0)
        self.assertIsNone(measures.association(list("aaaa"), list("xxyy")))

    def test_residuals_keep_gaps(self):
        self.assertEqual(measures.residuals([1, 3, None, 9], ["a", "a", "a", None]), [-1.0, 1.0, None, None])


class Penguins(unittest.TestCase):
    def setUp(self):
        self.table = read_table(PENGUINS)

    def test_means_and_deviations(self):
        for name, mean, deviation in [
            ("bill_length_mm", 43.92193, 5.459584),
            ("bill_depth_mm", 17.15117, 1.974793),
            ("flipper_length_mm", 200.9152, 14.06171),
            ("body_mass_g", 4201.754, 801.9545),
        ]:
            found = measures.summarize([value for value in numbers(self.table[name]) if value is not None])
            self.assertEqual(found.count, 342)
            self.assertAlmostEqual(found.mean, mean, delta=mean * 1e-6)
            self.assertAlmostEqual(found.deviation, deviation, delta=deviation * 1e-6)

    def test_correlation(self):
        r = measures.correlation(numbers(self.table["flipper_length_mm"]), numbers(self.table["body_mass_g"]))
        self.assertAlmostEqual(r, 0.8712018, places=6)
        r = measures.correlation(numbers(self.table["bill_length_mm"]), numbers(self.table["bill_depth_mm"]))
        self.assertAlmostEqual(r, -0.2350529, places=6)


if __name__ == "__main__":
    unittest.main()
