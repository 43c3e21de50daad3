"""Reading: separators, missing values, kinds of columns."""

import tempfile
import unittest
from pathlib import Path

from aod import CapsuleError

from src.utils.table import in_order, kind_of, number, read_table


def table_of(content):
    """The table of a file with this content (text or bytes)."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "table.csv")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_table(path)


class Reading(unittest.TestCase):
    def test_missing_values_are_none_and_all_else_stays_text(self):
        self.assertEqual(
            table_of("a,b\n1, x \nNA,\nnull,n/a\n007,None\n"),
            {"a": ["1", None, None, "007"], "b": ["x", None, None, "None"]},
        )

    def test_separators_byte_order_mark_and_quotes(self):
        for separator in ",;\t|":
            content = f'\ufeffname{separator}"a{separator}b"\r\nx{separator}"two\nlines"\r\n'
            self.assertEqual(table_of(content), {"name": ["x"], f"a{separator}b": ["two\nlines"]}, separator)

    def test_windows_letters(self):
        self.assertEqual(table_of("Straße\nKöln\n".encode("cp1252")), {"Straße": ["Köln"]})

    def test_names_are_made_unique_and_short_rows_filled(self):
        self.assertEqual(table_of("a,,a\n1\n"), {"a": ["1"], "column 2": [None], "a 2": [None]})

    def test_what_is_no_table_is_refused_with_a_code(self):
        for content, code in [
            ("", "table_empty"),
            ("a,b\n", "table_size_unfit"),
            ("a\n1,2\n", "table_unreadable"),
            (",".join(f"c{i}" for i in range(201)) + "\n1\n", "table_size_unfit"),
        ]:
            with self.subTest(content[:20]), self.assertRaises(CapsuleError) as refused:
                table_of(content)
            self.assertEqual(refused.exception.code, code)

    def test_a_file_that_is_not_there(self):
        with self.assertRaises(CapsuleError) as refused:
            read_table("/nowhere/penguins.csv")
        self.assertEqual(
            (refused.exception.code, str(refused.exception)), ("table_missing", "missing file 'penguins.csv'")
        )


class Kinds(unittest.TestCase):
    def test_each_kind(self):
        for values, kind in [
            (["1.5", "2.5", None, "1e3"], "number"),
            (["2007", "2008"] * 5, "category"),
            (["2007", "2008"] * 4, "number"),
            (["1", "2", "3", "4"], "identifier"),
            (["Biscoe", "Dream", "Biscoe", "Dream"], "category"),
            (["2024-01-31", None, "2024-02-01T12:00:00Z"], "date"),
            (["20240131", "20240305"], "number"),
            (["N1A1", "N1A2", "N2A1"], "identifier"),
            (["good", "good", "bad", "ugly", "fine", "well"], "text"),
            ([None, None], "empty"),
        ]:
            self.assertEqual(kind_of(values), kind, values)

    def test_numbers(self):
        for text, value in [
            ("3,5", 3.5),
            ("-1.25", -1.25),
            ("1,234,567", None),
            ("inf", None),
            ("nan", None),
            ("12 mm", None),
        ]:
            self.assertEqual(number(text), value, text)

    def test_labels_in_order(self):
        self.assertEqual(in_order(["10", "9", "b", "a", "9"]), ["9", "10", "a", "b"])


if __name__ == "__main__":
    unittest.main()
