"""The MCP server as a program, used through the client of the same library."""

import sys
import tempfile
import unittest
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from src.utils.documents import Document
from src.utils.passages import Library

CAPSULE = Path(sys.modules["src.utils.passages"].__file__).parents[2]
LIBRARY = Library.of([
    Document("minutes.pdf", ["The ferry runs until midnight.", "The crane of 1911."], True),
    Document("letter.txt", ["\n\n".join(f"Lamp {number}: {'light ' * 150}" for number in range(1, 31))], False),
])  # fmt: skip


class Server(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.library = Path(directory.name) / "library.json"
        LIBRARY.save(self.library)

    def client(self):
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "src.mcp_servers.documents"],
            env={"LIBRARY": str(self.library)},
            cwd=CAPSULE,
        )
        return Client(stdio_client(server))

    async def ask(self, client, tool, **arguments):
        """The answer of the tool, or its error as text."""
        result = await client.call_tool(tool, arguments)
        return result.content[0].text if result.is_error else result.structured_content["result"]

    async def test_documents_are_listed_searched_and_read(self):
        async with self.client() as client:
            tools = (await client.list_tools()).tools
            self.assertEqual(sorted(tool.name for tool in tools), ["list_documents", "read", "search"])

            minutes, letter = await self.ask(client, "list_documents")
            self.assertEqual(minutes, {
                "id": "minutes", "file": "minutes.pdf", "passages": 2, "characters": 48,
                "opening": "The ferry runs until midnight.",
            })  # fmt: skip
            self.assertEqual((letter["passages"], len(letter["opening"])), (30, 200))

            crane = {"id": "minutes:2", "page": 2, "text": "The crane of 1911."}
            self.assertEqual(await self.ask(client, "search", query="cranes"), [crane])
            self.assertEqual(len(await self.ask(client, "search", query="light")), 8)
            self.assertEqual(len(await self.ask(client, "search", query="light", limit=3)), 3)
            self.assertEqual(await self.ask(client, "search", query="light", document="minutes"), [])

            self.assertEqual(await self.ask(client, "read", passage="minutes:2", count=5), [crane])
            read = await self.ask(client, "read", passage="letter:7", count=2)
            self.assertEqual([(each["id"], each["page"], each["text"][:7]) for each in read], [
                ("letter:7", None, "Lamp 7:"), ("letter:8", None, "Lamp 8:"),
            ])  # fmt: skip

    async def test_mistakes_are_told_to_the_model(self):
        async with self.client() as client:
            for tool, arguments, words in [
                ("read", {"passage": "minutes:3"}, "unknown passage minutes:3; expected minutes:1 to minutes:2"),
                ("read", {"passage": "letters:1"}, "unknown document letters; expected one of minutes, letter"),
                ("search", {"query": "crane", "document": "x"}, "unknown document x"),
                ("search", {"query": "crane", "limit": 21}, "less than or equal to 20"),
            ]:
                self.assertIn(words, await self.ask(client, tool, **arguments))


if __name__ == "__main__":
    unittest.main()
