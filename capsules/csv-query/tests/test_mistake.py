"""Names of tables, and places of errors in a query; needs no library."""

import unittest

from src.utils.mistake import Mistake, of_query, place
from src.utils.naming import table_name, table_names


class Names(unittest.TestCase):
    def test_names_that_need_no_quotes(self):
        for file, name in [
            ("sales.csv", "sales"), ("data/Sales 2024-05.csv", "sales_2024_05"), ("2024.csv", "t_2024"),
            ("Größe.csv", "größe"), ("--.csv", "table"), ("a.b.csv", "a_b"),
        ]:  # fmt: skip
            self.assertEqual(table_name(file), name)

    def test_one_name_for_two_files_is_refused(self):
        self.assertEqual(table_names(["a.csv", "b.csv"]), {"a": "a.csv", "b": "b.csv"})
        with self.assertRaises(Mistake) as refused:
            table_names(["a.csv", "x/A.tsv"])
        self.assertEqual(refused.exception.code, "tables_unfit")
        self.assertIn("'a.csv' and 'x/A.tsv'", str(refused.exception))


class Places(unittest.TestCase):
    def test_lines_and_columns_count_from_one(self):
        sql = "select 'é',\n  nope\nfrom t"
        for position, expected in [(0, (1, 1)), (12, (1, 12)), (13, (2, 1)), (15, (2, 3)), (999, (3, 7))]:
            self.assertEqual(place(sql, position), expected, position)

    def test_an_error_with_a_position(self):
        error = 'Binder Error: {"exception_type": "Binder", "exception_message": "no nope", "position": "18"}'
        mistake = of_query(error, "select\nnope", 10)
        self.assertEqual((mistake.code, str(mistake)), ("sql_invalid", "line 2, column 2: no nope"))
        self.assertEqual(mistake.detail, {"kind": "Binder", "line": 2, "column": 2})

    def test_errors_without_one(self):
        for error, message in [
            ('Out of Range Error: {"exception_type": "Out of Range", "exception_message": "too large"}', "too large"),
            ("Interrupt Error: ended", "ended"),
            ("something else", "something else"),
        ]:
            mistake = of_query(error, "select 1", 10)
            self.assertEqual((str(mistake), "line" in mistake.detail), (message, False))


if __name__ == "__main__":
    unittest.main()
