"""Every kind of chart: its size, and that no words are cut or overlap."""

import random
import struct
import unittest

from aod import CapsuleError
from aod.testing import CapsuleTestCase

from src import main
from src.utils.rows import Rows

main.use_prepared_fonts()
from src.utils import drawings  # noqa: E402

LONG = [
    "Nordrhein-Westfalen und Niedersachsen",
    "Österreich <Süd>",
    "Schweiz (deutschsprachige Kantone)",
    "B",
    "$x_1$ & more",
]


def table_of(rows=300):
    """A difficult table: long names, special characters, gaps and outliers."""
    dice = random.Random(7)
    return {
        "a_mm": [f"{dice.gauss(40, 5):.1f}" for _ in range(rows)],
        "b_eur": [f"{dice.lognormvariate(9, 1.5):.2f}" for _ in range(rows)],
        "A column with a name that is far too long for any axis of any chart (kg)": [
            None if dice.random() < 0.1 else str(dice.randint(-50, 50)) for _ in range(rows)
        ],
        "region": [dice.choice(LONG) for _ in range(rows)],
        "product": [f"product number {dice.randint(1, 40)} of a long list" for _ in range(rows)],
        "flag": [dice.choice(["no", "yes"]) for _ in range(rows)],
    }


TABLE = table_of()
LONG_NAME = list(TABLE)[2]
CHARTS = [
    ("histogram", ["a_mm"], None), ("histogram", ["b_eur"], "region"), ("histogram", [LONG_NAME], "flag"),
    ("scatter", ["a_mm", "b_eur"], "region"), ("scatter", [LONG_NAME, "a_mm"], "product"), ("scatter", ["a_mm", LONG_NAME], None),
    ("bar", ["region"], "flag"), ("bar", ["product"], "region"), ("bar", ["flag"], None),
    ("box", ["b_eur", "region"], "flag"), ("box", ["a_mm", "product"], None), ("box", [LONG_NAME, "flag"], "product"),
    ("correlation", ["a_mm", "b_eur", LONG_NAME], None),
]  # fmt: skip


def extents(figure, texts):
    renderer = figure.canvas.get_renderer()
    return [
        (text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_visible() and text.get_text()
    ]


def shown_ticks(axis):
    """Excludes labels of ticks beyond the ends of an axis, which Matplotlib does not draw."""
    low, high = sorted(axis.get_view_interval())
    return [
        label for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels()) if low - 1e-9 <= place <= high + 1e-9
    ]


class Layout(unittest.TestCase):
    def check(self, kind, columns, group):
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        figure = getattr(drawings, kind)(
            Rows.of(TABLE, columns, group),
            "A title that is long enough to need more than a single line of the picture, at least here",
        )
        FigureCanvasAgg(figure).draw()
        axes = figure.axes[0]
        legend = axes.get_legend()
        labels = {
            "across": extents(figure, shown_ticks(axes.xaxis)),
            "up": extents(figure, shown_ticks(axes.yaxis)),
            "legend": extents(figure, legend.get_texts()) if legend else [],
        }
        named = extents(figure, [figure._suptitle, axes.xaxis.label, axes.yaxis.label])
        for name, box in [*named, *(pair for pairs in labels.values() for pair in pairs)]:
            inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1
            self.assertTrue(inside, f"'{name}' is cut off")
        for place, pairs in labels.items():
            for index, (name, box) in enumerate(pairs):
                for other, beside in pairs[index + 1 :]:
                    self.assertFalse(
                        box.shrunk(0.9, 0.9).overlaps(beside.shrunk(0.9, 0.9)), f"{place}: '{name}' lies upon '{other}'"
                    )
        if legend:
            self.assertGreaterEqual(legend.get_window_extent().y0, axes.bbox.y1 - 1, "the legend covers data")
        self.assertGreater(axes.bbox.height, figure.bbox.height * 0.3, "there is no room left for the data")

    def test_each_chart(self):
        for chart in CHARTS:
            with self.subTest(chart):
                self.check(*chart)


class Files(CapsuleTestCase):
    def setUp(self):
        super().setUp()
        lines = [",".join(f'"{name}"' for name in TABLE)]
        lines += [",".join(f'"{value or ""}"' for value in row) for row in zip(*TABLE.values())]
        (self.io / "input" / "table.csv").write_text("\n".join(lines))

    def execute(self, **inputs):
        return main.execute({"table": "table.csv", "columns": [], "title": "", **inputs}, self.context)

    def test_the_picture_has_the_promised_width_and_is_the_same_again(self):
        for kind, columns, width in [("histogram", ["a_mm"], 1440), ("cover", [], 1654)]:
            answer = self.execute(kind=kind, columns=columns, group="region")
            content = (self.io / "output" / answer["picture"]).read_bytes()
            self.assertEqual(content[:8], b"\x89PNG\r\n\x1a\n")
            self.assertEqual(struct.unpack(">I", content[16:20])[0], width)
            self.execute(kind=kind, columns=columns, group="region")
            self.assertEqual((self.io / "output" / answer["picture"]).read_bytes(), content)

    def test_rows_are_counted(self):
        missing = TABLE[LONG_NAME].count(None)
        answer = self.execute(kind="histogram", columns=[LONG_NAME])
        self.assertEqual((answer["rows_drawn"], answer["rows_left_out"]), (300 - missing, missing))

    def test_a_cover_of_a_table_without_numbers(self):
        (self.io / "input" / "table.csv").write_text("a,b\nx,u\ny,u\nx,v\ny,v\nx,u\ny,v\n")
        self.assertEqual(self.execute(kind="cover")["picture"], "cover.png")
        (self.io / "input" / "table.csv").write_text("remark\nfirst\nsecond\n")
        self.assertEqual(self.execute(kind="cover")["picture"], "cover.png")

    def test_what_cannot_be_drawn_is_refused_with_a_code(self):
        for inputs, code in [
            ({"kind": "histogram", "columns": ["nothing"]}, "column_unknown"),
            ({"kind": "histogram", "columns": ["a_mm"], "group": "nothing"}, "column_unknown"),
            ({"kind": "scatter", "columns": ["a_mm"]}, "columns_unfit"),
            ({"kind": "histogram"}, "columns_unfit"),
            ({"kind": "histogram", "columns": ["region"]}, "columns_unfit"),
            ({"kind": "correlation", "columns": ["a_mm", "flag"]}, "columns_unfit"),
        ]:
            with self.subTest(inputs), self.assertRaises(CapsuleError) as refused:
                self.execute(**inputs)
            self.assertEqual(refused.exception.code, code)
        (self.io / "input" / "table.csv").write_text("a,b\n1,\n,2\n")
        with self.assertRaises(CapsuleError) as refused:
            self.execute(kind="scatter", columns=["a", "b"])
        self.assertEqual(refused.exception.code, "nothing_to_draw")


if __name__ == "__main__":
    unittest.main()
