"""Scripts as models of the agent library."""

from __future__ import annotations

import json
from typing import Any

from pydantic_ai.exceptions import ModelConnectionError, ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from .script import Script


def script_model(script: Script, name: str) -> Model:
    """A model with the answers of ``script``."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = script.next([tool.name for tool in info.function_tools], _last_result(messages))
        if "error" in step:
            raise _error(step["error"] or {}, name)
        given = step.get("usage") or {}
        usage = RequestUsage(input_tokens=given.get("input_tokens", 0), output_tokens=given.get("output_tokens", 0))
        return ModelResponse(parts=_parts(step, info), usage=usage)

    return FunctionModel(answer, model_name=name)


def _parts(step: dict[str, Any], info: AgentInfo) -> list[ModelResponsePart]:
    if "text" in step:
        return [TextPart(str(step["text"]))]
    if "output" in step:
        if info.output_tools:
            return [ToolCallPart(info.output_tools[0].name, step["output"])]
        text = step["output"] if isinstance(step["output"], str) else json.dumps(step["output"], ensure_ascii=False)
        return [TextPart(text)]
    calls = step.get("tools") or [step]
    return [ToolCallPart(call["tool"], call.get("args") or {}) for call in calls]


def _error(error: dict[str, Any], name: str) -> Exception:
    if "connection" in error:
        return ModelConnectionError(name, str(error["connection"]))
    headers = {"retry-after": str(error["retry_after"])} if "retry_after" in error else None
    body = error.get("body") or {"error": {"message": error.get("message", "as the script says")}}
    return ModelHTTPError(int(error.get("status", 500)), name, body, headers=headers)


def _last_result(messages: list[ModelMessage]) -> str | None:
    """The text of the last tool's result, or of its error."""
    for message in reversed(messages):
        if isinstance(message, ModelRequest):
            for part in reversed(message.parts):
                if isinstance(part, ToolReturnPart):
                    return part.model_response_str(wrap_if_error=False)
    return None
