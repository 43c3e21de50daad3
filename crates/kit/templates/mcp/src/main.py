"""Asks a model to answer a question with the tools of an MCP server."""


def execute(inputs, ctx):
    """Runs the agent with the prompts in src/ai and the tools in tools.yaml, until its answer matches schema.json."""
    return ctx.agent().run().output
