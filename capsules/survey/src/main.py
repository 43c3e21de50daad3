"""Describes a table without a model, with charts by `chart` and a document by `report`.

utils/profile.py analyses the table, utils/plan.py selects the charts, utils/chapters.py writes the text.
"""

import shutil
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

from src.utils.chapters import chapters
from src.utils.plan import plan
from src.utils.profile import Profile
from src.utils.table import read_table
from src.utils.wording import count_of, findings

# Concurrent charts, on any number of machines: more gain nothing.
CHARTS_AT_ONCE = 4


def execute(inputs, ctx):
    """Surveys `table`; returns the findings, the report and the charts."""
    table = ctx.input_file(inputs["table"])
    profile = Profile.of(read_table(table))
    ctx.log.info(f"read {table.name}: {count_of(profile.rows, 'row')}, {count_of(len(profile.table), 'column')}")

    drawings = plan(profile)
    charts = []
    with ThreadPoolExecutor(CHARTS_AT_ONCE) as hands:
        for chart in hands.map(lambda drawing: drawn(ctx, drawing, table), drawings):
            charts.append(chart)
            ctx.log.info(f"chart {len(charts)} of {len(drawings)}: {chart['picture'].name}")
    report = ctx.call("report", {
        "title": inputs.get("title") or f"Survey of {table.stem}"[:120],
        "subtitle": f"What {table.name} holds, in words, numbers and charts"[:200],
        "numbers": cover_numbers(profile),
        "table": table,
        "sections": chapters(profile, figures(drawings, charts)),
        **({"group": profile.group} if profile.group else {}),
    })  # fmt: skip
    ctx.log.info("the report is written")
    return {
        "summary": " ".join(findings(profile)),
        "report": keep(ctx.incoming_file(report.output["document"]), ctx.output_file("report.pdf")),
        "charts": [keep(chart["picture"], ctx.output_file(chart["picture"].name)) for chart in charts],
        "rows": profile.rows,
        "columns": len(profile.table),
    }


def drawn(ctx, drawing, table):
    """Lets `chart` draw one chart; returns its answer, with the path of the picture."""
    group = {"group": drawing.group} if drawing.group else {}
    arguments = {"table": table, "kind": drawing.kind, "columns": drawing.columns, "title": drawing.title, **group}
    chart = ctx.call("chart", arguments).output
    return {**chart, "picture": ctx.incoming_file(chart["picture"])}


def figures(drawings, charts):
    """The charts as sections of the report, by chapter."""
    sections = defaultdict(list)
    for drawing, chart in zip(drawings, charts):
        left_out = chart["rows_left_out"]
        caption = f"{drawing.heading}; {count_of(chart['rows_drawn'], 'row')}"
        caption += f", {left_out:,} left out for lack of a value." if left_out else "."
        sections[drawing.chapter].append({
            "heading": drawing.heading,
            "level": 2,
            "text": drawing.text,
            "picture": chart["picture"],
            "caption": caption,
        })  # fmt: skip
    return sections


def cover_numbers(profile):
    known = 1 - profile.missing / (profile.rows * len(profile.table))
    # Rounded down, so that a table with gaps is never called complete.
    filled = f"{int(known * 1000) / 10:.4g}%"
    return [
        {"value": f"{profile.rows:,}", "label": "rows" if profile.rows != 1 else "row"},
        {"value": f"{len(profile.table):,}", "label": "columns" if len(profile.table) != 1 else "column"},
        {"value": filled, "label": "of the values present"},
    ]


def keep(returned, path):
    """Copies a file from another capsule to the outputs; returns its path."""
    shutil.copyfile(returned, path)
    return path
