"""DuckDB in memory, isolated before an untrusted query runs: no files, no network, no extensions."""

import json
from decimal import Decimal

import duckdb

from src.utils.mistake import Mistake, of_query, problem_of

# Of the 2 GiB of the capsule; larger data goes to disk.
MEMORY = "1400MB"
THREADS = 2

OPTIONS = {"csv": "format csv, header", "json": "format json", "parquet": "format parquet"}

# Surrounds the query, which is a checked statement by then, so that its brackets cannot end the outer ones.
BEFORE, BEHIND = "CREATE TEMP TABLE result_of_the_query AS (\n", "\n)"


class Database:
    """A database for a `with` block; its rows can be saved as the single file `result`."""

    def __init__(self, result, scratch):
        self.result = result
        self.connection = duckdb.connect(":memory:", config={
            "memory_limit": MEMORY,
            "threads": THREADS,
            "temp_directory": str(scratch / "duckdb"),
            "python_enable_replacements": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "errors_as_json": True,
        })  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def load(self, table, path):
        """Reads the CSV file `path` as `table`; returns the number of its rows."""
        try:
            self.connection.execute(f"CREATE TABLE {quoted(table)} AS FROM read_csv(?)", [str(path)])
        except duckdb.Error as error:
            reason = problem_of(error)["exception_message"]
            raise Mistake("table_unreadable", f"'{path.name}' is not readable as CSV: {reason}") from error
        return self.one(f"SELECT count(*) FROM {quoted(table)}")

    def close_doors(self):
        """From now on only the file of the result is accessible, and this cannot be changed."""
        self.connection.execute(f"SET allowed_paths = [{literal(str(self.result))}]")
        self.connection.execute("SET enable_external_access = false")
        self.connection.execute("SET lock_configuration = true")

    def query(self, sql):
        """Stores the rows of `sql`; returns their columns and their number."""
        try:
            statement = self.only_query(sql)
            self.connection.execute(BEFORE + statement + BEHIND)
        except duckdb.Error as error:
            raise of_query(error, sql, len(BEFORE)) from error
        columns = self.connection.execute("DESCRIBE result_of_the_query").fetchall()
        rows = self.one("SELECT count(*) FROM result_of_the_query")
        return [{"name": name, "type": kind} for name, kind, *_ in columns], rows

    def only_query(self, sql):
        """`sql` without a final semicolon. Raises Mistake unless it is exactly one query."""
        try:
            statements = self.connection.extract_statements(sql)
        except duckdb.Error as error:
            raise of_query(error, sql, 0) from error
        kinds = [statement.type for statement in statements]
        if kinds != [duckdb.StatementType.SELECT]:
            found = ", ".join(kind.name for kind in kinds) or "nothing"
            raise Mistake("sql_unfit", f"found {found}; expected one query, such as SELECT … FROM …")
        return sql.rstrip().rstrip(";")

    def save(self, kind):
        """Writes all rows of the query as `kind`."""
        target = literal(str(self.result))
        self.connection.execute(f"COPY result_of_the_query TO {target} ({OPTIONS[kind]}, use_tmp_file false)")

    def first_rows(self, count):
        """The first rows as JSON; numbers that JSON lacks, or that 64 bits cannot hold, are texts."""
        select = "SELECT to_json(row) FROM result_of_the_query AS row LIMIT ?"
        rows = self.connection.execute(select, [count]).fetchall()
        exact = {"parse_int": exact_integer, "parse_float": exact_float, "parse_constant": str}
        return [json.loads(row, **exact) for (row,) in rows]

    def one(self, sql):
        return self.connection.execute(sql).fetchone()[0]


def exact_integer(digits):
    """The integer; the text itself if 64 bits cannot hold it."""
    return int(digits) if -(2**63) <= int(digits) < 2**64 else digits


def exact_float(digits):
    """The number; the text itself if a 64-bit number has other digits."""
    return float(digits) if Decimal(repr(float(digits))) == Decimal(digits) else digits


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def literal(text):
    return "'" + text.replace("'", "''") + "'"
