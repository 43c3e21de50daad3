"""Draws one chart of a table.

Handles the payload and the files; utils/drawings.py and utils/cover.py draw the charts.
"""

import os
import shutil
import tempfile
from pathlib import Path

from aod import CapsuleError

from src.utils.naming import slug
from src.utils.rows import Rows
from src.utils.table import kind_of, read_table

# Created when the image was built; Matplotlib needs it in a writable directory.
FONT_CACHE = Path("/capsule/fontcache")

# The kinds of the columns of each chart, in their order.
COLUMNS_TAKEN = {
    "histogram": ["number"],
    "scatter": ["number", "number"],
    "bar": ["any"],
    "box": ["number", "any"],
}
MANY_NUMBERS = {"correlation": (2, 12), "cover": (0, 12)}


def execute(inputs, ctx):
    """Draws `kind` of `columns` of `table`, coloured by `group`, into a PNG file."""
    table = read_table(ctx.input_file(inputs["table"]))
    kind, group = inputs["kind"], inputs.get("group")
    columns = inputs["columns"] or default_columns(table, kind)
    check(table, kind, columns, group)
    rows = Rows.of(table, columns, group)
    if kind != "cover" and rows.drawn == 0:
        raise CapsuleError("nothing_to_draw", f"no row has a value in all of: {', '.join(columns)}")

    use_prepared_fonts()
    from src.utils import cover, drawings  # Matplotlib reads its settings on import.

    if kind == "cover":
        picture = "cover.png"
        figure = cover.cover([Rows.of(table, [name], group) for name in columns])
    else:
        picture = slug(kind, *columns[:3]) + ".png"
        figure = getattr(drawings, kind)(rows, inputs["title"])
    figure.savefig(ctx.output_file(picture), metadata={"Software": None})
    ctx.log.info(f"drew {picture}: {rows.drawn} rows, {rows.left_out} left out")
    return {"picture": picture, "rows_drawn": rows.drawn, "rows_left_out": rows.left_out}


def default_columns(table, kind):
    """A cover without columns shows the table's numbers, and if there are none its categories."""
    if kind != "cover":
        return []
    for wanted in ("number", "category"):
        found = [name for name, values in table.items() if kind_of(values) == wanted]
        if found:
            return found[: MANY_NUMBERS["cover"][1]]
    return []


def check(table, kind, columns, group):
    """Raises CapsuleError unless the columns exist, are as many as `kind` takes, and hold numbers where it needs them."""
    for name in [*columns, *([group] if group else [])]:
        if name not in table:
            raise CapsuleError("column_unknown", f"unknown column '{name}'; expected one of: {', '.join(table)}")
    taken = COLUMNS_TAKEN.get(kind)
    least, most = (len(taken), len(taken)) if taken else MANY_NUMBERS[kind]
    if not least <= len(columns) <= most:
        raise CapsuleError("columns_unfit", f"{len(columns)} columns for a {kind}; expected {least} to {most}")
    needed = taken or ["number" if kind == "correlation" else "any"] * len(columns)
    for name, need in zip(columns, needed):
        if need == "number" and not Rows.of(table, [name], None).is_numeric(0):
            raise CapsuleError("columns_unfit", f"column '{name}' is not numeric; expected numbers for a {kind}")


def use_prepared_fonts():
    """Gives Matplotlib a separate directory that contains the list of fonts."""
    directory = tempfile.mkdtemp(prefix="matplotlib-")
    if FONT_CACHE.is_dir():
        shutil.copytree(FONT_CACHE, directory, dirs_exist_ok=True)
    os.environ["MPLCONFIGDIR"] = directory
