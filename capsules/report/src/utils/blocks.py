"""Splits the plain text of a section into paragraphs and points, and a grid into columns that fit.

Independent of PDF: callers measure the size of texts.
"""

import re

NUMERIC = re.compile(r"[+−-]?[\d.,]+\s?%?( ± [\d.,–]+)?|–")


def blocks_of(text):
    """[("paragraph" | "point", words)] of a text: an empty line ends a paragraph, '- ' begins a point."""
    blocks, open_kind = [], None
    for line in text.splitlines():
        words = line.strip()
        if not words:
            open_kind = None
        elif words.startswith("- "):
            blocks.append(("point", words[2:].strip()))
            open_kind = "point"
        elif open_kind:
            kind, before = blocks.pop()
            blocks.append((kind, f"{before} {words}"))
        else:
            blocks.append(("paragraph", words))
            open_kind = "paragraph"
    return blocks


def squared(grid):
    """The grid with all rows extended to the longest one with empty cells."""
    length = max(len(row) for row in grid)
    return [[*row, *[""] * (length - len(row))] for row in grid]


def is_numeric(cells):
    """Whether a column, without its head, is right-aligned."""
    filled = [cell for cell in cells if cell]
    return bool(filled) and all(NUMERIC.fullmatch(cell) for cell in filled)


def column_widths(natural, available):
    """Widths that fill `available`: narrow columns keep their natural width, wide ones share the rest.

    `natural` are the widths of the columns without line breaks, all above 0.
    """
    total = sum(natural)
    if total <= available:
        return [width * available / total for width in natural]
    limit = available / len(natural)
    # Each round fixes the width of a column, so there are at most as many rounds as columns.
    narrow = set()
    for _ in natural:
        fitting = {index for index, width in enumerate(natural) if width <= limit} - narrow
        if not fitting:
            break
        narrow |= fitting
        wide = len(natural) - len(narrow)
        limit = (available - sum(natural[index] for index in narrow)) / wide if wide else available
    return [width if index in narrow else limit for index, width in enumerate(natural)]
