"""The agent of a capsule: a model, its tools, and the loop between them, until there is an answer that fits.

``ctx.agent()`` makes one. Prompts are in src/ai, the model and its limits in agent.yaml, the tools in tools.yaml, the
form of the answer in schema.json. Needs the extra ``agent`` of the SDK; nothing of it is loaded before an agent runs.
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
    """What an agent answered: ``output`` fits the schema, and its files are in the output directory.

    ``text`` is the last that the model said in words beside it, empty if it said nothing; ``usage`` is of this run.
    """

    output: dict[str, Any]
    text: str
    usage: Usage


class Agent:
    """An agent as agent.yaml and tools.yaml have it. May run any number of times; each time it begins anew."""

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
        """As ``arun``, and waits. Raises RuntimeError where asyncio runs already: there it is ``await agent.arun(…)``."""
        return asyncio.run(self.arun(task, inputs=inputs, output_schema=output_schema))

    async def arun(
        self,
        task: str | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
    ) -> AgentResult:
        """Asks the model, and calls tools for it, until it answers by the schema.

        ``task`` is in the place of src/ai/task.md, as it is: only files are templates. ``inputs`` fill those in, the
        run's own unless given. ``output_schema`` is a JSON Schema, the output side of schema.json unless given.

        Raises ModelError, LimitExceeded, CapsuleInvalid; HandoffUnavailable, and what the capsule's own tools raise.
        """
        work, limits = self._work(task, inputs, output_schema), self._session.manifest.limits
        limit = asyncio.timeout(limits.timeout_s)
        try:
            async with limit, self._session.servers() as servers:
                # The libraries take a second to load, in which the servers come up and the callees are asked for.
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
        """All that can be known before anything is started."""
        session, manifest = self._session, self._session.manifest
        values = session.inputs if inputs is None else inputs
        choices = choose(manifest, self._model, session.capsule)
        system = self._system if self._system is not None else prompt(session.capsule, manifest.system_prompt, values)
        said = task if task is not None else prompt(session.capsule, manifest.task_prompt, values)
        if not said:
            message = f"{manifest.task_prompt} says nothing; expected a task there, or agent.run(task=…)"
            raise CapsuleInvalid("the agent has nothing to do", [message])
        output = Output.of(session.capsule, output_schema, session.directories, session.findings)
        events = Events(manifest.capture_content)
        events.tell("agent.start", "an agent begins", content={"system": system, "task": said}, model=choices[0].name)
        return Work(
            manifest=manifest,
            choices=choices,
            word=self._model or "default",
            scripts=session.scripts,
            system=system or None,
            task=said,
            tools=[],
            functions=[*session.functions, *self._tools],
            output=output,
            meter=Meter(manifest.limits, events),
            events=events,
        )


def _loop() -> Callable[[Work], Awaitable[Done]]:
    """The loop, whose libraries are loaded now. Raises CapsuleInvalid if they are not there."""
    try:
        from .loop import perform
    except ImportError as error:
        raise CapsuleInvalid("the agent cannot run", [f"{error}; expected the extra aod-capsule[agent]"]) from None
    return perform
