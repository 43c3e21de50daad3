"""A typeset report: its pages, its bookmarks, and that no text is parsed as markup."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from aod import Context
from aod.handoff import Answer
from PIL import Image
from reportlab.platypus import Image as Picture

from src import main
from src.utils import story
from src.utils.style import TEXT_WIDTH, marked_up

AWKWARD = "<b>5 & 6 < 7</b> €µ²—… 日本 \\ (x) %s"


class Document(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.io = Path(directory.name)
        (self.io / "input").mkdir()
        patches = [mock.patch.dict("os.environ", {"AOD_IO": directory.name}), mock.patch.object(Context, "log")]
        for patch in [*patches, mock.patch.object(Context, "call", self.call)]:
            patch.start()
            self.addCleanup(patch.stop)
        self.context = Context()
        self.calls = []
        (self.io / "handoff" / "incoming").mkdir(parents=True)
        (self.io / "input" / "table.csv").write_text("a\n1\n")
        Image.new("RGB", (1654, 1260), "#0C1E33").save(self.io / "handoff" / "incoming" / "cover.png")
        for name, size in (("wide.png", (2000, 100)), ("high.png", (100, 2000))):
            Image.new("RGB", size, "#0C1E33").save(self.io / "input" / name)

    def call(self, target, arguments):
        self.calls.append((target, arguments))
        path = self.io / "handoff" / "incoming" / "cover.png"
        return Answer({"picture": "cover.png", "rows_drawn": 1, "rows_left_out": 0}, {"cover.png": path}, "run_1")

    def execute(self, sections, **inputs):
        inputs = {"title": AWKWARD, "subtitle": "", "numbers": [], "table": "table.csv", "sections": sections, **inputs}
        answer = main.execute(inputs, self.context)
        return answer, answer["document"].read_bytes()

    def test_the_cover_is_drawn_by_chart(self):
        self.execute([{"heading": "One"}], group="species")
        table = self.io / "input" / "table.csv"
        self.assertEqual(self.calls, [("chart", {"table": table, "kind": "cover", "group": "species"})])

    def test_cover_contents_and_a_chapter_are_three_pages(self):
        answer, content = self.execute(
            [{"heading": "One", "text": AWKWARD}], subtitle=AWKWARD, numbers=[{"value": "344", "label": "rows"}]
        )
        self.assertEqual((answer["pages"], content[:5]), (3, b"%PDF-"))

    def test_the_same_again_gives_the_same_bytes(self):
        sections = [{"heading": "One", "picture": "wide.png", "caption": "A"}, {"heading": "Two", "level": 2}]
        self.assertEqual(self.execute(sections)[1], self.execute(sections)[1])

    def test_long_tables_and_texts_go_over_pages(self):
        grid = [["Name", "Value", AWKWARD], *([f"row {index}", str(index), "words " * 40] for index in range(120))]
        answer, _ = self.execute(
            [{"heading": "Table", "grid": grid}, {"heading": "Text", "text": "\n\n".join(["word " * 300] * 20)}]
        )
        self.assertGreater(answer["pages"], 8)

    def test_headings_become_bookmarks(self):
        _, content = self.execute([{"heading": "In short"}, {"heading": "A part", "level": 2}])
        self.assertIn(b"/Title (In short)", content)
        self.assertIn(b"/Title (A part)", content)

    def test_pictures_of_any_shape_fit_between_the_margins(self):
        for name in ("wide.png", "high.png"):
            picture = next(each for each in story.figure(self.io / "input" / name, "A", 1) if isinstance(each, Picture))
            self.assertLessEqual(picture.drawWidth, TEXT_WIDTH + 0.01)
            self.assertLessEqual(picture.drawHeight, story.PICTURE_HEIGHT_MAX + 0.01)
        self.execute([{"heading": "High", "text": "word " * 80, "picture": "high.png", "caption": "word " * 60}])

    def test_markup_in_a_text_is_text(self):
        self.assertEqual(marked_up("<b>&"), "&lt;b&gt;&amp;")
        self.assertIn("<font name=", marked_up("↯"))


if __name__ == "__main__":
    unittest.main()
