"""Counts an agent's usage, and stops it at the limits of agent.yaml.

The orchestrator enforces money and tokens, because it sees each request; here the agent stops itself, so that its
capsule can report the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from ..errors import LimitExceeded
from .events import Events
from .manifest import Limits


@dataclass
class Usage:
    """An agent's usage: answered requests, calls of tools, tokens, and known US dollars."""

    requests: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None


class Meter:
    """The usage of one run of an agent, and its limits."""

    def __init__(self, limits: Limits, events: Events) -> None:
        self.usage = Usage()
        self._limits = limits
        self._events = events
        self._turns = 0
        self._has_warned = False

    def before_request(self) -> None:
        """Called before each turn. Raises LimitExceeded."""
        self._turns += 1
        self._hold("max_turns", self._limits.max_turns, self._turns, "turns")

    def after_response(self, input_tokens: int, output_tokens: int, cost_usd: Decimal | None) -> None:
        """Called after each answer. Raises LimitExceeded."""
        usage, limits = self.usage, self._limits
        usage.requests += 1
        usage.input_tokens += input_tokens
        usage.output_tokens += output_tokens
        if cost_usd is not None:
            usage.cost_usd = (usage.cost_usd or 0.0) + float(cost_usd)
        elif limits.max_cost_usd is not None and not self._has_warned:
            self._has_warned = True
            self._events.tell(
                "limit", "the price of the model is unknown; max_cost_usd is not enforced here", level="warning"
            )
        self._hold("max_output_tokens", limits.max_output_tokens, usage.output_tokens, "output tokens")
        self._hold("max_total_tokens", limits.max_total_tokens, usage.input_tokens + usage.output_tokens, "tokens")
        if usage.cost_usd is not None:
            self._hold("max_cost_usd", limits.max_cost_usd, usage.cost_usd, "US dollars")

    def before_tool(self) -> None:
        """Called before each tool. Raises LimitExceeded."""
        self.usage.tool_calls += 1
        self._hold("max_tool_calls", self._limits.max_tool_calls, self.usage.tool_calls, "calls of tools")

    def out_of_time(self) -> LimitExceeded:
        """The error of an agent that exceeded ``timeout_s``."""
        seconds = self._limits.timeout_s
        return self._exceeded("timeout_s", seconds or 0, seconds or 0, "seconds")

    def _hold(self, name: str, most: float | None, reached: float, unit: str) -> None:
        if most is not None and reached > most:
            raise self._exceeded(name, most, reached, unit)

    def _exceeded(self, name: str, most: float, reached: float, unit: str) -> LimitExceeded:
        detail = {"limit": name, "most": most, "reached": reached, "usage": vars(self.usage).copy()}
        self._events.tell("limit", f"the agent reached {name}", level="warning", limit=name, most=most, reached=reached)
        return LimitExceeded("limit_exceeded", f"the agent may use {most:g} {unit} ({name})", detail=detail)
