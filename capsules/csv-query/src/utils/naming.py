"""Table names from file names."""

import re
from pathlib import PurePath

from src.utils.mistake import Mistake


def table_names(files):
    """{name of the table: file}. Raises Mistake if two files have the same name."""
    names = {}
    for file in files:
        name = table_name(file)
        if name in names:
            raise Mistake("tables_unfit", f"'{names[name]}' and '{file}' are both the table {name}; rename one of them")
        names[name] = file
    return names


def table_name(file):
    """'data/Sales 2024.csv' is sales_2024, '2024.csv' is t_2024."""
    name = re.sub(r"\W+", "_", PurePath(file).stem.lower()).strip("_") or "table"
    return f"t_{name}" if name[0].isdigit() else name
