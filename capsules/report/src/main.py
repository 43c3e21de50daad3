"""Sets a report as a PDF and has the picture for its cover drawn by `chart`.

How a section becomes type is in utils/story.py, the pages around it in utils/document.py.
"""

from pathlib import Path

from src.utils.document import Report
from src.utils.handoff import INCOMING, hand_off, offer
from src.utils.story import story_of

INPUT = Path("/io/input")
OUTPUT = Path("/io/output")


def execute(inputs):
    """Sets `sections` under `title`, with a cover made from `table`."""
    table = offer(INPUT / inputs["table"])
    group = {"group": inputs["group"]} if "group" in inputs else {}
    cover = hand_off("chart", table=table, kind="cover", **group)

    document = "report.pdf"
    report = Report(
        OUTPUT / document,
        title=inputs["title"],
        subtitle=inputs.get("subtitle", ""),
        numbers=inputs.get("numbers", []),
        picture=INCOMING / cover["picture"],
    )
    report.multiBuild([*report.front(), *story_of(inputs["sections"], INPUT)])
    print(f"set {document}: {report.page} pages")
    return {"document": document, "pages": report.page}
