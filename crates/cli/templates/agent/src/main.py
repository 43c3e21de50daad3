"""Has a model give a text a title, a summary and its subjects."""


def execute(inputs, ctx):
    """The prompts are in src/ai; the answer fits schema.json, or the model was asked again."""
    text = ctx.input_file(inputs["text"]).read_text("utf-8")

    def occurrences(word: str) -> int:
        """Tells how often a word occurs in the text."""
        return text.lower().count(word.lower())

    result = ctx.agent(tools=[occurrences]).run(inputs={**inputs, "content": text})
    ctx.log.info("summed up", characters=len(text), tokens=result.usage.input_tokens + result.usage.output_tokens)
    return result.output
