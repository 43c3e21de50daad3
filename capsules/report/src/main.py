"""Sets a report as a PDF and has the picture for its cover drawn by `chart`.

How a section becomes type is in utils/story.py, the pages around it in utils/document.py.
"""

from src.utils.document import Report
from src.utils.story import story_of


def execute(inputs, ctx):
    """Sets `sections` under `title`, with a cover made from `table`."""
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
    ctx.log.info(f"set {document.name}: {report.page} pages")
    return {"document": document, "pages": report.page}
