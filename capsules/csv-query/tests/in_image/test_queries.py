"""Queries by DuckDB: results in each format, errors with their places, and the isolation."""

import json
import unittest

import duckdb
from aod import CapsuleError
from aod.testing import CapsuleTestCase

from src import main


class Queries(CapsuleTestCase):
    def setUp(self):
        super().setUp()
        (self.io / "input" / "cities.csv").write_text(
            "city,country,people\nLille,FR,236000\nGent,BE,265000\nLyon,FR,522000\n"
        )
        (self.io / "input" / "Countries 2024.csv").write_text("code;name\nFR;France\nBE;Belgium\n")

    def execute(self, sql, *tables, **inputs):
        inputs = {"tables": list(tables or ["cities.csv"]), "sql": sql, "format": "csv", "first_rows": 20, **inputs}
        return main.execute(inputs, self.context)

    def refused(self, code, sql, *tables):
        with self.assertRaises(CapsuleError) as refused:
            self.execute(sql, *tables)
        self.assertEqual(refused.exception.code, code, str(refused.exception))
        return refused.exception

    def result(self, answer):
        return answer["result"].read_text()

    def test_tables_are_joined(self):
        sql = "SELECT name, sum(people) AS people FROM cities JOIN countries_2024 ON code = country GROUP BY ALL ORDER BY 2 DESC;"
        answer = self.execute(sql, "cities.csv", "Countries 2024.csv")
        self.assertEqual(
            answer["first_rows"], [{"name": "France", "people": 758000}, {"name": "Belgium", "people": 265000}]
        )
        self.assertEqual(
            answer["columns"], [{"name": "name", "type": "VARCHAR"}, {"name": "people", "type": "HUGEINT"}]
        )
        self.assertEqual(answer["row_count"], 2)
        self.assertEqual(self.result(answer), "name,people\nFrance,758000\nBelgium,265000\n")

    def test_every_format(self):
        sql = "FROM cities WHERE country = 'BE' -- one row"
        self.assertEqual(
            json.loads(self.result(self.execute(sql, format="json"))),
            {"city": "Gent", "country": "BE", "people": 265000},
        )
        answer = self.execute(sql, format="parquet")
        self.assertEqual(duckdb.sql(f"FROM '{answer['result']}'").fetchall(), [("Gent", "BE", 265000)])

    def test_the_first_rows_are_few_and_the_file_has_all(self):
        answer = self.execute("SELECT i FROM range(5000) t(i)", first_rows=3)
        self.assertEqual((answer["first_rows"], answer["row_count"]), ([{"i": 0}, {"i": 1}, {"i": 2}], 5000))
        self.assertEqual(self.result(answer).count("\n"), 5001)
        answer = self.execute("SELECT repeat('x', 30000) AS long FROM range(9)")
        self.assertEqual((len(answer["first_rows"]), answer["row_count"]), (2, 9))

    def test_what_json_has_no_sign_for(self):
        sql = "SELECT 'nan'::DOUBLE AS n, 1/0 AS i, DATE '2024-05-06' AS d, 1.5::DECIMAL(4,2) AS c, NULL AS x, [1, 2] AS l"
        row = self.execute(sql)["first_rows"][0]
        self.assertEqual(row, {"n": "NaN", "i": "Infinity", "d": "2024-05-06", "c": 1.5, "x": None, "l": [1, 2]})
        json.dumps(row, allow_nan=False)

    def test_mistakes_say_where_they_are(self):
        for sql, line, column, words in [
            ("SELECT *\nFORM cities", 2, 6, "syntax error"),
            ("SELECT 'é' AS e,\n  nope FROM cities", 2, 3, "nope"),
            ("SELECT * FROM towns", 1, 15, "towns"),
            ("SELECT city::INTEGER FROM cities", 1, 12, "Lille"),
        ]:
            with self.subTest(sql):
                error = self.refused("sql_invalid", sql)
                self.assertIn(words, str(error))
                self.assertEqual((error.detail["line"], error.detail["column"]), (line, column), str(error))

    def test_only_one_query_is_taken(self):
        for sql in [
            "",
            "SELECT 1; SELECT 2",
            "CREATE TABLE x AS SELECT 1",
            "COPY cities TO '/tmp/x'",
            "SET threads = 9",
            "INSTALL httpfs",
        ]:
            with self.subTest(sql):
                self.refused("sql_unfit", sql)
        self.refused("sql_invalid", "SELECT 1) TO '/tmp/x'; --")

    def test_no_door_is_open(self):
        (self.io / "input" / "secret.csv").write_text("secret\n42\n")
        for source in [
            f"'{self.io}/input/secret.csv'", f"read_csv('{self.io}/input/secret.csv')", "read_text('/etc/passwd')",
            "glob('/*')", "'http://127.0.0.1:9/x.csv'", "read_parquet('s3://a/b')", "self", "sql",
        ]:  # fmt: skip
            with self.subTest(source):
                self.refused("sql_invalid", f"FROM {source}")
        self.assertEqual(list((self.io / "output").iterdir()), [])

    def test_a_table_that_is_none_is_named(self):
        (self.io / "input" / "bad.csv").write_text("x\n" + "1\n" * 30_000 + "one\n")
        error = self.refused("table_unreadable", "SELECT 1", "cities.csv", "bad.csv")
        self.assertIn("'bad.csv'", str(error))
        self.assertIn("30002", str(error))
        self.refused("tables_unfit", "SELECT 1", "cities.csv", "Cities.csv")


if __name__ == "__main__":
    unittest.main()
