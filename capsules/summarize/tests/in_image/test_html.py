"""The text of HTML, by Beautiful Soup."""

import unittest

from src.utils.documents import tidy
from src.utils.html_text import text_of_html

PAGE = b"""<!DOCTYPE html>
<html><head><title>The  price
of tea</title><style>p { color: red }</style></head>
<body><!-- not this -->
<h1>Tea in <b>2024</b></h1>
<p>One
   line<br>and another &amp; more.</p><div>A block<div>in a block</div></div>
<table><tr><th>Month</th><th>Price</th></tr><tr><td>May</td><td>4.20</td></tr></table>
<ol><li>first</li><li><p>second</p></li></ol>
<script>alert("not this")</script>
</body></html>"""

TEXT = """The price of tea

# Tea in 2024

One line
and another & more.

A block

in a block

Month\tPrice
May\t4.20

- first
- second"""


class Html(unittest.TestCase):
    def test_structure_is_kept_and_nothing_hidden_is_told(self):
        self.assertEqual(tidy(text_of_html(PAGE)), TEXT)

    def test_a_title_that_the_text_begins_with_is_not_repeated(self):
        html = b"<title>Tea</title><h1>Tea, green</h1><p>x"
        self.assertEqual(tidy(text_of_html(html)), "# Tea, green\n\nx")

    def test_the_declared_encoding_is_used(self):
        html = '<meta charset="iso-8859-2"><p>Łódź</p>'.encode("iso-8859-2")
        self.assertEqual(tidy(text_of_html(html)), "Łódź")

    def test_a_deep_page_is_read(self):
        self.assertEqual(tidy(text_of_html(b"<div>" * 5_000 + b"deep")), "deep")


if __name__ == "__main__":
    unittest.main()
