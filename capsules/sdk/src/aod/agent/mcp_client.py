"""Speaks with an MCP server through the protocol's own library. Its import takes most of a second."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from subprocess import Popen
from typing import Any

import anyio
import mcp_types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from ..errors import CapsuleInvalid, ToolError
from .manifest import McpServer
from .mcp_process import McpProcess, expanded
from .mcp_results import Findings, result_for_model
from .tool import Tool

#: Default time limit of a call (``timeout_s`` of the server), in seconds.
CALL_SECONDS_MAX = 60
#: Maximum size of a server's message, in bytes; it may contain files as base64.
MESSAGE_BYTES_MAX = 32 * 1024 * 1024
#: Maximum pages of a server's list of tools.
PAGES_MAX = 100


def client(server: McpServer, process: McpProcess | None) -> AbstractAsyncContextManager[Client]:
    """A client of the server, connected on entry."""
    if process is not None:
        return Client(_pipes(process.process))
    return _remote(server)


@asynccontextmanager
async def _remote(server: McpServer) -> AsyncIterator[Client]:
    import httpx2

    assert server.url is not None
    headers = expanded(server.name, "headers", server.headers)
    async with AsyncExitStack() as resources:
        # Longer than the timeout of a call, which must not end the connection.
        seconds = (server.timeout_seconds or CALL_SECONDS_MAX) + 10
        limit = httpx2.Timeout(seconds, connect=10)
        http = await resources.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=limit))
        yield await resources.enter_async_context(Client(streamable_http_client(server.url, http_client=http)))


async def tools_of(server: McpServer, connected: Client, findings: Findings) -> list[Tool]:
    """The tools that tools.yaml allows. Raises CapsuleInvalid if one of them is missing."""
    offered = {tool.name: tool for tool in await _listed(connected)}
    allowed = sorted(offered) if server.allow is None else server.allow
    missing = [name for name in allowed if name not in offered]
    if missing:
        problems = [f"mcp_servers.{server.name}.allow: the server has no tool {name!r}" for name in missing]
        raise CapsuleInvalid("tools.yaml is invalid", [*problems, f"its tools: {', '.join(sorted(offered)) or 'none'}"])
    return [_tool(server, offered[name], connected, findings) for name in allowed]


async def _listed(connected: Client) -> list[mcp_types.Tool]:
    tools: list[mcp_types.Tool] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await connected.list_tools(cursor=cursor)
        tools.extend(page.tools)
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


def _tool(server: McpServer, offered: mcp_types.Tool, connected: Client, findings: Findings) -> Tool:
    # The protocol allows more characters in names than model providers.
    name = f"{server.name}__{re.sub('[^A-Za-z0-9_-]', '_', offered.name)}"
    seconds = server.timeout_seconds or CALL_SECONDS_MAX

    async def call(arguments: dict[str, Any]) -> Any:
        try:
            async with asyncio.timeout(seconds):
                result = await connected.call_tool(offered.name, arguments, meta=_meta())
        except TimeoutError:
            raise ToolError(f"{name} gave no answer within {seconds} s") from None
        except MCPError as error:
            raise ToolError(f"{name} failed: {error.message}") from None
        except (RuntimeError, ValueError):
            # The client library's check of the result against the server's own schema.
            raise ToolError(f"{name} failed: its result does not match the server's own schema") from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream):
            raise ToolError(f"{name} failed: its server has ended") from None
        return result_for_model(name, result, findings)

    return Tool(name, offered.description, {"type": "object", **offered.input_schema}, call)


def _meta() -> Any:
    """The current span in the protocol's format (SEP-414)."""
    place = os.environ.get("TRACEPARENT")
    return {"traceparent": place} if place else None


@asynccontextmanager
async def _pipes(process: Popen[bytes]) -> AsyncIterator[Any]:
    """The client's two message streams over the pipes of a process: one message for each line."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=MESSAGE_BYTES_MAX)
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), process.stdout)
    writing, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), process.stdin
    )
    writer = asyncio.StreamWriter(writing, protocol, None, loop)
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with to_client:
            try:
                while line := await lines.readline():
                    await to_client.send(_message(line))
            except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError, ValueError):
                pass  # The client has ended, or the line is too long: the end of the stream reports it.

    async def write() -> None:
        async with from_client:
            try:
                async for message in from_client:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    writer.write(text.encode() + b"\n")
                    await writer.drain()
            except OSError:
                pass  # The server has ended, which also ends the other direction.

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(write)
            try:
                yield from_server, to_server
            finally:
                tasks.cancel_scope.cancel()
    finally:
        writing.close()
        reading.close()


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error
