"""Tools for the agent library: MCP tools, callees and local functions, all counted and logged."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import (
    AbstractToolset,
    CombinedToolset,
    FunctionToolset,
    ToolsetTool,
    WrapperToolset,
)
from pydantic_core import SchemaValidator, core_schema

from ..errors import ToolError
from .events import Events, Stopwatch
from .meter import Meter
from .tool import ArgumentsUnfit, Tool

#: Arguments are an object; each tool checks the rest.
_ARGUMENTS = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))


def toolset(
    tools: Sequence[Tool], functions: Sequence[Callable[..., Any]], retries: int, meter: Meter, events: Events
) -> AbstractToolset[Any]:
    """All tools in one set. Equal names are an error of the library when the agent starts."""
    parts: list[AbstractToolset[Any]] = [_Toolset(tools, retries)]
    if functions:
        parts.append(FunctionToolset(list(functions), max_retries=retries, id="functions"))
    return _Watched(CombinedToolset(parts), meter, events)


class _Toolset(AbstractToolset[Any]):
    def __init__(self, tools: Sequence[Tool], retries: int) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._retries = retries

    @property
    def id(self) -> str:
        return "tools"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {
            tool.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool.name, description=tool.description, parameters_json_schema=tool.parameters
                ),
                max_retries=self._retries,
                args_validator=_ARGUMENTS,
            )
            for tool in self._tools.values()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        return await self._tools[name].call(tool_args)


class _Watched(WrapperToolset[Any]):
    """Counts and logs the calls, and returns errors to the model."""

    def __init__(self, wrapped: AbstractToolset[Any], meter: Meter, events: Events) -> None:
        super().__init__(wrapped)
        self._meter = meter
        self._events = events

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return self

    async def for_run_step(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return self

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        self._meter.before_tool()
        self._events.tell("tool.start", f"calls {name}", content=tool_args, tool=name)
        stopwatch = Stopwatch()
        error: str | None = "exception"
        result: Any = None
        try:
            result = await super().call_tool(name, tool_args, ctx, tool)
            error = None
            return result
        except ArgumentsUnfit as unfit:
            error = str(unfit)
            raise ModelRetry(error) from None
        except ToolError as failure:
            error = str(failure)
            raise ToolFailed(error) from None
        except (ModelRetry, ToolFailed) as failure:
            error = str(failure)
            raise
        finally:
            self._events.tell(
                "tool.end",
                f"{name} failed" if error else f"{name} answered",
                level="warning" if error else "info",
                content=None if error else json.dumps(result, ensure_ascii=False, default=str),
                tool=name,
                duration_ms=stopwatch.milliseconds,
                error=error,
            )
