"""The format of a file, and its text, without libraries."""

import tempfile
import unittest
from pathlib import Path

from src.utils.documents import HTML_MARK, Unreadable, read, tidy


class Texts(unittest.TestCase):
    def read(self, content, name="letter.txt"):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / name
            path.write_bytes(content)
            return read(path, name)

    def test_comments_without_end_are_no_html_and_take_no_time(self):
        self.assertIsNone(HTML_MARK.match(b"<!-- a -->" * 10_000))
        self.assertIsNotNone(HTML_MARK.match(b"<!-- a -- b -->\n<!-- c --><html>"))

    def test_encodings(self):
        for content in [
            "Größe: 5 €".encode(),
            b"\xef\xbb\xbf" + "Größe: 5 €".encode(),
            "Größe: 5 €".encode("utf-16"),
            "Größe: 5 €".encode("windows-1252"),
        ]:
            document = self.read(content)
            self.assertEqual((document.text, document.is_pdf), ("Größe: 5 €", False), content)

    def test_a_text_about_pdf_is_a_text(self):
        for content in [b"Such files begin with %PDF-1.7.", b"See <html> and <!doctype html>."]:
            self.assertEqual(self.read(content).text, content.decode())

    def test_what_is_no_text_is_refused(self):
        for content in [b"PK\x03\x04\x14\x00\x06\x00", b"\x89PNG\r\n\x1a\n\x00\x00", b"\xff\xfea", b"\x81\x8d"]:
            with self.assertRaises(Unreadable) as refused:
                self.read(content, "letter.docx")
            self.assertEqual(refused.exception.code, "document_unreadable")
            self.assertEqual(str(refused.exception), "'letter.docx' has an unknown format; expected PDF, HTML or text")

    def test_an_empty_file_is_refused(self):
        for content in [b"", b" \n\n\t"]:
            with self.assertRaises(Unreadable) as refused:
                self.read(content)
            self.assertEqual(refused.exception.code, "document_without_text")

    def test_white_space_is_tidied(self):
        self.assertEqual(tidy("\n one  \r\n\n\n\n two\f three\n"), " one\n\n two\n three")


if __name__ == "__main__":
    unittest.main()
