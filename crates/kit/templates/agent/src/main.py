"""Asks a model for a title, a summary and the subjects of a text."""


def execute(inputs, ctx):
    """Runs the agent with the prompts in src/ai, until its answer matches schema.json."""
    text = ctx.input_file(inputs["text"]).read_text("utf-8")

    def occurrences(word: str) -> int:
        """Counts the occurrences of a word in the text."""
        return text.lower().count(word.lower())

    result = ctx.agent(tools=[occurrences]).run(inputs={**inputs, "content": text})
    ctx.log.info("summarized", characters=len(text), tokens=result.usage.input_tokens + result.usage.output_tokens)
    return result.output
