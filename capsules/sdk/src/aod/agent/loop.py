"""One run of an agent, on the agent library: nothing of it is seen outside. Its import takes a second."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pydantic_ai
from pydantic_ai import NativeOutput, PromptedOutput, StructuredDict, ToolOutput
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelRetry, UnexpectedModelBehavior, UserError
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.usage import UsageLimits

from ..contract import Unfit
from ..errors import CapsuleInvalid, ModelError
from .choice import SCRIPT, Choice
from .providers import model
from .script_model import script_model
from .served import MeteredModel, ServedModel, Unavailable
from .toolset import toolset
from .work import Done, Work

#: Disables the library's own request limit: the meter enforces agent.yaml.
NO_LIMITS = UsageLimits(request_limit=None)

#: The tool for the final answer.
OUTPUT_TOOL = "answer"


async def perform(work: Work) -> Done:
    """Runs until there is a valid answer. Raises LimitExceeded, ModelError, CapsuleInvalid, and exceptions of tools."""
    async with AsyncExitStack() as resources:
        served = [await _served(work, choice, resources) for choice in work.choices]
        asked = served[0] if len(served) == 1 else FallbackModel(*served, fallback_on=(Unavailable,))
        agent = _agent(work, MeteredModel(asked, work.meter, work.output.schema))
        problems: list[str] = []

        @agent.output_validator
        def checked(answer: dict[str, Any]) -> dict[str, Any]:
            try:
                return work.output.checked(answer)
            except Unfit as unfit:
                problems[:] = [str(problem) for problem in unfit.problems]
                raise ModelRetry(_repair(problems)) from None

        try:
            result = await agent.run(work.task, usage_limits=NO_LIMITS)
        except FallbackExceptionGroup as group:
            raise _all_failed(group) from None
        except UnexpectedModelBehavior as error:
            raise _gave_up(error, work.choices[0].name, problems) from error
        except UserError as error:
            raise CapsuleInvalid("cannot create the agent", [str(error)]) from error
        texts = [message.text for message in result.all_messages() if message.kind == "response" and message.text]
        return Done(result.output, texts[-1] if texts else "")


async def _served(work: Work, choice: Choice, resources: AsyncExitStack) -> Model:
    if choice.format == SCRIPT:
        made = script_model(work.scripts.find(Path(choice.base_url), work.word), choice.name)
    else:
        made = await model(choice, resources)
    return ServedModel(made, choice, work.manifest.retries.model, work.deadline, work.events)


def _agent(work: Work, asked: Model) -> pydantic_ai.Agent[Any, dict[str, Any]]:
    retries = work.manifest.retries
    try:
        output: Any
        if work.manifest.output_mode == "tool":
            anything = StructuredDict({"type": "object"})  # MeteredModel sends the real schema.
            output = ToolOutput(anything, name=OUTPUT_TOOL, description="Returns the final answer and ends the task.")
        else:
            way = NativeOutput if work.manifest.output_mode == "native" else PromptedOutput
            output = way(StructuredDict(work.output.schema))
        return pydantic_ai.Agent(
            asked,
            output_type=output,
            instructions=work.system,
            retries={"tools": retries.tool, "output": retries.output},
            toolsets=[toolset(work.tools, work.functions, retries.tool, work.meter, work.events)],
        )
    except UserError as error:
        raise CapsuleInvalid("cannot create the agent", [str(error)]) from error


def _repair(problems: list[str]) -> str:
    places = "\n".join(f"- {problem}" for problem in problems)
    return f"The answer is invalid. Return it again with these problems fixed:\n{places}"


def _gave_up(error: UnexpectedModelBehavior, name: str, problems: list[str]) -> ModelError:
    """The error of a model without a valid answer; ``problems`` are those of its last answer."""
    # Only the first sentence: the rest is advice about the library.
    words = str(error).partition(". ")[0]
    if "output retries" not in words:
        return ModelError("model_failed", f"{name}: {words}", retryable=True)
    told = "; ".join(problems) or "no answer in the form of the schema"
    return ModelError("model_output_invalid", f"the answer of {name} is invalid: {told}", detail={"problems": problems})


def _all_failed(group: FallbackExceptionGroup) -> ModelError:
    """One error for all failed models: that of the last one, with the errors of all."""
    errors = [error for error in group.exceptions if isinstance(error, ModelError)]
    details = [error.detail for error in errors]
    message = "no model answered: " + "; ".join(str(error) for error in errors)
    return ModelError(errors[-1].code, message, detail={"models": details}, retryable=True)
