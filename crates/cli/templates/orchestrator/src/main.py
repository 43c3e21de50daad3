"""Has texts put in order by another capsule and puts them together."""


def execute(inputs, ctx):
    """Hands each text to `sorter`, one after the other, and joins what comes back."""
    lines = {}
    with ctx.output_file("all.txt").open("wb") as joined:
        for text in inputs["texts"]:
            answer = ctx.call("sorter", {"text": text}, files=[ctx.input_file(text)])
            lines[text] = answer.output["lines"]
            joined.write(ctx.incoming_file(answer.output["sorted"]).read_bytes())
            ctx.log.info(f"{text}: {lines[text]} lines")
    return {"lines": sum(lines.values()), "longest": max(lines, key=lines.get), "all": "all.txt"}
