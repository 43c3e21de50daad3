"""Parsing the output of Poppler's programs."""

import unittest

from src.utils.poppler import VALUE_CHARACTERS_MAX, Facts, metadata, page_range, pages_of, refusal

PRINTED = """Title:           Report: part one
Author:          Ada
Creator:         \nCreationDate:    2024-05-06T07:08:09Z
Custom Metadata: no
Pages:           12
Page size:       595 x 842 pts (A4)
PDF version:     1.7
"""


class Printed(unittest.TestCase):
    def test_facts(self):
        facts = Facts.of(PRINTED)
        self.assertEqual(facts.pages, 12)
        self.assertEqual(metadata(facts), {
            "title": "Report: part one",
            "author": "Ada",
            "created": "2024-05-06T07:08:09Z",
            "page_size": "595 x 842 pts (A4)",
            "pdf_version": "1.7",
        })  # fmt: skip

    def test_a_title_does_not_change_the_number_of_pages(self):
        self.assertEqual(Facts.of("Title: x\nPages: 99999\n" + PRINTED).pages, 12)

    def test_a_title_may_be_a_whole_book(self):
        title = metadata(Facts.of(f"Title: {'x' * 100_000}\nPages: 1\n"))["title"]
        self.assertEqual(len(title), VALUE_CHARACTERS_MAX)


class Pages(unittest.TestCase):
    def test_ranges(self):
        for wanted, expected in [((1, None), (1, 12)), ((3, 5), (3, 5)), ((12, 99), (12, 12)), ((5, 5), (5, 5))]:
            self.assertEqual(page_range(12, *wanted, 20), expected)

    def test_what_is_no_range_says_why(self):
        for wanted, words in [
            ((13, None), "has 12 pages"),
            ((5, 4), "before first_page"),
            ((1, 12), "12 pages, 1 to 12; expected at most 11"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                page_range(12, *wanted, 11)

    def test_each_page_ends_with_a_form_feed(self):
        self.assertEqual(pages_of("one\n\f\ftwo\f", 3), ["one\n", "", "two"])
        self.assertEqual(pages_of("", 2), ["", ""])


class Refusals(unittest.TestCase):
    def test_what_is_wrong_with_a_file(self):
        code, message = refusal("a.pdf", "Command Line Error: Incorrect password\n")
        self.assertEqual((code, "password" in message), ("pdf_encrypted", True))
        code, message = refusal(
            "a.pdf", "Syntax Warning: May not be a PDF file\nSyntax Error: Couldn't read xref table\n"
        )
        self.assertEqual(code, "pdf_unreadable")
        self.assertIn("Couldn't read xref table", message)
        self.assertEqual(refusal("a.pdf", "")[0], "pdf_unreadable")


if __name__ == "__main__":
    unittest.main()
