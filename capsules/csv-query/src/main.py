"""Runs a query over CSV files.

Handles payload and files; utils/database.py restricts DuckDB, and utils/mistake.py converts its errors.
"""

import json

from aod import CapsuleError

from src.utils.database import Database
from src.utils.mistake import Mistake
from src.utils.naming import table_names

# Maximum size of the rows in the answer itself, as JSON. The platform's limit for a whole answer is four times that.
FIRST_ROWS_BYTES_MAX = 64 * 1024


def execute(inputs, ctx):
    """Runs `sql` over `tables`; returns the file of its rows, their columns, and the first rows."""
    kind = inputs["format"]
    result = ctx.output_file(f"result.{kind}")
    try:
        names = table_names(inputs["tables"])
        with Database(result, scratch=ctx.workspace) as database:
            for table, name in names.items():
                rows = database.load(table, ctx.input_file(name))
                ctx.log.info(f"table {table}: {rows} rows")
            database.close_doors()
            columns, row_count = database.query(inputs["sql"])
            database.save(kind)
            first_rows = fitting(database.first_rows(inputs["first_rows"]))
    except Mistake as mistake:
        raise CapsuleError(mistake.code, str(mistake), detail=mistake.detail) from mistake
    ctx.log.info(f"the result has {row_count} rows")
    return {"result": result, "columns": columns, "row_count": row_count, "first_rows": first_rows}


def fitting(rows):
    """The first of `rows` that fit into the answer."""
    left, kept = FIRST_ROWS_BYTES_MAX, []
    for row in rows:
        left -= len(json.dumps(row, ensure_ascii=False).encode())
        if left < 0:
            break
        kept.append(row)
    return kept
