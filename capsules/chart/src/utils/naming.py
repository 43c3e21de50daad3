"""Turns column names into words: 'body_mass_g' is 'Body mass (g)'."""

import re

# Endings that are certainly units; a single 'm', 't' or 'a' is as often the name of a variant.
UNITS = {
    "mm": "mm", "cm": "cm", "km": "km", "mg": "mg", "g": "g", "kg": "kg",
    "ml": "ml", "l": "l", "ms": "ms", "s": "s", "min": "min", "h": "h",
    "kwh": "kWh", "kw": "kW", "mhz": "MHz", "ghz": "GHz", "hpa": "hPa", "mb": "MB", "gb": "GB",
    "eur": "EUR", "usd": "USD", "gbp": "GBP", "pct": "%", "percent": "%",
    "seconds": "s", "minutes": "min", "hours": "h", "days": "days", "celsius": "°C",
}  # fmt: skip


def parts_of(column):
    """The words and the unit ('' when there is none) of a column's name."""
    bracket = re.fullmatch(r"(.+?)\s*[(\[]([^()\[\]]{1,12})[)\]]", column.strip())
    if bracket:
        return words_of(bracket[1]), bracket[2]
    words, _, ending = words_of(column).rpartition(" ")
    if words and ending.lower() in UNITS:
        return words, UNITS[ending.lower()]
    return words_of(column), ""


def words_of(column):
    """'billLength', 'bill_length' and 'bill.length' are 'bill length'."""
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", column)
    return " ".join(re.split(r"[_.\s]+", split)).strip() or column


def label(column):
    """For an axis or a head of a table: 'Body mass (g)'."""
    words, unit = parts_of(column)
    words = words[0].upper() + words[1:]
    return f"{words} ({unit})" if unit else words


def phrase(column):
    """For the middle of a sentence: 'body mass'; keeps the column's capital letters."""
    return parts_of(column)[0]


def title_phrase(column):
    """For the beginning of a sentence: 'Body mass'."""
    words = phrase(column)
    return words[0].upper() + words[1:]


def unit(column):
    """The unit alone, '' when the name has none."""
    return parts_of(column)[1]


def slug(*words):
    """A plain file name from any words: lower case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")[:80] or "chart"
