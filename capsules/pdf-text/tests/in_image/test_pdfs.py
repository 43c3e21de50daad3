"""Handmade PDFs with Poppler: text, pages, metadata, and invalid files."""

import unittest

from aod import CapsuleError
from aod.testing import CapsuleTestCase

from src import main


def pdf_of(pages, title=""):
    """A PDF with one line of text on each page, or a black square if there is no text."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        drawn = f"BT /F 24 Tf 72 720 Td ({text}) Tj ET" if text else "72 72 300 300 re f"
        objects += [
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F 3 0 R >> >> "
            f"/Contents {5 + 2 * number} 0 R >>",
            f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream",
        ]
    objects.append(f"<< /Title ({title}) /CreationDate (D:20240506070809Z) >>")
    written, places = "%PDF-1.7\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(written))
        written += f"{number} 0 obj\n{content}\nendobj\n"
    index = len(written)
    written += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n"
    written += "".join(f"{place:010} 00000 n \n" for place in places)
    written += (
        f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>\nstartxref\n{index}\n%%EOF\n"
    )
    return written.encode("latin-1")


class Pdfs(CapsuleTestCase):
    def execute(self, content, **inputs):
        (self.io / "input" / "a.pdf").write_bytes(content)
        return main.execute({"pdf": "a.pdf", "first_page": 1, "keep_layout": False, **inputs}, self.context)

    def text(self, name):
        return (self.io / "output" / name).read_text("utf-8").strip()

    def refused(self, code, content, **inputs):
        with self.assertRaises(CapsuleError) as refused:
            self.execute(content, **inputs)
        self.assertEqual(refused.exception.code, code)
        return str(refused.exception)

    def test_text_pages_and_metadata(self):
        answer = self.execute(pdf_of(["first page", "second page"], "A title"))
        self.assertEqual(answer["pages"], [
            {"number": 1, "text": self.io / "output/pages/0001.txt", "characters": 9},
            {"number": 2, "text": self.io / "output/pages/0002.txt", "characters": 10},
        ])  # fmt: skip
        self.assertEqual([self.text(page["text"]) for page in answer["pages"]], ["first page", "second page"])
        self.assertIn("first page", self.text(answer["text"]))
        self.assertEqual((answer["page_count"], answer["has_text"], answer["is_damaged"]), (2, True, False))
        self.assertEqual((answer["metadata"]["title"], answer["metadata"]["pdf_version"]), ("A title", "1.7"))
        self.assertTrue(answer["metadata"]["created"].startswith("2024-05-06T"), answer["metadata"])

    def test_some_pages(self):
        content = pdf_of([f"page {number}" for number in range(1, 6)])
        answer = self.execute(content, first_page=2, last_page=3, keep_layout=True)
        self.assertEqual([page["number"] for page in answer["pages"]], [2, 3])
        self.assertEqual(self.text("pages/0003.txt"), "page 3")
        self.assertIn("has 5 pages", self.refused("pages_unfit", content, first_page=6))

    def test_pictures_of_pages_have_no_text(self):
        answer = self.execute(pdf_of(["", ""]))
        self.assertEqual((answer["has_text"], answer["page_count"], len(answer["pages"])), (False, 2, 2))

    def test_what_can_be_read_of_a_damaged_file_is_read(self):
        answer = self.execute(pdf_of(["still here", "gone"]).replace(b"(gone) Tj", b"(gone) Tq"))
        self.assertEqual((answer["is_damaged"], self.text("pages/0001.txt")), (True, "still here"))
        self.assertEqual([page["characters"] for page in answer["pages"]], [9, 0])

    def test_what_cannot_be_read_is_refused(self):
        self.refused("pdf_unreadable", b"this is a letter, not a PDF")
        self.refused("pdf_unreadable", b"")
        self.refused("pdf_unreadable", pdf_of(["cut off"])[:-60])


if __name__ == "__main__":
    unittest.main()
