"""Model answers in the formats of the providers, whole and as streams of server-sent events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

#: Number of pieces of a streamed text.
_PIECES = 3


class Call(NamedTuple):
    """A call of a tool."""

    id: str
    name: str
    arguments: dict[str, Any]


class Said(NamedTuple):
    """A model's answer in any format: text, calls and tokens."""

    model: str
    text: str
    calls: list[Call]
    input_tokens: int
    output_tokens: int


class Format(NamedTuple):
    """A provider's format: the whole answer, its events, the names of offered tools, and an error's body."""

    whole: Callable[[Said], dict[str, Any]]
    events: Callable[[Said, dict[str, Any]], Iterator[bytes]]
    offered: Callable[[dict[str, Any]], list[str]]
    error: Callable[[int, str], dict[str, Any]]


def format_of(path: str) -> Format | None:
    """The format of ``path`` with any prefix; None if it is no model route."""
    path = path.split("?", 1)[0]
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return GOOGLE
    return next((spoken for ending, spoken in _ENDINGS.items() if path.endswith(ending)), None)


def is_streamed(path: str, body: dict[str, Any]) -> bool:
    return ":streamGenerateContent" in path or bool(body.get("stream"))


def _event(data: Any, name: str | None = None) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def _pieces(text: str) -> list[str]:
    size = max(1, -(-len(text) // _PIECES))
    return [text[index : index + size] for index in range(0, len(text), size)]


def _error(status: int, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "stub_error", "code": str(status)}}


# OpenAI, Chat Completions.


def _chat_head(said: Said, kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-stub", "object": kind, "created": 1, "model": said.model}


def _chat_usage(said: Said) -> dict[str, Any]:
    total = said.input_tokens + said.output_tokens
    return {"prompt_tokens": said.input_tokens, "completion_tokens": said.output_tokens, "total_tokens": total}


def _chat_calls(said: Said) -> list[dict[str, Any]]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
        for call in said.calls
    ]


def _chat_whole(said: Said) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
    if said.calls:
        message["tool_calls"] = _chat_calls(said)
    finish = "tool_calls" if said.calls else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {**_chat_head(said, "chat.completion"), "choices": [choice], "usage": _chat_usage(said)}


def _chat_events(said: Said, body: dict[str, Any]) -> Iterator[bytes]:
    head = _chat_head(said, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(said.text):
        yield chunk({"content": piece})
    for index, call in enumerate(_chat_calls(said)):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, "tool_calls" if said.calls else "stop")
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _event({**head, "choices": [], "usage": _chat_usage(said)})
    yield _event("[DONE]")


def _chat_offered(body: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools") or []]


# OpenAI, Responses.


def _response_items(said: Said) -> list[dict[str, Any]]:
    content = [{"type": "output_text", "text": said.text, "annotations": []}]
    message = {"id": "msg_stub", "type": "message", "role": "assistant", "status": "completed", "content": content}
    calls = [
        {
            "id": f"fc_{call.id}",
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": json.dumps(call.arguments),
            "status": "completed",
        }
        for call in said.calls
    ]
    return [*([message] if said.text else []), *calls]


def _response_whole(said: Said, status: str = "completed") -> dict[str, Any]:
    return {
        "id": "resp_stub",
        "object": "response",
        "created_at": 1,
        "model": said.model,
        "status": status,
        "output": _response_items(said) if status == "completed" else [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": said.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": said.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": said.input_tokens + said.output_tokens,
        }
        if status == "completed"
        else None,
    }


def _response_events(said: Said, body: dict[str, Any]) -> Iterator[bytes]:
    number = 0

    def event(kind: str, /, **data: Any) -> bytes:
        nonlocal number
        number += 1
        return _event({"type": kind, "sequence_number": number, **data}, kind)

    yield event("response.created", response=_response_whole(said, "in_progress"))
    for index, item in enumerate(_response_items(said)):
        place = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            yield event("response.output_item.added", output_index=index, item={**item, "content": []})
            part = {"type": "output_text", "text": "", "annotations": []}
            yield event("response.content_part.added", **place, content_index=0, part=part)
            for piece in _pieces(said.text):
                yield event("response.output_text.delta", **place, content_index=0, delta=piece, logprobs=[])
            yield event("response.output_text.done", **place, content_index=0, text=said.text, logprobs=[])
            yield event("response.content_part.done", **place, content_index=0, part=item["content"][0])
        else:
            yield event("response.output_item.added", output_index=index, item={**item, "arguments": ""})
            yield event("response.function_call_arguments.delta", **place, delta=item["arguments"])
            yield event(
                "response.function_call_arguments.done", **place, name=item["name"], arguments=item["arguments"]
            )
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=_response_whole(said))


def _flat_offered(body: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in body.get("tools") or [] if "name" in tool]


# Anthropic, Messages.


def _message_blocks(said: Said) -> list[dict[str, Any]]:
    texts = [{"type": "text", "text": said.text}] if said.text else []
    return [*texts, *({"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in said.calls)]


def _message_whole(said: Said) -> dict[str, Any]:
    return {
        "id": "msg_stub",
        "type": "message",
        "role": "assistant",
        "model": said.model,
        "content": _message_blocks(said),
        "stop_reason": "tool_use" if said.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": said.input_tokens, "output_tokens": said.output_tokens},
    }


def _message_events(said: Said, body: dict[str, Any]) -> Iterator[bytes]:
    whole = _message_whole(said)
    usage = {"input_tokens": said.input_tokens, "output_tokens": 1}
    begun = {**whole, "content": [], "stop_reason": None, "usage": usage}
    yield _event({"type": "message_start", "message": begun}, "message_start")
    for index, block in enumerate(whole["content"]):
        is_text = block["type"] == "text"
        empty = {**block, "text": ""} if is_text else {**block, "input": {}}
        yield _event({"type": "content_block_start", "index": index, "content_block": empty}, "content_block_start")
        pieces = _pieces(block["text"] if is_text else json.dumps(block["input"]))
        for piece in pieces:
            kind, key = ("text_delta", "text") if is_text else ("input_json_delta", "partial_json")
            delta = {"type": kind, key: piece}
            yield _event({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")
        yield _event({"type": "content_block_stop", "index": index}, "content_block_stop")
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    tokens = {"output_tokens": said.output_tokens}
    yield _event({"type": "message_delta", "delta": ended, "usage": tokens}, "message_delta")
    yield _event({"type": "message_stop"}, "message_stop")


def _message_error(status: int, message: str) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": "overloaded_error" if status == 529 else "api_error", "message": message},
    }


# Google, generateContent.


def _content(said: Said, parts: list[dict[str, Any]], finish: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    document: dict[str, Any] = {"candidates": [candidate], "modelVersion": said.model, "responseId": "stub"}
    if finish:
        candidate["finishReason"] = finish
        document["usageMetadata"] = {
            "promptTokenCount": said.input_tokens,
            "candidatesTokenCount": said.output_tokens,
            "totalTokenCount": said.input_tokens + said.output_tokens,
        }
    return document


def _call_parts(said: Said) -> list[dict[str, Any]]:
    return [{"functionCall": {"name": call.name, "args": call.arguments}} for call in said.calls]


def _content_whole(said: Said) -> dict[str, Any]:
    texts = [{"text": said.text}] if said.text else []
    return _content(said, [*texts, *_call_parts(said)], "STOP")


def _content_events(said: Said, body: dict[str, Any]) -> Iterator[bytes]:
    for piece in _pieces(said.text):
        yield _event(_content(said, [{"text": piece}], None))
    yield _event(_content(said, _call_parts(said), "STOP"))


def _content_offered(body: dict[str, Any]) -> list[str]:
    declared = [tool.get("functionDeclarations") or [] for tool in body.get("tools") or []]
    return [function["name"] for functions in declared for function in functions]


def _content_error(status: int, message: str) -> dict[str, Any]:
    names = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}
    return {"error": {"code": status, "message": message, "status": names.get(status, "INTERNAL")}}


CHAT = Format(_chat_whole, _chat_events, _chat_offered, _error)
RESPONSES = Format(_response_whole, _response_events, _flat_offered, _error)
MESSAGES = Format(_message_whole, _message_events, _flat_offered, _message_error)
GOOGLE = Format(_content_whole, _content_events, _content_offered, _content_error)

_ENDINGS = {"/chat/completions": CHAT, "/responses": RESPONSES, "/messages": MESSAGES}
