"""A tool of a model."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ..contract.problem import Problem
from ..errors import CapsuleInvalid

#: The tool names that every provider accepts. Source: OpenAI's "^[a-zA-Z0-9_-]{1,64}$", the strictest.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ArgumentsUnfit(Exception):
    """The model called a tool with invalid arguments: it gets the problems and may retry."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        places = "\n".join(f"- {problem}" for problem in problems)
        super().__init__(f"The arguments are invalid. Call the tool again with these problems fixed:\n{places}")


@dataclass(frozen=True)
class Tool:
    """A tool: ``parameters`` is the JSON Schema of its arguments, ``call`` receives them.

    ``call`` raises ArgumentsUnfit or ToolError for the model; any other exception ends the agent.
    """

    name: str
    description: str | None
    parameters: dict[str, Any]
    call: Callable[[dict[str, Any]], Awaitable[Any]]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            message = f"{self.name!r} is not a tool name; expected at most 64 of A-Z a-z 0-9 _ -"
            raise CapsuleInvalid("tools.yaml is invalid", [message])
