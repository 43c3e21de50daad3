"""Problems of the citations of a report; needs no library."""

import tempfile
import unittest
from pathlib import Path

from aod import CapsuleError, ToolError

from src.utils.citations import cited, problems_of
from src.utils.desk import PROBLEMS_MAX, REPORTS_MAX, Desk
from src.utils.documents import Document
from src.utils.passages import Library

PAGES = [
    "The ferry runs until midnight, from 1 June to 31 August. It costs 41,000 euros – in all.",
    "The crane of 1911 can’t be re-\npaired for less than 260,000 euros: a “long-term” question.",
]
LIBRARY = Library.of([Document("minutes.pdf", PAGES, True), Document("letter.txt", ["No light after 22:00."], False)])


class Problems(unittest.TestCase):
    def holds(self, report):
        self.assertEqual(problems_of(report, LIBRARY), [], report)

    def fails(self, report, *words):
        problems = problems_of(report, LIBRARY)
        self.assertEqual(len(problems), 1, f"{report}\n{problems}")
        for word in words:
            self.assertIn(word, problems[0])

    def test_a_report_that_holds(self):
        self.holds(
            "# The ferry\n\nIt runs late in summer [minutes:1], without light [letter:1].\n\n## Money\n\n"
            "- 41,000 euros [minutes:1]\n- the crane:\n  260,000 euros [minutes:2]\n\n### Empty but for what is below\n\n"
            '#### Light\n\n> No light after 22:00. [letter:1]\n\n| a |\n|---|\n| "until midnight" [minutes:1] |\n'
        )

    def test_a_passage_that_is_not_there(self):
        self.fails("Late [minutes:3].", "line 1", "unknown passage [minutes:3]", "minutes:1 to minutes:2")
        self.fails("Late [minute:1].", "unknown passage [minute:1]", "the documents are minutes, letter")
        self.fails("Late [minutes:1].\n\nLater [letter:0].", "line 3", "letter:1 to letter:1")

    def test_what_is_nearly_a_citation(self):
        for nearly in [
            "[minutes:1, letter:1]",
            "[minutes:1; letter:1]",
            "[minutes:p. 2]",
            "[Minutes:1]",
            "[minutes: 1]",
        ]:
            self.fails(f"Late [minutes:1] {nearly}.", f"'{nearly}' is not a citation")
        self.holds("[A link: to it](https://example.com) and [note] and [x](y:1), late [minutes:1].")

    def test_each_section_has_one(self):
        self.fails("# A\n\nNothing.\n\n## B\n\nLate [minutes:1].", "line 3", "section 'A' has no citation")
        self.fails("Nothing.\n\n## B\n\nLate [minutes:1].", "line 1", "the text before the first heading")
        self.fails("## B\n\nLate [minutes:1].\n\n## B\n\nNothing.", "line 7", "section 'B'")
        self.fails("# Only a heading", "the report has no text")
        self.fails("", "the report has no text")
        self.fails("# A\n\n```\n[minutes:1]\n```\n\nNothing.", "section 'A' has no citation")

    def test_quotes_are_in_the_passages_that_are_cited(self):
        for quote in [
            '"until midnight"', "“runs until midnight, from 1 June”", "„The ferry runs“", "«41,000 euros»",
            '"The ferry … until midnight."', '"the ferry [...] 41,000 euros - in all"', '"It costs 41,000\neuros"',
            '"**until** midnight,"',
        ]:  # fmt: skip
            self.holds(f"It says {quote} [minutes:1].")
        self.holds('It "can\'t be repaired", a "long-term" or “longterm” matter [minutes:2].')
        self.holds('It "runs until midnight" and "no light" [minutes:1] [letter:1].')

    def test_quotes_that_are_not_there(self):
        self.fails('It says "until noon" [minutes:1].', 'line 1: "until noon" is not in [minutes:1]')
        self.fails('It says "no light" [minutes:1] [minutes:2].', "is not in [minutes:1], [minutes:2]")
        self.fails('It says "midnight … until" [minutes:1].', "is not in [minutes:1]")
        self.fails("> The ferry runs until noon. [minutes:1]", "is not in [minutes:1]")
        self.fails(f'It says "{"noon " * 99}" [minutes:1].', 'noon …" is not in')
        self.fails('Late [minutes:1].\n\nIt says "until midnight".', "line 3", "quoted without a citation")
        self.fails('Late [minutes:1].\n- It says "until midnight".', "line 2", "quoted without a citation")

    def test_all_problems_are_told_at_once(self):
        report = '# A\n\n"noon" [minutes:9] [x:1]\n\n## B\n\nNothing.'
        self.assertEqual(len(problems_of(report, LIBRARY)), 4)

    def test_what_is_cited(self):
        self.assertEqual(cited("# [letter:1]\n\n[minutes:2] [minutes:1]\n\n- [minutes:2]"), ["minutes:2", "minutes:1"])


class Reports(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.report = Path(directory.name) / "report.md"
        self.desk = Desk(LIBRARY, self.report)

    def test_a_report_that_holds_is_written_with_its_sources(self):
        self.assertEqual(self.desk.write_report("# A\n\nLate [minutes:1], dark [letter:1].\n\n"), "report.md")
        self.assertEqual(
            self.report.read_text(),
            "# A\n\nLate [minutes:1], dark [letter:1].\n\n## Sources\n\n"
            "- [minutes:1] minutes.pdf, page 1\n- [letter:1] letter.txt\n",
        )
        self.assertEqual(self.desk.citations[1], {
            "passage": "letter:1", "document": "letter.txt", "page": None, "text": "No light after 22:00.",
        })  # fmt: skip
        self.desk.write_report("# B\n\nDark [letter:1].")
        self.assertEqual(([each["passage"] for each in self.desk.citations]), ["letter:1"])

    def test_one_that_does_not_goes_back_and_in_the_end_fails_the_run(self):
        for _ in range(REPORTS_MAX - 1):
            with self.assertRaisesRegex(ToolError, r"rejected.*\n- line 1: unknown passage \[minutes:9\]"):
                self.desk.write_report("Late [minutes:9].")
        with self.assertRaises(CapsuleError) as failed:
            self.desk.write_report("Late [minutes:9].")
        self.assertEqual((failed.exception.code, self.report.exists()), ("citations_unsound", False))
        self.assertIn("unknown passage [minutes:9]", str(failed.exception))

    def test_so_many_problems_are_told_and_no_more(self):
        report = "\n\n".join(f"Late [minutes:{number}]." for number in range(100, 130))
        with self.assertRaises(ToolError) as refused:
            self.desk.write_report(report)
        lines = str(refused.exception).splitlines()
        self.assertEqual((len(lines), lines[-1]), (PROBLEMS_MAX + 2, "- and 10 more"))


if __name__ == "__main__":
    unittest.main()
