"""Reads a CSV file into columns and determines their kinds.

Every value stays a text, or None if it is missing; `numbers` converts a column to numbers.
"""

import csv
import io
import math
import re
from collections import Counter
from datetime import datetime
from pathlib import Path

from aod import CapsuleError

# Everything is in memory, as text: two million cells are 250 MB, and a minute of work for the survey.
FILE_BYTES_MAX = 32 * 1024 * 1024
ROWS_MAX, COLUMNS_MAX, CELLS_MAX = 100_000, 200, 2_000_000

# The notations of missing values in R, pandas, spreadsheets and databases.
MISSING = {"", "na", "n/a", "nan", "null", "#n/a"}

# More different values make no readable axis or legend.
CATEGORIES_MAX = 30
WHOLE_NUMBER_CATEGORIES_MAX = 10
# Minimum rows for each value of a category; with fewer, the column is a number or a text.
ROWS_PER_CATEGORY_MIN = 5

DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


def read_table(path):
    """Reads the CSV file `path`; returns {column name: [text or None, ...]}, all of one length.

    Accepts UTF-8 (else Windows-1252) and the separators comma, semicolon, tab and bar; the first line names the
    columns. Raises CapsuleError for other content.
    """
    if not Path(path).is_file():
        raise CapsuleError("table_missing", f"missing file '{Path(path).name}'")
    if Path(path).stat().st_size > FILE_BYTES_MAX:
        raise CapsuleError("table_size_unfit", f"'{Path(path).name}' is larger than {FILE_BYTES_MAX >> 20} MiB")
    lines = csv.reader(io.StringIO(decode(Path(path).read_bytes()), newline=""), delimiter=separator_of(path))
    try:
        header, *rows = [line for line in lines if any(cell.strip() for cell in line)]
    except ValueError:
        raise CapsuleError("table_empty", f"'{Path(path).name}' is empty") from None
    except csv.Error as problem:
        raise CapsuleError("table_unreadable", f"'{Path(path).name}', line {lines.line_num}: {problem}") from problem
    names = unique_names(header)
    if not 1 <= len(rows) <= ROWS_MAX or len(names) > COLUMNS_MAX or len(rows) * len(names) > CELLS_MAX:
        raise CapsuleError(
            "table_size_unfit",
            f"{len(rows):,} rows and {len(names):,} columns; expected 1 to {ROWS_MAX:,} rows, "
            f"at most {COLUMNS_MAX} columns, and at most {CELLS_MAX:,} cells",
        )
    for number, row in enumerate(rows, start=1):
        if len(row) > len(names):
            raise CapsuleError("table_unreadable", f"row {number} has {len(row)} cells; expected at most {len(names)}")
    # Short rows are common at the end of a spreadsheet: their missing cells are missing values.
    return {
        name: [cleaned(row[index]) if index < len(row) else None for row in rows] for index, name in enumerate(names)
    }


def decode(content):
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def separator_of(path):
    """The most frequent of the known separators in the first line; a comma if there is none."""
    with open(path, "rb") as file:
        first = decode(file.readline())
    return max(",;\t|", key=first.count)


def unique_names(header):
    """Unique column names: an empty one becomes 'column 3', a repeated one 'name 2'."""
    names = []
    for position, cell in enumerate(header, start=1):
        name = wanted = cell.strip() or f"column {position}"
        count = 1
        while name in names:
            count += 1
            name = f"{wanted} {count}"
        names.append(name)
    return names


def cleaned(cell):
    text = cell.strip()
    return None if text.lower() in MISSING else text


def number(text):
    """The finite number in `text`, with a decimal point or comma; None for other texts."""
    if DECIMAL_COMMA.fullmatch(text):
        text = text.replace(",", ".")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def numbers(values):
    """The values as numbers; None for a missing or other value."""
    return [None if value is None else number(value) for value in values]


def is_date(text):
    try:
        datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return False
    return not text.isdigit()


def kind_of(values):
    """The kind of a column: 'number', 'category', 'date', 'identifier', 'text' or 'empty'.

    Whole numbers with few different values (a year, a grade) are categories; different whole numbers without gaps only
    count the rows, so they are identifiers.
    """
    present = [value for value in values if value is not None]
    counts = Counter(present)
    if not present:
        return "empty"
    parsed = numbers(present)
    if None not in parsed:
        whole = all(value.is_integer() for value in parsed)
        if whole and len(parsed) > 2 and all(b - a == 1 for a, b in zip(parsed, parsed[1:])):
            return "identifier"
        few = len(counts) <= WHOLE_NUMBER_CATEGORIES_MAX and len(present) >= ROWS_PER_CATEGORY_MIN * len(counts)
        return "category" if whole and few else "number"
    if all(is_date(value) for value in present):
        return "date"
    if len(counts) <= CATEGORIES_MAX and len(present) >= 2 * len(counts):
        return "category"
    return "identifier" if len(counts) == len(present) else "text"


def in_order(labels):
    """Labels in natural order: numbers by value, others alphabetically."""
    return sorted(set(labels), key=lambda label: (number(label) is None, number(label) or 0.0, label))
