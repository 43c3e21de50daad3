"""Sorts texts with another capsule, and joins them."""


def execute(inputs, ctx):
    """Calls `sorter` for each text, one after the other, and joins the results."""
    lines = {}
    with ctx.output_file("all.txt").open("wb") as joined:
        for text in inputs["texts"]:
            answer = ctx.call("sorter", {"text": text}, files=[ctx.input_file(text)])
            lines[text] = answer.output["lines"]
            joined.write(ctx.incoming_file(answer.output["sorted"]).read_bytes())
            ctx.log.info(f"{text}: {lines[text]} lines")
    return {"lines": sum(lines.values()), "longest": max(lines, key=lines.get), "all": "all.txt"}
