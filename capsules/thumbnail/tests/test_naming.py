"""The names of thumbnails; needs no library."""

import unittest

from src.utils.naming import thumbnail_names


class Names(unittest.TestCase):
    def check(self, pictures, expected, sizes=(64,), kind="jpeg"):
        self.assertEqual(list(thumbnail_names(pictures, sizes, kind).values()), expected)

    def test_picture_size_and_format(self):
        self.check(["a.png", "b.tiff"], ["a-64.webp", "a-8.webp", "b-64.webp", "b-8.webp"], (64, 8), "webp")

    def test_no_name_is_given_twice(self):
        self.check(["a.png", "a.jpg", "x/a.png", "a-2.png"], ["a-64.jpg", "a-2-64.jpg", "a-3-64.jpg", "a-2-4-64.jpg"])

    def test_only_plain_signs_stay(self):
        self.check(
            ["holidays/Küste am Meer.JPG", ".hidden", "?.png"],
            ["Küste-am-Meer-64.jpg", "hidden-64.jpg", "picture-64.jpg"],
        )
        self.check(["x" * 250 + ".png"], ["x" * 80 + "-64.jpg"])


if __name__ == "__main__":
    unittest.main()
