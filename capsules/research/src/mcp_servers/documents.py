"""An MCP server for the documents of a run: lists them, searches them, reads their passages. Speaks over stdio.

LIBRARY is the file written by `execute`. Its tools return ids that a report can cite.
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

# Maximum passages of an answer: about 6,000 tokens.
PASSAGES_MAX = 20
# Most documents begin with their title.
OPENING_CHARACTERS = 200


class FoundDocument(BaseModel):
    id: str
    file: str
    passages: Annotated[int, Field(description="The passages have the ids id:1 to id:passages.")]
    characters: int
    opening: Annotated[str, Field(description="The beginning of the document.")]


class FoundPassage(BaseModel):
    id: Annotated[str, Field(description="Cite it as [id].")]
    page: Annotated[int | None, Field(description="Page number, for a PDF.")]
    text: str


def server_of(library):
    """The MCP server for `library`."""
    server = MCPServer("documents", instructions="Search first, then read around the found passages, then cite.")

    @cache
    def index():
        """Created by the first search: for many documents it takes longer than the start of a server may."""
        return Index(library.passages.values())

    @server.tool()
    def list_documents() -> list[FoundDocument]:
        """Lists all documents: ids, files, numbers of passages and characters, and beginnings."""
        return [described(source) for source in library.sources.values()]

    @server.tool()
    def search(
        query: Annotated[str, Field(description="Words to search for; matches spelling, not meaning.")],
        document: Annotated[str | None, Field(description="Search only the document with this id.")] = None,
        limit: Annotated[int, Field(ge=1, le=PASSAGES_MAX)] = 8,
    ) -> list[FoundPassage]:
        """Finds the passages with the words of a query, best first."""
        if document is None:
            return shown(index().search(query, limit))
        return shown(Index(known(document).passages).search(query, limit))

    @server.tool()
    def read(
        passage: Annotated[str, Field(description="The id of the first passage to read, such as doc:3.")],
        count: Annotated[int, Field(ge=1, le=PASSAGES_MAX, description="Number of passages, from there on.")] = 1,
    ) -> list[FoundPassage]:
        """Reads a passage, and those after it."""
        passages = known(passage.partition(":")[0]).passages
        ids = [each.id for each in passages]
        if passage not in ids:
            raise ToolError(f"unknown passage {passage}; expected {ids[0]} to {ids[-1]}")
        begin = ids.index(passage)
        return shown(passages[begin : begin + count])

    def known(document):
        if document not in library.sources:
            raise ToolError(f"unknown document {document}; expected one of {', '.join(library.sources)}")
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
