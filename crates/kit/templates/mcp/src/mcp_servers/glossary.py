"""An MCP server with a glossary. The agent starts it with the command in tools.yaml."""

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

WORDS = {
    "attempt": "One execution of a run; a new attempt follows if the host dies.",
    "capsule": "A container that does one narrow task, once.",
    "lease": "The right to carry out a run, for as long as it is renewed.",
}

server = MCPServer("glossary")


@server.tool()
def words() -> list[str]:
    """Lists the words of the glossary."""
    return sorted(WORDS)


@server.tool()
def look_up(word: str) -> str:
    """Returns the meaning of a word of the glossary."""
    if word not in WORDS:
        raise ToolError(f"{word} is not in the glossary")
    return WORDS[word]


if __name__ == "__main__":
    server.run()
