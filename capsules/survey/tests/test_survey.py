"""Findings, selected charts and texts, with doubles of the other capsules."""

import json
import tempfile
import unittest
from itertools import count
from pathlib import Path
from unittest import mock

from aod import Context
from aod.handoff import Answer

from src import main
from src.utils import chapters, plan, wording
from src.utils.naming import label, phrase, slug
from src.utils.profile import Profile
from src.utils.table import read_table

PENGUINS = Path(__file__).parents[1] / "example" / "penguins.csv"


class Penguins(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.profile = Profile.of(read_table(PENGUINS))

    def test_the_example_is_the_whole_table(self):
        self.assertEqual((self.profile.rows, len(self.profile.table)), (344, 8))
        self.assertEqual((self.profile.missing, self.profile.complete_rows), (19, 333))

    def test_kinds(self):
        numbers = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
        self.assertEqual(list(self.profile.numbers), numbers)
        self.assertEqual(self.profile.categories, ["species", "island", "sex", "year"])

    def test_species_is_the_group_and_sex_comes_second(self):
        self.assertEqual((self.profile.group, self.profile.companion), ("species", "island"))
        self.assertEqual(self.profile.second[:2], ("body_mass_g", "sex"))

    def test_the_paradox_is_found(self):
        turned = self.profile.reversal
        self.assertEqual((turned.across, turned.up), ("bill_depth_mm", "body_mass_g"))
        self.assertLess(turned.overall, 0)
        self.assertEqual(sorted(turned.in_groups), ["Adelie", "Chinstrap", "Gentoo"])
        self.assertGreater(min(turned.in_groups.values()), 0.5)

    def test_charts(self):
        chosen = [(drawing.kind, drawing.columns, drawing.group) for drawing in plan.plan(self.profile)]
        self.assertEqual(chosen, [
            ("bar", ["island"], "species"),
            ("histogram", ["flipper_length_mm"], "species"),
            ("histogram", ["bill_length_mm"], "species"),
            ("histogram", ["bill_depth_mm"], "species"),
            ("box", ["body_mass_g", "sex"], "species"),
            ("correlation", list(self.profile.numbers), None),
            ("scatter", ["flipper_length_mm", "body_mass_g"], "species"),
            ("scatter", ["bill_depth_mm", "body_mass_g"], "species"),
        ])  # fmt: skip

    def test_what_is_said(self):
        self.assertEqual(wording.findings(self.profile), [
            "344 rows and 8 columns: 4 of numbers and 4 of categories.",
            "19 of 2,752 values are missing (0.7%); 333 rows are complete.",
            "Species separates the rows best: it explains 78% of flipper length, 71% of bill length and 68% of bill depth (shares of variance).",
            "Within each species, sex explains 53% of what remains of body mass.",
            "Flipper length and body mass rise together: r = 0.87 over 342 rows.",
            "Over all rows body mass falls with bill depth (r = −0.47), but within every single species it rises (r = 0.58 to 0.72): "
            "the groups must be looked at one by one.",
        ])  # fmt: skip

    def test_the_groups_are_compared(self):
        chapter = next(c for c in chapters.chapters(self.profile, {}) if c["heading"] == "Groups: species")
        self.assertEqual(chapter["grid"][:2], [
            ["Mean ± deviation", "Adelie", "Chinstrap", "Gentoo", "Explained"],
            ["Flipper length (mm)", "190.0 ± 6.5", "195.8 ± 7.1", "217.2 ± 6.5", "78%"],
        ])  # fmt: skip


class OtherTables(unittest.TestCase):
    def check(self, table, kinds):
        """A table of any shape gives these charts, and chapters with a heading and regular grids."""
        profile = Profile.of(table)
        self.assertEqual([drawing.kind for drawing in plan.plan(profile)], kinds)
        for chapter in chapters.chapters(profile, {}):
            self.assertTrue(chapter["heading"])
            self.assertEqual(len({len(row) for row in chapter.get("grid", [])} | {0}), 2 if "grid" in chapter else 1)
        return profile

    def test_only_text(self):
        self.check({"remark": ["a", "b", "c", "c"]}, [])

    def test_one_empty_column(self):
        profile = self.check({"x": [None]}, [])
        self.assertEqual(wording.completeness(profile), "1 of 1 values is missing (100%); no row is complete.")

    def test_only_categories(self):
        self.check({"a": list("xyxyxy"), "b": list("uuvvuv")}, ["bar"])

    def test_only_numbers(self):
        self.check({"a": ["1.5", "2.5", "9.5"], "b": ["3.5", "1.5", "2.5"]}, ["histogram", "histogram"])

    def test_numbers_that_never_change(self):
        self.check({"a": ["1.5"] * 12, "b": ["2.5"] * 12}, ["histogram", "histogram"])

    def test_names_as_long_as_they_like_fit_what_the_others_take(self):
        names = [f"{letter} " + "long name " * 40 for letter in "abcd"]
        rise = [f"{index}.5" for index in range(60)]
        table = {names[0]: rise, names[1]: rise[::-1], names[2]: list("xyz") * 20, names[3]: list("uuuvvv") * 10}
        profile = Profile.of(table)
        drawings = plan.plan(profile)
        self.assertEqual(len(drawings), 4)
        self.assertLessEqual(max(len(drawing.title) for drawing in drawings), 200)
        self.assertLessEqual(max(len(drawing.heading) for drawing in drawings), 200)
        grids = [chapter["grid"] for chapter in chapters.chapters(profile, {}) if "grid" in chapter]
        self.assertLessEqual(max(len(cell) for grid in grids for row in grid for cell in row), 500)
        self.assertLessEqual(max(len(row) for grid in grids for row in grid), 12)

    def test_a_category_that_separates_nothing_is_not_praised(self):
        values = [f"{index}.5" for index in range(40)]
        profile = self.check({"n": values, "c": ["a", "b", "b", "a"] * 10}, ["bar", "histogram"])
        self.assertIn("No category separates the rows", wording.separation(profile))


class Words(unittest.TestCase):
    def test_names(self):
        for column, long, short in [
            ("body_mass_g", "Body mass (g)", "body mass"),
            ("Culmen Length (mm)", "Culmen Length (mm)", "Culmen Length"),
            ("flipperLength.mm", "Flipper Length (mm)", "flipper Length"),
            ("g", "G", "g"),
            ("model_t", "Model t", "model t"),
            ("share_pct", "Share (%)", "share"),
        ]:
            self.assertEqual((label(column), phrase(column)), (long, short), column)

    def test_numbers(self):
        self.assertEqual(
            [wording.percent(share) for share in (0, 0.0004, 0.0123, 0.5, 1)],
            ["0%", "less than 0.1%", "1.2%", "50%", "100%"],
        )
        self.assertEqual([wording.exact(value) for value in (2700.0, 12345.5, -0.25)], ["2700", "12,345.5", "−0.25"])
        self.assertEqual([wording.places_of(value) for value in (802.0, 14.06, 0.0123, 0.0, None)], [0, 1, 4, 2, 2])
        self.assertEqual(wording.signed(-0.001), "0.00")

    def test_lists(self):
        self.assertEqual(wording.listed(["a"]), "a")
        self.assertEqual(wording.listed("abcdef", 4), "a, b, c and 3 others")

    def test_a_file_name_out_of_anything(self):
        self.assertEqual(slug("bar", "../Größe (m²)"), "bar-gr-e-m")


class Work(unittest.TestCase):
    """`execute` with doubles of both callees: their calls and files."""

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
        (self.io / "handoff" / "incoming").mkdir(parents=True)
        (self.io / "input" / "penguins.csv").write_bytes(PENGUINS.read_bytes())
        self.calls = []
        self.numbers = count(1)

    def call(self, target, arguments):
        self.calls.append((target, arguments))
        self.assertTrue(arguments["table"].is_file())
        # Any name is possible: the orchestrator renames files whose names are taken.
        name = f"{target}-{next(self.numbers)}.bin"
        path = self.io / "handoff" / "incoming" / name
        path.write_text(target)
        if target == "report":
            for section in arguments["sections"]:
                self.assertTrue("picture" not in section or section["picture"].is_file())
            return Answer({"document": name, "pages": 8}, {"report.pdf": path}, "run_1")
        return Answer({"picture": name, "rows_drawn": 342, "rows_left_out": 2}, {"chart.png": path}, "run_1")

    def test_the_charts_are_drawn_and_the_report_is_set_last(self):
        answer = main.execute({"table": "penguins.csv", "title": "Palmer penguins"}, self.context)
        self.assertEqual([target for target, _ in self.calls], ["chart"] * 8 + ["report"])
        self.assertEqual(
            (answer["rows"], answer["columns"], answer["report"]), (344, 8, self.io / "output" / "report.pdf")
        )
        self.assertEqual(len(set(answer["charts"])), 8)
        for path in [answer["report"], *answer["charts"]]:
            self.assertTrue(path.is_file(), path)

    def test_the_report_is_asked_for_what_its_payload_limit_allows(self):
        main.execute({"table": "penguins.csv"}, self.context)
        _, arguments = self.calls[-1]
        self.assertEqual((arguments["title"], arguments["group"]), ("Survey of penguins", "species"))
        self.assertEqual([number["value"] for number in arguments["numbers"]], ["344", "8", "99.3%"])
        self.assertLess(len(json.dumps(arguments, default=str)), 64 * 1024)
        captions = [section["caption"] for section in arguments["sections"] if "picture" in section]
        self.assertEqual(captions[0], "Island by species; 342 rows, 2 left out for lack of a value.")


if __name__ == "__main__":
    unittest.main()
