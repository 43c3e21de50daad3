"""Lists the most frequent words of a text."""

import collections
import csv
import re


def execute(inputs, ctx):
    """Writes the `top` most frequent words of `text` to a table, the most frequent first."""
    text = ctx.input_file(inputs["text"]).read_text("utf-8")
    words = re.findall(r"\w+", text.lower())
    ctx.log.info(f"{len(words)} words")
    with ctx.output_file("words.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["word", "count"])
        table.writerows(collections.Counter(words).most_common(inputs["top"]))
    return {"words": len(words), "table": "words.csv"}
