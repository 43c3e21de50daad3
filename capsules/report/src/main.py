"""Typesets a report as a PDF, with a cover picture by `chart`.

utils/story.py typesets sections, utils/document.py the pages around them.
"""

from src.utils.document import Report
from src.utils.story import story_of


def execute(inputs, ctx):
    """Typesets `sections` under `title`, with a cover from `table`."""
    group = {"group": inputs["group"]} if "group" in inputs else {}
    cover = ctx.call("chart", {"table": ctx.input_file(inputs["table"]), "kind": "cover", **group})

    document = ctx.output_file("report.pdf")
    report = Report(
        document,
        title=inputs["title"],
        subtitle=inputs["subtitle"],
        numbers=inputs["numbers"],
        picture=ctx.incoming_file(cover.output["picture"]),
    )
    report.multiBuild([*report.front(), *story_of(inputs["sections"], ctx.input_file)])
    ctx.log.info(f"wrote {document.name}: {report.page} pages")
    return {"document": document, "pages": report.page}
