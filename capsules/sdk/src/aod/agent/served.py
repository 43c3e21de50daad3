"""Model requests of the agent: one retry policy for all providers, usage, and log events."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from itertools import count
from typing import Any, NamedTuple

from pydantic_ai.exceptions import ContentFilterError, ModelHTTPError, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from ..errors import CapsuleError, LimitExceeded, ModelError
from . import pauses
from .choice import Choice
from .events import Events, Stopwatch
from .meter import Meter

#: Maximum characters of a provider's own text in a message.
ANSWER_LENGTH_MAX = 500

#: Retryable statuses, in addition to all from 500 on.
_PASSING = (408, 409, 429)
#: Marks the orchestrator's own rejections (docs/errors/), most of which are not retryable.
_SOURCE_HEADER, _PLATFORM = "aod-source", "platform"


class Unavailable(ModelError):
    """A model that did not answer after all retries: use a fallback."""


class Fault(NamedTuple):
    """The error of a request; ``retry_after_seconds`` is None if the provider does not send it."""

    code: str
    message: str
    is_passing: bool
    status: int | None = None
    retry_after_seconds: float | None = None
    detail: Any = None


class ServedModel(WrapperModel):
    """A model with up to ``retries`` retries of retryable errors, none of them after ``deadline``.

    Raises Unavailable, ModelError, LimitExceeded.
    """

    def __init__(self, wrapped: Model, choice: Choice, retries: int, deadline: datetime | None, events: Events) -> None:
        super().__init__(wrapped)
        self._choice = choice
        self._retries = retries
        self._deadline = deadline
        self._events = events

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        for attempt in count(1):
            name = self._choice.name
            self._events.tell("model.request", f"request to {name}", model=name, attempt=attempt)
            stopwatch = Stopwatch()
            try:
                async with asyncio.timeout(self._choice.timeout_seconds):
                    response = await self._asked(messages, model_settings, model_request_parameters)
            except (CapsuleError, UserError):
                raise
            except Exception as error:  # The library raises various exceptions for malformed answers.
                await self._failed(fault_of(error, self._choice), attempt, stopwatch, error)
                continue
            self._answered(response, attempt, stopwatch)
            return response
        raise AssertionError("attempts do not end")

    async def _asked(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """The whole answer, also a streamed one."""
        if not self._choice.is_streamed:
            return await self.wrapped.request(messages, model_settings, model_request_parameters)
        stream = self.wrapped.request_stream(messages, model_settings, model_request_parameters)
        async with stream as pieces:
            async for _ in pieces:
                pass
            return pieces.get()

    def _answered(self, response: ModelResponse, attempt: int, stopwatch: Stopwatch) -> None:
        cost = cost_usd(response)
        self._events.tell(
            "model.response",
            f"{self._choice.name} answered",
            content={"text": response.text, "tool_calls": [call.args for call in response.tool_calls]},
            model=self._choice.name,
            attempt=attempt,
            duration_ms=stopwatch.milliseconds,
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            cost_usd=None if cost is None else float(cost),
            tools=[call.tool_name for call in response.tool_calls] or None,
        )

    async def _failed(self, fault: Fault, attempt: int, stopwatch: Stopwatch, error: Exception) -> None:
        """Waits until the next retry. Raises final errors."""
        left = pauses.seconds_until(self._deadline)
        pause = pauses.next_pause(attempt, fault.retry_after_seconds, left)
        is_last = not fault.is_passing or attempt > self._retries or pause is None
        self._events.tell(
            "model.response",
            f"{self._choice.name} failed: {fault.message}",
            level="warning",
            model=self._choice.name,
            attempt=attempt,
            duration_ms=stopwatch.milliseconds,
            error=fault.code,
            status=fault.status,
            retry_in_seconds=None if is_last or pause is None else round(pause, 3),
        )
        if not is_last and pause is not None:
            await pauses.sleep(pause)
            return
        if fault.code == "budget_exhausted":
            raise LimitExceeded(fault.code, fault.message, detail=fault.detail) from error
        kind = Unavailable if fault.is_passing else ModelError
        raise kind(
            fault.code,
            f"{self._choice.name}: {fault.message}",
            detail={"model": self._choice.name, "attempts": attempt, "status": fault.status, "answer": fault.detail},
            retryable=fault.is_passing,
        ) from error


class MeteredModel(WrapperModel):
    """Counts turns over all fallbacks, and sends models the unchanged schema of the answer.

    The library would inline references, which is impossible for recursive ones. Raises LimitExceeded.
    """

    def __init__(self, wrapped: Model, meter: Meter, form: dict[str, Any]) -> None:
        super().__init__(wrapped)
        self._meter = meter
        self._form = form

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        self._meter.before_request()
        tools = [replace(tool, parameters_json_schema=self._form) for tool in model_request_parameters.output_tools]
        parameters = replace(model_request_parameters, output_tools=tools)
        response = await self.wrapped.request(messages, model_settings, parameters)
        self._meter.after_response(response.usage.input_tokens, response.usage.output_tokens, cost_usd(response))
        return response


def cost_usd(response: ModelResponse) -> Decimal | None:
    """The cost of the answer; None if the price of the model is unknown."""
    if response.usage.cost is not None:
        return response.usage.cost
    try:
        return response.cost().total_price
    except (LookupError, AssertionError, ValueError):
        return None


def fault_of(error: Exception, choice: Choice) -> Fault:
    """Classifies an exception of a model."""
    if isinstance(error, ModelHTTPError):
        return _status_fault(error)
    if isinstance(error, TimeoutError):
        return Fault("model_failed", f"no answer within {choice.timeout_seconds} s", is_passing=True)
    if isinstance(error, ContentFilterError):
        return Fault("model_refused", f"the answer was withheld: {error}", is_passing=False)
    # A failed connection, an incomplete body, an answer that is not JSON or is incomplete.
    cause = f" ({error.__cause__})" if error.__cause__ and str(error.__cause__) not in str(error) else ""
    words = f"{str(error) or type(error).__name__}{cause}"
    return Fault("model_failed", f"no usable answer: {_shortened(words)}", is_passing=True)


def _status_fault(error: ModelHTTPError) -> Fault:
    status, headers = error.status_code, error.headers or {}
    problem = error.body if isinstance(error.body, dict) else {}
    code = problem.get("code")
    if headers.get(_SOURCE_HEADER) == _PLATFORM or code in ("budget_exhausted", "model_not_allowed"):
        message = str(problem.get("detail") or problem.get("title") or f"HTTP status {status}")
        # The orchestrator could not reach the provider, or its log: its other rejections are final.
        is_away = code in ("model_unreachable", "broker_unavailable")
        return Fault(str(code or "model_refused"), message, is_away, status, None, problem)
    is_passing = status >= 500 or status in _PASSING
    words = _shortened(error.body if isinstance(error.body, str) else _told(problem))
    message = f"HTTP status {status}: {words}" if words else f"HTTP status {status}"
    return Fault(
        "model_failed" if is_passing else "model_refused", message, is_passing, status, error.retry_after, words or None
    )


def _told(body: dict[str, Any]) -> str:
    """The provider's own text: all providers put ``message`` into ``error``, or beside it. The orchestrator's text for
    unknown addresses is in ``detail`` (RFC 9457)."""
    inner = body.get("error")
    found = inner if isinstance(inner, dict) else body
    return str(found.get("message") or found.get("detail") or inner or body or "")


def _shortened(text: str) -> str:
    return text if len(text) <= ANSWER_LENGTH_MAX else text[:ANSWER_LENGTH_MAX] + "…"
