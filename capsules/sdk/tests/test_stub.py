"""The stub of providers, with the providers' own libraries and as a program."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from google import genai

from aod.testing import StubServer
from conftest import SOURCES

WORDS = "several words in pieces"
SAID = {"text": WORDS, "usage": {"input_tokens": 11, "output_tokens": 7}}
CALLED = {"tools": [{"tool": "add", "args": {"a": 1}}, {"tool": "sub", "args": {}}]}
ASKED: Any = [{"role": "user", "content": "hi"}]


def test_chat_completions_are_streamed() -> None:
    with StubServer([SAID, CALLED]) as stub, openai.OpenAI(api_key="k", base_url=f"{stub.url}/v1") as client:
        options: Any = {"model": "m", "messages": ASKED, "stream": True, "stream_options": {"include_usage": True}}
        chunks = list(client.chat.completions.create(**options))
        texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
        assert "".join(filter(None, texts)) == WORDS
        assert len([text for text in texts if text]) > 1
        assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (11, 7)
        with client.chat.completions.stream(model="m", messages=ASKED) as stream:
            calls = stream.get_final_completion().choices[0].message.tool_calls
        assert calls is not None
        assert [(call.function.name, call.function.arguments) for call in calls] == [("add", '{"a": 1}'), ("sub", "{}")]


def test_responses_are_streamed() -> None:
    with StubServer([SAID, CALLED]) as stub, openai.OpenAI(api_key="k", base_url=f"{stub.url}/v1") as client:
        with client.responses.stream(model="m", input="hi") as stream:
            pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
            final = stream.get_final_response()
        assert ("".join(pieces), final.output_text) == (WORDS, WORDS)
        assert len(pieces) > 1
        assert final.usage is not None and final.usage.input_tokens == 11
        with client.responses.stream(model="m", input="hi") as stream:
            items = stream.get_final_response().output
        assert [(item.type, getattr(item, "name", None)) for item in items] == [
            ("function_call", "add"),
            ("function_call", "sub"),
        ]


def test_messages_are_streamed() -> None:
    with StubServer([SAID, CALLED]) as stub, anthropic.Anthropic(api_key="k", base_url=stub.url) as client:
        with client.messages.stream(model="m", max_tokens=9, messages=ASKED) as stream:
            assert "".join(stream.text_stream) == WORDS
            usage = stream.get_final_message().usage
        assert (usage.input_tokens, usage.output_tokens) == (11, 7)
        with client.messages.stream(model="m", max_tokens=9, messages=ASKED) as stream:
            blocks: list[Any] = stream.get_final_message().content
        assert [(block.name, block.input) for block in blocks] == [("add", {"a": 1}), ("sub", {})]


def test_contents_are_streamed() -> None:
    with StubServer([SAID, CALLED]) as stub:
        options = genai.types.HttpOptions(base_url=stub.url)
        client = genai.Client(api_key="k", http_options=options)
        chunks = list(client.models.generate_content_stream(model="m", contents="hi"))
        texts = [part.text or "" for chunk in chunks for part in parts_of(chunk)]
        assert "".join(texts) == WORDS
        usage = chunks[-1].usage_metadata
        assert usage is not None and (usage.prompt_token_count, usage.candidates_token_count) == (11, 7)
        chunks = list(client.models.generate_content_stream(model="m", contents="hi"))
        calls = [part.function_call for chunk in chunks for part in parts_of(chunk) if part.function_call]
        assert [(call.name, call.args) for call in calls] == [("add", {"a": 1}), ("sub", {})]
        client.close()


def parts_of(chunk: Any) -> list[Any]:
    return chunk.candidates[0].content.parts or []


def test_a_stream_may_end_in_the_middle() -> None:
    with (
        StubServer([{**SAID, "truncate": True}]) as stub,
        openai.OpenAI(api_key="k", base_url=f"{stub.url}/v1", max_retries=0) as client,
        pytest.raises(openai.APIError),
    ):
        list(client.chat.completions.create(model="m", messages=ASKED, stream=True))


def ask(url: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, data, headers or {}), timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_request_may_come_in_pieces_and_must_be_json() -> None:
    with StubServer([SAID]) as stub:
        connection = HTTPConnection("127.0.0.1", stub.port, timeout=20)
        body = json.dumps({"model": "m", "messages": ASKED}).encode()
        pieces = [body[start : start + 20] for start in range(0, len(body), 20)]
        for content, status in ((iter(pieces), 200), (iter([b"{", b"]"]), 400)):
            connection.request("POST", "/v1/chat/completions", content, encode_chunked=True)
            answer = connection.getresponse()
            assert (answer.status, bool(json.load(answer))) == (status, True)
        connection.close()
        assert [request.body["messages"] for request in stub.requests] == [ASKED]


def test_it_is_a_program_that_tells_what_it_was_asked(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("- text: hello\n  times: 2\n- status: 429\n  message: slower\n  headers: {Retry-After: 3}\n")
    command = [sys.executable, "-m", "aod.testing.stub", "--port", "0", "--script", str(script)]
    with subprocess.Popen(command, env={"PYTHONPATH": str(SOURCES)}, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            url = f"http://127.0.0.1:{int(program.stdout.readline())}"
            body = {"model": "m", "messages": ASKED}
            for path in ("/llm/openai/v1/chat/completions", "/v1/messages"):
                status, answer = ask(url, path, body, {"Authorization": "Bearer k"})
                assert (status, "hello" in str(answer)) == (200, True)
            assert ask(url, "/v1/responses", body) == (
                429,
                {"error": {"message": "slower", "type": "stub_error", "code": "429"}},
            )
            assert ask(url, "/v1beta/models/m:generateContent", {})[0] == 500
            assert ask(url, "/v1/embeddings", {})[0] == 404
            status, requests = ask(url, "/requests")
            assert [request["path"] for request in requests][:2] == ["/llm/openai/v1/chat/completions", "/v1/messages"]
            assert (requests[0]["headers"]["authorization"], requests[0]["body"]) == ("Bearer k", body)
        finally:
            program.kill()
