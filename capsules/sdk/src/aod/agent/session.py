"""State shared by all agents of one run of a capsule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..directories import Directories
from .manifest import AgentManifest, ToolsManifest, read_agent, read_tools
from .mcp_servers import McpServers
from .script import Scripts
from .tool import Tool

if TYPE_CHECKING:
    from ..context import Context


class Session:
    """The capsule's manifests, inputs, tools and scripts, each read once."""

    def __init__(self, context: Context, capsule: Path, inputs: Mapping[str, Any], directories: Directories) -> None:
        self.context = context
        self.capsule = capsule
        self.inputs = inputs
        self.directories = directories
        self.scripts = Scripts()
        # A connection to a server belongs to one event loop, and each `run` of an agent has a separate one.
        self._servers: WeakKeyDictionary[asyncio.AbstractEventLoop, McpServers] = WeakKeyDictionary()

    @cached_property
    def manifest(self) -> AgentManifest:
        return read_agent(self.capsule)

    @cached_property
    def tools(self) -> ToolsManifest:
        return read_tools(self.capsule)

    @property
    def findings(self) -> Path:
        """The directory of files from tools."""
        return self.directories.workspace() / "tool-results"

    @cached_property
    def functions(self) -> list[Callable[..., Any]]:
        from .functions import functions

        return functions(self.capsule, self.tools.python)

    @cached_property
    def callees(self) -> list[Tool]:
        from .handoffs import handoff_tools

        return handoff_tools(self.tools.capsules, self.context, self.directories, self.findings)

    @asynccontextmanager
    async def servers(self) -> AsyncIterator[McpServers]:
        """The started MCP servers; they end with the last agent that uses them."""
        loop = asyncio.get_running_loop()
        if loop not in self._servers:
            self._servers[loop] = McpServers(self.tools.mcp_servers, self.capsule, self.findings)
        servers = self._servers[loop]
        servers.begin()
        try:
            yield servers
        finally:
            await asyncio.shield(servers.end())

    def close(self) -> None:
        """Called at the end of the run: all steps of scripts must be used. Raises ModelError."""
        self.scripts.check_all_taken()
