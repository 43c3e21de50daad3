"""An MCP server for the documents of a run: lists them, searches them, reads their passages. Speaks over stdio.

LIBRARY is the file that `execute` has saved. Its tools answer with ids that a report can cite.
"""

import os
from functools import cache
from pathlib import Path
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from src.utils.passages import Library
from src.utils.search import Index

# Most passages of one answer: some 6,000 tokens.
PASSAGES_MAX = 20
# A document begins with its title, more often than not.
OPENING_CHARACTERS = 200


class FoundDocument(BaseModel):
    id: str
    file: str
    passages: Annotated[int, Field(description="Their ids are id:1 to id:passages.")]
    characters: int
    opening: Annotated[str, Field(description="How the document begins.")]


class FoundPassage(BaseModel):
    id: Annotated[str, Field(description="To be cited as [id].")]
    page: Annotated[int | None, Field(description="Of a PDF.")]
    text: str


def server_of(library):
    """The MCP server for `library`."""
    server = MCPServer("documents", instructions="Search first, then read around what was found, then cite.")

    @cache
    def index():
        """Made with the first search: many documents take longer than a server may take to start."""
        return Index(library.passages.values())

    @server.tool()
    def list_documents() -> list[FoundDocument]:
        """Lists all documents: their ids, files, number of passages and characters, and how they begin."""
        return [described(source) for source in library.sources.values()]

    @server.tool()
    def search(
        query: Annotated[str, Field(description="Words to look for; spelling counts, meaning does not.")],
        document: Annotated[str | None, Field(description="Only in the document of this id.")] = None,
        limit: Annotated[int, Field(ge=1, le=PASSAGES_MAX)] = 8,
    ) -> list[FoundPassage]:
        """Finds the passages that have the words of a query, the best first."""
        if document is None:
            return shown(index().search(query, limit))
        return shown(Index(known(document).passages).search(query, limit))

    @server.tool()
    def read(
        passage: Annotated[str, Field(description="The id of the first passage to read, such as doc:3.")],
        count: Annotated[int, Field(ge=1, le=PASSAGES_MAX, description="How many passages, from there on.")] = 1,
    ) -> list[FoundPassage]:
        """Reads a passage, and those behind it."""
        passages = known(passage.partition(":")[0]).passages
        ids = [each.id for each in passages]
        if passage not in ids:
            raise ToolError(f"there is no passage {passage}; expected {ids[0]} to {ids[-1]}")
        begin = ids.index(passage)
        return shown(passages[begin : begin + count])

    def known(document):
        if document not in library.sources:
            raise ToolError(f"there is no document {document}; expected one of {', '.join(library.sources)}")
        return library.sources[document]

    return server


def described(source):
    characters = sum(len(passage.text) for passage in source.passages)
    opening = source.passages[0].text[:OPENING_CHARACTERS]
    return FoundDocument(
        id=source.id, file=source.file, passages=len(source.passages), characters=characters, opening=opening
    )


def shown(passages):
    return [FoundPassage(id=passage.id, page=passage.page, text=passage.text) for passage in passages]


if __name__ == "__main__":
    server_of(Library.load(Path(os.environ["LIBRARY"]))).run("stdio")
