"""Agents and model providers: the same agent on each format, retried and final errors, costs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import aod
from aod.agent import pauses
from aod.agent.choice import choose
from aod.agent.manifest import read_agent
from aod.testing import StubServer
from conftest import AgentCapsule, Told
from orchestrator import Orchestrator

#: A model of each format, the variable with its provider's address, and the path after the address.
FORMATS = {
    "openai/gpt-5.2": ("AOD_PROVIDER_OPENAI_BASE_URL", "/v1"),
    "vllm/qwen": ("AOD_PROVIDER_VLLM_BASE_URL", "/v1"),
    "anthropic/claude-opus-4-6": ("AOD_PROVIDER_ANTHROPIC_BASE_URL", ""),
    "google/gemini-3-flash": ("AOD_PROVIDER_GOOGLE_BASE_URL", ""),
}
PATHS = {
    "openai/gpt-5.2": "/v1/responses",
    "vllm/qwen": "/v1/chat/completions",
    "anthropic/claude-opus-4-6": "/v1/messages",
    "google/gemini-3-flash": "/v1beta/models/gemini-3-flash:generateContent",
}
KEY = "sk-of-the-test"
MCP = {"command": sys.executable, "args": [str(Path(__file__).with_name("mcp_server.py"))]}

every_format = pytest.mark.parametrize("model", FORMATS)
whole_and_in_pieces = pytest.mark.parametrize("stream", [False, True], ids=["whole", "in pieces"])


@contextmanager
def stubbed(agents: AgentCapsule, model: str, *steps: dict[str, Any], **fields: Any) -> Iterator[StubServer]:
    """The provider of ``model`` is a stub with the script ``steps``; ``fields`` are more fields of agent.yaml."""
    with StubServer(steps) as stub:
        variable, path = FORMATS[model]
        provider = model.partition("/")[0].upper()
        agents.set(**{variable: stub.url + path, f"{provider}_API_KEY": KEY})
        agents.write(**{"agent.yaml": {"model": model, **fields}})
        yield stub


def path_of(model: str, *, stream: bool) -> str:
    """Google has a separate route for streams."""
    return PATHS[model].replace(":generateContent", ":streamGenerateContent?alt=sse") if stream else PATHS[model]


@every_format
@whole_and_in_pieces
def test_every_format_goes_the_same_way(
    agents: AgentCapsule, orchestrator: Orchestrator, model: str, told: Told, *, stream: bool
) -> None:
    agents.set(AOD_IO=str(orchestrator.io))
    number = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    orchestrator.capsules = {"capsule-b": {"title": "Capsule B", "schema": {"input": number, "output": {}}}}
    agents.write(**{"tools.yaml": {"capsules": ["Capsule B"], "mcp_servers": {"files": {**MCP, "allow": ["add"]}}}})
    steps: list[dict[str, Any]] = [
        {"status": 503},
        {"tool": "files__add", "args": {"a": 1, "b": 2}},
        {"tool": "capsule-b", "args": {"n": 3}},
        {"output": {"title": 7}},
        {"output": {"title": "done"}, "usage": {"input_tokens": 100, "output_tokens": 50}},
    ]
    with stubbed(agents, model, *steps, settings={"max_tokens": 999, "stream": stream}) as stub:
        result = agents.context().agent().run()
        assert result.output == {"title": "done"}
        assert vars(result.usage) | {"cost_usd": None} == {
            "requests": 4,
            "tool_calls": 2,
            "input_tokens": 130,
            "output_tokens": 65,
            "cost_usd": None,
        }
        assert stub.steps_left == 0
        assert {request.path for request in stub.requests} == {path_of(model, stream=stream)}
        texts = [str(request.body) for request in stub.requests]
    (callee,) = orchestrator.callees.values()
    assert callee.body == {"target": "Capsule B", "args": {"n": 3}}
    assert "'total': 3" in texts[2] or '"total":3' in texts[2].replace(" ", "")
    assert "echo" in texts[3]
    assert "/title" in texts[4]
    assert all("999" in text and "Do it." in text for text in texts)
    assert [event.get("status") for event in told.events("model.response")] == [503, None, None, None, None]


@every_format
def test_the_key_is_sent_to_the_provider_and_told_nowhere(agents: AgentCapsule, model: str, told: Told) -> None:
    with stubbed(agents, model, {"output": {"title": "x"}}, telemetry={"capture_content": True}) as stub:
        agents.context().agent().run()
        assert KEY in " ".join(stub.requests[0].headers.values()) + stub.requests[0].path
    assert KEY not in str(told.lines())
    assert "Do it." in str(told.events("agent.start"))


@every_format
def test_in_a_run_the_orchestrator_is_asked_with_no_key(agents: AgentCapsule, model: str) -> None:
    with StubServer([{"output": {"title": "x"}}]) as stub:
        agents.set(
            AOD_URL=stub.url,
            OPENAI_API_KEY=KEY,
            ANTHROPIC_API_KEY=KEY,
            GOOGLE_API_KEY=KEY,
            HTTP_PROXY="http://127.0.0.1:9",
        )
        agents.write(**{"agent.yaml": {"model": model}})
        assert agents.context().agent().run().output == {"title": "x"}
        assert stub.requests[0].path == f"/llm/{model.partition('/')[0]}{PATHS[model]}"
        assert KEY not in str(stub.requests)


@every_format
@pytest.mark.parametrize(
    "failure",
    [
        {"status": 429, "headers": {"Retry-After": "0"}},
        {"status": 408},
        {"status": 409},
        {"status": 500},
        {"status": 529},
        {"drop": True},
        {"output": {"title": "cut"}, "truncate": True},
        {"raw": "<html>bad gateway</html>"},
        {"raw": "{}"},
    ],
    ids=str,
)
@whole_and_in_pieces
def test_what_may_pass_is_asked_again(
    agents: AgentCapsule, model: str, failure: dict[str, Any], *, stream: bool
) -> None:
    with stubbed(agents, model, failure, {"output": {"title": "x"}}, settings={"stream": stream}) as stub:
        assert agents.context().agent().run().output == {"title": "x"}
        assert len(stub.requests) == 2


@every_format
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_is_refused_is_not_asked_again(agents: AgentCapsule, model: str, status: int) -> None:
    failure = {"status": status, "message": "no such luck"}
    with stubbed(agents, model, failure, fallback=["anthropic/other"]) as stub:
        agents.set(ANTHROPIC_API_KEY=KEY)
        with pytest.raises(aod.ModelError, match="no such luck") as raised:
            agents.context().agent().run()
        assert len(stub.requests) == 1
    assert (raised.value.code, raised.value.retryable, raised.value.exit_code) == ("model_refused", False, 6)


@every_format
def test_retries_end(agents: AgentCapsule, model: str) -> None:
    with stubbed(agents, model, {"status": 503, "message": "overloaded", "times": 9}, retries={"model": 1}) as stub:
        with pytest.raises(aod.ModelError, match="overloaded") as raised:
            agents.context().agent().run()
        assert len(stub.requests) == 2
    assert (raised.value.code, raised.value.retryable) == ("model_failed", True)
    assert raised.value.detail["attempts"] == 2


@every_format
def test_a_short_retry_after_is_waited_for_and_a_long_one_is_not(agents: AgentCapsule, model: str, told: Told) -> None:
    limited = {"status": 429, "headers": {"Retry-After": "7"}}
    with stubbed(agents, model, limited, {"output": {"title": "x"}}):
        agents.context().agent().run()
    assert told.events("model.response")[0]["retry_in_seconds"] == 7
    with stubbed(agents, model, {"status": 429, "headers": {"Retry-After": "31"}}) as stub:
        with pytest.raises(aod.ModelError):
            agents.context().agent().run()
        assert len(stub.requests) == 1


@every_format
def test_pauses_outlast_a_restart_of_the_provider(agents: AgentCapsule, model: str, waited: list[float]) -> None:
    failures: list[dict[str, Any]] = [{"drop": True}, *({"status": status} for status in (500, 502, 503, 529))]
    with stubbed(agents, model, *failures, {"output": {"title": "x"}}) as stub:
        assert agents.context().agent().run().output == {"title": "x"}
        assert stub.steps_left == 0
    assert all(earlier < later for earlier, later in pairwise(waited))
    assert sum(waited) >= 30


@every_format
def test_a_refused_connection_is_retried_until_the_retries_end(
    agents: AgentCapsule, model: str, waited: list[float]
) -> None:
    with stubbed(agents, model) as stub:
        pass
    with pytest.raises(aod.ModelError) as raised:
        agents.context().agent().run()
    assert (raised.value.code, raised.value.detail["attempts"], stub.requests) == ("model_failed", 6, [])
    assert sum(waited) >= 30


def test_no_pause_lasts_beyond_the_deadline_of_the_run(agents: AgentCapsule, waited: list[float]) -> None:
    # Allows the pauses of one and two seconds, each of up to a quarter more, but not the one of four seconds.
    deadline = datetime.now(UTC) + timedelta(seconds=3.5)
    agents.set(AOD_DEADLINE=deadline.isoformat())
    with stubbed(agents, "vllm/qwen", {"status": 503, "message": "overloaded", "times": 9}) as stub:
        with pytest.raises(aod.ModelError, match="overloaded"):
            agents.context().agent().run()
        assert len(stub.requests) == 3
    assert len(waited) == 2


@pytest.mark.parametrize(
    ("attempt", "retry_after", "left", "expected"),
    [
        (1, None, None, (1, 1.25)),
        (2, 0, None, (2, 2.5)),
        (3, 1, 9, (4, 5)),
        (9, None, None, (16, 20)),
        (1, 30, None, (30, 30)),
        (1, 30, 31, (30, 30)),
        (1, 31, None, None),
        (1, 30, 30, None),
        (1, None, 1, None),
        (1, None, -5, None),
    ],
)
def test_pauses_grow_and_honour_retry_after(
    attempt: int, retry_after: float | None, left: float | None, expected: tuple[float, float] | None
) -> None:
    for _ in range(20):
        pause = pauses.next_pause(attempt, retry_after, left)
        if expected is None:
            assert pause is None
        else:
            assert pause is not None and expected[0] <= pause <= expected[1]


@every_format
def test_a_slow_answer_is_not_waited_for(agents: AgentCapsule, model: str) -> None:
    slow = {"text": "late", "delay_seconds": 3}
    with (
        stubbed(agents, model, slow, settings={"timeout_s": 1}, retries={"model": 0}),
        pytest.raises(aod.ModelError, match=r"within 1 s|[Tt]ime.*out"),
    ):
        agents.context().agent().run()


@every_format
def test_the_orchestrators_refusals_stand(agents: AgentCapsule, model: str) -> None:
    figures = {"limit": 5, "spent": 4, "reserved": 1, "asked": 2}
    platform = {"Aod-Source": "platform", "Content-Type": "application/problem+json"}
    spent = {"status": 429, "headers": platform, "body": {"code": "budget_exhausted", "detail": "all spent", **figures}}
    with stubbed(agents, model, spent) as stub:
        with pytest.raises(aod.LimitExceeded, match="all spent") as limit:
            agents.context().agent().run()
        assert len(stub.requests) == 1
    assert (limit.value.code, limit.value.exit_code) == ("budget_exhausted", 5)
    assert figures.items() <= limit.value.detail.items()
    refused = {"status": 403, "headers": platform, "body": {"code": "model_not_allowed", "detail": "not in agent.yaml"}}
    with stubbed(agents, model, refused) as stub:
        with pytest.raises(aod.ModelError, match=r"not in agent\.yaml") as refusal:
            agents.context().agent().run()
        assert len(stub.requests) == 1
    assert refusal.value.code == "model_not_allowed"
    elsewhere = {"status": 404, "body": {"code": "unknown_route", "detail": "nothing is at this address"}}
    with stubbed(agents, model, elsewhere), pytest.raises(aod.ModelError, match="404: nothing is at this address"):
        agents.context().agent().run()
    unreachable = {"status": 502, "headers": platform, "body": {"code": "model_unreachable", "detail": "no route"}}
    with stubbed(agents, model, unreachable, {"output": {"title": "x"}}):
        assert agents.context().agent().run().output == {"title": "x"}


def test_a_model_that_does_not_answer_is_replaced_by_the_next_one(agents: AgentCapsule, told: Told) -> None:
    with (
        StubServer([{"status": 500, "times": 2}]) as first,
        StubServer([{"output": {"title": 7}}, {"output": {"title": "x"}}]) as second,
    ):
        agents.set(AOD_PROVIDER_A_BASE_URL=f"{first.url}/v1", AOD_PROVIDER_ANTHROPIC_BASE_URL=second.url)
        agents.set(ANTHROPIC_API_KEY=KEY)
        models = {"cheap": {"provider": "anthropic", "model": "claude-haiku-4-5"}}
        agents.write(
            **{"agent.yaml": {"model": "a/b", "models": models, "fallback": ["cheap"], "retries": {"model": 0}}}
        )
        result = agents.context().agent().run()
        assert result.output == {"title": "x"}
        assert result.usage.requests == 2
        assert (len(first.requests), len(second.requests)) == (2, 2)
    asked = [event["model"] for event in told.events("model.request")]
    assert asked == ["a/b", "anthropic/claude-haiku-4-5"] * 2


def test_if_no_model_answers_all_are_told(agents: AgentCapsule) -> None:
    with StubServer([{"status": 500, "message": "one"}, {"status": 503, "message": "two"}]) as stub:
        agents.set(AOD_PROVIDER_A_BASE_URL=stub.url, AOD_PROVIDER_B_BASE_URL=stub.url)
        agents.write(**{"agent.yaml": {"model": "a/m", "fallback": ["b/m"], "retries": {"model": 0}}})
        with pytest.raises(aod.ModelError, match=r"a/m.*one.*b/m.*two") as raised:
            agents.context().agent().run()
    assert raised.value.retryable


def test_settings_reach_the_model(agents: AgentCapsule) -> None:
    settings = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "parallel_tool_calls": False, "max_tokens": 33}
    with stubbed(agents, "vllm/qwen", {"output": {"title": "x"}}, settings=settings) as stub:
        agents.context().agent().run()
        body = stub.requests[0].body
    assert (body["temperature"], body["top_p"], body["seed"]) == (0.5, 0.9, 7)
    assert body["parallel_tool_calls"] is False
    assert 33 in (body.get("max_tokens"), body.get("max_completion_tokens"))


@every_format
@pytest.mark.parametrize("mode", ["native", "prompted"])
def test_other_ways_to_a_form(agents: AgentCapsule, model: str, mode: str) -> None:
    steps = [{"text": '{"title": 7}'}, {"text": '{"title": "x"}'}]
    with stubbed(agents, model, *steps, output_mode=mode) as stub:
        assert agents.context().agent().run().output == {"title": "x"}
        assert "/title" in str(stub.requests[1].body)


@every_format
def test_a_form_with_references_reaches_the_model(agents: AgentCapsule, model: str) -> None:
    tree = {"type": "object", "properties": {"leaf-of-it": {"type": "string"}, "below": {"$ref": "#/$defs/tree"}}}
    schema = {"type": "object", "properties": {"tree": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": tree}}
    steps: list[dict[str, Any]] = [
        {"output": {"tree": {"below": {"leaf-of-it": 7}}}},
        {"output": {"tree": {"below": {}}}},
    ]
    with stubbed(agents, model, *steps) as stub:
        assert agents.context().agent().run(output_schema=schema).output == {"tree": {"below": {}}}
        assert "leaf-of-it" in str(stub.requests[0].body["tools"])
        assert "/tree/below/leaf-of-it" in str(stub.requests[1].body)


def test_what_a_model_costs_is_known_and_limited(agents: AgentCapsule, told: Told) -> None:
    dear = {"output": {"title": "x"}, "usage": {"input_tokens": 1_000_000, "output_tokens": 100_000}}
    with stubbed(agents, "anthropic/claude-opus-4-6", dear):
        cost = agents.context().agent().run().usage.cost_usd
        assert cost is not None and cost > 1
    with (
        stubbed(agents, "anthropic/claude-opus-4-6", dear, limits={"max_cost_usd": 0.5}),
        pytest.raises(aod.LimitExceeded, match="max_cost_usd"),
    ):
        agents.context().agent().run()
    with stubbed(agents, "vllm/qwen", dear, limits={"max_cost_usd": 0.5}):
        assert agents.context().agent().run().usage.cost_usd is None
    assert "price of the model is unknown" in told.lines()[-2]["message"] + told.lines()[-1]["message"]


def test_a_missing_key_and_an_unknown_provider_are_told_before_anything_is_asked(agents: AgentCapsule) -> None:
    agents.write(**{"agent.yaml": {"model": "openai/gpt-5.2"}})
    with pytest.raises(aod.CapsuleInvalid, match="OPENAI_API_KEY is not set"):
        agents.context().agent().run()
    agents.write(**{"agent.yaml": {"model": "nobody/x"}})
    with pytest.raises(aod.CapsuleInvalid, match="no known address"):
        agents.context().agent().run()
    agents.write(**{"agent.yaml": {}})
    with pytest.raises(aod.CapsuleInvalid, match="no model; expected"):
        agents.context().agent().run()


@pytest.mark.parametrize(
    ("reference", "name", "wire_format", "url"),
    [
        ("openai/gpt-5.2", "openai/gpt-5.2", "openai-responses", "https://api.openai.com/v1"),
        ("anthropic:claude-x", "anthropic/claude-x", "anthropic", "https://api.anthropic.com"),
        ("google/g", "google/g", "google", "https://generativelanguage.googleapis.com"),
        ("openrouter/a/b:free", "openrouter/a/b:free", "openai-chat", "https://openrouter.ai/api/v1"),
        ("ollama/qwen3:8b", "ollama/qwen3:8b", "openai-chat", "http://127.0.0.1:11434/v1"),
        ("gpt-4o", "openai/gpt-4o", "openai-responses", "https://api.openai.com/v1"),
        ("claude-x", "anthropic/claude-x", "anthropic", "https://api.anthropic.com"),
        ("gemini-x", "google/gemini-x", "google", "https://generativelanguage.googleapis.com"),
        ("ours", "openai/m", "openai-chat", "http://10.0.0.7/v1"),
    ],
)
def test_a_reference_tells_provider_model_format_and_place(
    agents: AgentCapsule, reference: str, name: str, wire_format: str, url: str
) -> None:
    keys = {f"{provider}_API_KEY": KEY for provider in ("OPENAI", "ANTHROPIC", "GEMINI", "OPENROUTER", "OUR_OWN")}
    agents.set(**keys)
    ours = {"provider": "openai", "model": "m", "base_url": "http://10.0.0.7/v1/", "api_key_env": "OUR_OWN_API_KEY"}
    agents.write(**{"agent.yaml": {"models": {"ours": ours}, "settings": {"seed": 1}}})
    (chosen,) = choose(read_agent(agents.directory), reference, agents.directory)
    assert (chosen.name, chosen.format, chosen.base_url) == (name, wire_format, url)
    assert (chosen.is_proxied, chosen.settings.seed) == (False, 1)
    assert chosen.key == ("aod" if reference.startswith("ollama") else KEY)
    agents.set(AOD_URL="http://127.0.0.1:8700")
    (chosen,) = choose(read_agent(agents.directory), reference, agents.directory)
    provider, _, _ = name.partition("/")
    version = "/v1" if wire_format.startswith("openai") else ""
    assert (chosen.base_url, chosen.key) == (f"http://127.0.0.1:8700/llm/{provider}{version}", "aod")
    assert (chosen.format, chosen.is_proxied) == (wire_format, True)


def test_addresses_that_other_programs_know_count_outside_of_a_run(agents: AgentCapsule) -> None:
    agents.set(OPENAI_API_KEY=KEY, OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    agents.write(**{"agent.yaml": {"model": "openai/x"}})
    (chosen,) = choose(read_agent(agents.directory), None, agents.directory)
    assert chosen.base_url == "http://127.0.0.1:9/v1"
    agents.set(AOD_PROVIDER_OPENAI_BASE_URL="http://127.0.0.1:8/v1", AOD_URL="http://127.0.0.1:7")
    (chosen,) = choose(read_agent(agents.directory), None, agents.directory)
    assert (chosen.base_url, chosen.is_proxied, chosen.key) == ("http://127.0.0.1:8/v1", False, KEY)
