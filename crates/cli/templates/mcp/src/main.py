"""Has a model answer a question with the tools of an MCP server."""


def execute(inputs, ctx):
    """The prompts are in src/ai, the tools in tools.yaml; the answer fits schema.json, or the model was asked again."""
    return ctx.agent().run().output
