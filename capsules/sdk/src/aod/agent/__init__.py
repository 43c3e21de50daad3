"""The agent of a capsule: a model, its tools, and the loop between them, until there is a valid answer.

``ctx.agent()`` creates one. Prompts are in src/ai, the model and its limits in agent.yaml, the tools in tools.yaml, the
form of the answer in schema.json. Requires the extra ``agent`` of the SDK, which is loaded when an agent runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import CapsuleInvalid
from .choice import choose
from .events import Events
from .meter import Meter, Usage
from .output import Output
from .prompts import prompt
from .session import Session
from .work import Done, Work

__all__ = ["Agent", "AgentResult", "Usage"]


@dataclass(frozen=True)
class AgentResult:
    """An agent's answer: ``output`` is valid by the schema, and its files are in the output directory.

    ``text`` is the model's last text beside the answer, or empty; ``usage`` is of this run.
    """

    output: dict[str, Any]
    text: str
    usage: Usage


class Agent:
    """An agent by agent.yaml and tools.yaml. Can run any number of times, each without memory of earlier runs."""

    def __init__(
        self, session: Session, model: str | None, system: str | None, tools: Sequence[Callable[..., Any]]
    ) -> None:
        self._session = session
        self._model = model
        self._system = system
        self._tools = tools

    def run(
        self,
        task: str | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
    ) -> AgentResult:
        """Runs ``arun`` and waits. Raises RuntimeError if asyncio is running: then use ``await agent.arun(…)``."""
        return asyncio.run(self.arun(task, inputs=inputs, output_schema=output_schema))

    async def arun(
        self,
        task: str | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
    ) -> AgentResult:
        """Sends requests to the model, and calls its tools, until it gives a valid answer.

        ``task`` replaces src/ai/task.md and is used as it is: only files are templates. ``inputs`` are the values of
        templates, by default the run's inputs. ``output_schema`` is a JSON Schema, by default that of schema.json.

        Raises ModelError, LimitExceeded, CapsuleInvalid; HandoffUnavailable, and exceptions of the capsule's own tools.
        """
        work, limits = self._work(task, inputs, output_schema), self._session.manifest.limits
        limit = asyncio.timeout(limits.timeout_s)
        try:
            async with limit, self._session.servers() as servers:
                # The libraries take a second to load; meanwhile the servers start and the callees are requested.
                callees = asyncio.create_task(asyncio.to_thread(lambda: self._session.callees))
                await asyncio.sleep(0)
                perform = _loop()
                done = await perform(replace(work, tools=[*await callees, *await servers.tools()]))
        except TimeoutError:
            if not limit.expired():
                raise
            raise work.meter.out_of_time() from None
        return AgentResult(done.output, done.text, work.meter.usage)

    def _work(
        self, task: str | None, inputs: Mapping[str, Any] | None, output_schema: Mapping[str, Any] | None
    ) -> Work:
        """Everything that is known before the start."""
        session, manifest = self._session, self._session.manifest
        values = session.inputs if inputs is None else inputs
        choices = choose(manifest, self._model, session.capsule)
        system = self._system if self._system is not None else prompt(session.capsule, manifest.system_prompt, values)
        said = task if task is not None else prompt(session.capsule, manifest.task_prompt, values)
        if not said:
            message = f"{manifest.task_prompt} is missing or empty; expected a task there, or agent.run(task=…)"
            raise CapsuleInvalid("the agent has no task", [message])
        output = Output.of(session.capsule, output_schema, session.directories, session.findings)
        events = Events(manifest.capture_content)
        events.tell("agent.start", "agent started", content={"system": system, "task": said}, model=choices[0].name)
        return Work(
            manifest=manifest,
            choices=choices,
            word=self._model or "default",
            scripts=session.scripts,
            system=system or None,
            task=said,
            deadline=session.context.deadline,
            tools=[],
            functions=[*session.functions, *self._tools],
            output=output,
            meter=Meter(manifest.limits, events),
            events=events,
        )


def _loop() -> Callable[[Work], Awaitable[Done]]:
    """Loads the loop with its libraries. Raises CapsuleInvalid if they are not installed."""
    try:
        from .loop import perform
    except ImportError as error:
        raise CapsuleInvalid("the agent cannot run", [f"{error}; expected the extra aod-capsule[agent]"]) from None
    return perform
