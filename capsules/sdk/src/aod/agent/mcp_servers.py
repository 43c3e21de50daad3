"""The MCP servers of a capsule while agents run: started with the first one, ended with the last."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ..errors import CapsuleError
from .manifest import McpServer
from .mcp_process import McpProcess
from .tool import Tool

#: Maximum time for a server's first answer, in seconds.
START_SECONDS_MAX = 15.0
#: Maximum time to disconnect from a server, in seconds: a remote one may not answer.
LEAVE_SECONDS_MAX = 3.0
#: Maximum wait for the exit code of a server that closed its output, in seconds.
EXIT_SECONDS_MAX = 0.5


class McpServers:
    """All servers of tools.yaml, for the agents of one event loop, which may run concurrently."""

    def __init__(self, servers: list[McpServer], capsule: Path, findings: Path) -> None:
        self._servers = servers
        self._capsule = capsule
        self._findings = findings
        self._users = 0
        self._running: list[_Running] = []

    def begin(self) -> None:
        """Starts the processes on the first call; they start while this one loads its libraries. Requires ``end``.

        Raises CapsuleInvalid, CapsuleError.
        """
        if self._users == 0:
            try:
                for server in self._servers:
                    self._running.append(_Running(server, self._capsule))
            except BaseException:
                self._kill()
                raise
        self._users += 1

    async def tools(self) -> list[Tool]:
        """Their tools that tools.yaml allows. Raises CapsuleInvalid, CapsuleError."""
        found = await asyncio.gather(*(running.tools(self._findings) for running in self._running))
        return [tool for tools in found for tool in tools]

    async def end(self) -> None:
        """Ends them, unless another agent is still running."""
        self._users -= 1
        if self._users == 0:
            ending, self._running = self._running, []
            await asyncio.gather(*(running.end() for running in ending))

    def _kill(self) -> None:
        for running in self._running:
            running.kill()
        self._running = []


class _Running:
    """A server and its task: a client must be exited by the task that entered it."""

    def __init__(self, server: McpServer, capsule: Path) -> None:
        self._server = server
        self._process = McpProcess(server, capsule) if server.command is not None else None
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[list[Tool]]
        self._leave = asyncio.Event()

    async def tools(self, findings: Path) -> list[Tool]:
        if self._task is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._speak(findings), name=f"MCP server {self._server.name}")
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                return await asyncio.shield(self._ready)
        except TimeoutError:
            raise self._failed(f"no answer within {START_SECONDS_MAX:g} s") from None

    async def _speak(self, findings: Path) -> None:
        from .mcp_client import client, tools_of
        from .mcp_results import Findings

        try:
            async with client(self._server, self._process) as connected:
                self._ready.set_result(await tools_of(self._server, connected, Findings(findings)))
                await self._leave.wait()
        except Exception as error:
            if not self._ready.done():
                self._ready.set_exception(await self._cause(error))

    async def _cause(self, error: Exception) -> CapsuleError:
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if isinstance(error, CapsuleError):
            return error
        ended, process = "", self._process
        if process is not None and await asyncio.to_thread(process.ends_within, EXIT_SECONDS_MAX):
            ended = f"ended with exit code {process.exit_code()}; "
        return self._failed(f"{ended}{error or type(error).__name__}")

    def _failed(self, message: str) -> CapsuleError:
        return CapsuleError("mcp_server_failed", f"MCP server {self._server.name!r}: {message}", retryable=True)

    async def end(self) -> None:
        self._leave.set()
        if self._task is not None:
            await self._left(self._task)
        if self._process is not None:
            await asyncio.to_thread(self._process.end)

    async def _left(self, task: asyncio.Task[None]) -> None:
        """Waits for the disconnect, except from a server that has not answered, or no longer answers."""
        if self._ready.done():
            await asyncio.wait([task], timeout=LEAVE_SECONDS_MAX)
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=LEAVE_SECONDS_MAX)
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()  # Prevents a warning of asyncio about an unread exception.

    def kill(self) -> None:
        if self._process is not None:
            self._process.end()
