"""The agent of a capsule, with scripted models: prompts, the form of its answer, its limits, its scripts."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import aod
from aod.agent.manifest import read_agent, read_tools
from conftest import FILE, SOURCES, TITLE, AgentCapsule, Capsule, Told

DONE = {"output": {"title": "x"}}


def test_an_answer_fits_the_schema_of_the_capsule(agents: AgentCapsule) -> None:
    context = agents.scripted({"output": {"title": "Penguins"}, "usage": {"input_tokens": 7, "output_tokens": 3}})
    result = context.agent().run()
    assert (result.output, result.text) == ({"title": "Penguins"}, "")
    assert (result.usage.requests, result.usage.input_tokens, result.usage.output_tokens) == (1, 7, 3)
    context.close()


def test_an_agent_runs_in_asyncio_and_several_times(agents: AgentCapsule) -> None:
    context = agents.scripted(*({"output": {"title": str(number)}} for number in range(4)))
    agent = context.agent()

    async def both() -> Sequence[Any]:
        return await asyncio.gather(agent.arun(), context.agent().arun())

    assert sorted(result.output["title"] for result in asyncio.run(both())) == ["0", "1"]
    assert [agent.run().output["title"] for _ in range(2)] == ["2", "3"]
    context.close()


def test_agents_run_on_threads(agents: AgentCapsule) -> None:
    context = agents.scripted(*({"output": {"title": str(number)}} for number in range(8)))
    with ThreadPoolExecutor(4) as pool:
        titles = pool.map(lambda _: context.agent().run().output["title"], range(8))
        assert sorted(titles) == [str(number) for number in range(8)]
    context.close()


def test_an_unfit_answer_goes_back_to_the_model_until_it_fits(agents: AgentCapsule) -> None:
    steps = [{"output": {"title": 7}}, {"text": "Well…"}, DONE]
    result = agents.scripted(*steps).agent().run()
    assert (result.output, result.text) == ({"title": "x"}, "Well…")


def test_an_answer_that_never_fits_is_an_error_with_its_places(agents: AgentCapsule) -> None:
    unfit = {"output": {"title": 7}}
    context = agents.scripted(*[unfit] * 2, **{"agent.yaml": {"retries": {"output": 1}}})
    with pytest.raises(aod.ModelError, match="/title: 7 is not of type") as raised:
        context.agent().run()
    assert raised.value.code == "model_output_invalid"
    assert "/title" in raised.value.detail["problems"][0]
    context.close()


def test_a_model_that_never_answers_or_calls_rightly_is_told(agents: AgentCapsule) -> None:
    with pytest.raises(aod.ModelError, match="no answer in the form of the schema") as raised:
        agents.scripted(*[{"text": "Well…"}] * 3).agent().run()
    assert raised.value.code == "model_output_invalid"

    def ping(number: int) -> int:
        return number

    wrong = {"tool": "ping", "args": {"number": "x"}}
    with pytest.raises(aod.ModelError, match="'ping' exceeded max retries") as raised:
        agents.scripted(wrong, wrong, DONE).agent(tools=[ping]).run()
    assert raised.value.code == "model_failed"
    unknown = {"tool": "pong", "args": {}}
    assert agents.scripted(unknown, {**DONE, "result": "pong"}).agent(tools=[ping]).run().output == {"title": "x"}


def test_files_that_an_answer_names_must_be_there_while_it_can_be_mended(agents: AgentCapsule) -> None:
    absent = {"output": {"title": "x", "picture": "a.png"}}
    (agents.io / "output/b.png").write_text("x")
    (agents.io / "handoff/incoming/c.png").write_text("from a callee")
    (agents.io / "workspace/tool-results").mkdir(parents=True)
    (agents.io / "workspace/tool-results/d-1.png").write_text("from a tool")
    context = agents.scripted(absent, {"output": {"title": "x", "picture": "/io/output/b.png"}})
    assert context.agent().run().output == {"title": "x", "picture": "b.png"}
    for name, text in {"c.png": "from a callee", "d-1.png": "from a tool"}.items():
        context = agents.scripted({"output": {"title": "x", "picture": name}})
        assert context.agent().run().output["picture"] == name
        assert (agents.io / "output" / name).read_text() == text


def test_a_form_of_ones_own(agents: AgentCapsule) -> None:
    schema = {
        "properties": {"n": {"$ref": "#/$defs/number"}},
        "required": ["n"],
        "$defs": {"number": {"type": "integer"}},
    }
    context = agents.scripted({"output": {"n": "1"}}, {"output": {"n": 1}})
    assert context.agent().run(output_schema=schema).output == {"n": 1}
    recursive = {
        "properties": {"tree": {"$ref": "#/$defs/tree"}},
        "$defs": {"tree": {"type": "object", "properties": {"below": {"$ref": "#/$defs/tree"}}}},
    }
    context = agents.scripted({"output": {"tree": {"below": 7}}}, {"output": {"tree": {"below": {}}}})
    assert context.agent().run(output_schema=recursive).output == {"tree": {"below": {}}}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("Look at {{ pages }} pages", None),
        ("{% if %}", r"src/ai/task\.md is not a valid template: line 1"),
        ("{{ nothing }}", r"cannot render src/ai/task\.md: 'nothing' is undefined"),
        ("{{ pages.__class__.__mro__ }}", r"cannot render .*unsafe"),
        ("{{ pages + 'x' }}", "cannot render"),
        ("   ", "the agent has no task"),
    ],
)
def test_prompts_are_templates_of_the_inputs(
    agents: AgentCapsule, told: Told, template: str, expected: str | None
) -> None:
    files = {"src/ai/task.md": template, "agent.yaml": {"telemetry": {"capture_content": True}}}
    agents.scripted(DONE, **files)
    agents.write(**{"src/ai/system.md": "You read {{ kind }}."})
    agent = agents.context(pages=3, kind="books").agent()
    if expected is None:
        agent.run()
        assert told.events("agent.start")[0]["content"] == {"system": "You read books.", "task": "Look at 3 pages"}
    else:
        with pytest.raises(aod.CapsuleInvalid, match=expected):
            agent.run()


def test_texts_from_code_are_taken_as_they_are(agents: AgentCapsule, told: Told) -> None:
    files = {"agent.yaml": {"prompts": {"task": "other.md"}, "telemetry": {"capture_content": True}}}
    context = agents.scripted(DONE, DONE, **files, **{"other.md": "{{ n }}"})
    context.agent(system="{{ a }}").run("{{ b }}")
    context.agent().run(inputs={"n": 5})
    contents = [event["content"] for event in told.events("agent.start")]
    assert contents == [{"system": "{{ a }}", "task": "{{ b }}"}, {"system": None, "task": "5"}]


def test_what_is_said_is_told_only_on_request(agents: AgentCapsule, told: Told) -> None:
    agents.scripted(DONE).agent().run("a secret task")
    assert "secret" not in str(told.lines())
    assert "title" not in str(told.lines())
    (response,) = told.events("model.response")
    assert {"event", "model", "attempt", "duration_ms", "input_tokens", "output_tokens"} <= response.keys()


@pytest.mark.parametrize(
    ("limits", "limit", "steps"),
    [
        ({"max_turns": 2}, "max_turns", [{"text": "no"}] * 2),
        ({"max_tool_calls": 1}, "max_tool_calls", [{"tools": [{"tool": "ping"}, {"tool": "ping"}]}]),
        ({"max_output_tokens": 10}, "max_output_tokens", [{**DONE, "usage": {"output_tokens": 11}}]),
        ({"max_total_tokens": 10}, "max_total_tokens", [{**DONE, "usage": {"input_tokens": 6, "output_tokens": 5}}]),
        ({"timeout_s": 1}, "timeout_s", [{"tool": "wait"}]),
    ],
)
def test_limits_end_the_agent_and_say_which(
    agents: AgentCapsule, told: Told, limits: dict[str, int], limit: str, steps: list[Any]
) -> None:
    async def ping() -> str:
        return "pong"

    async def wait() -> None:
        await asyncio.sleep(60)

    context = agents.scripted(*steps, **{"agent.yaml": {"limits": limits, "retries": {"output": 9}}})
    with pytest.raises(aod.LimitExceeded, match=limit) as raised:
        context.agent(tools=[ping, wait]).run()
    assert (raised.value.code, raised.value.exit_code) == ("limit_exceeded", 5)
    assert raised.value.detail["limit"] == limit
    assert raised.value.detail["usage"].keys() >= {"requests", "tool_calls", "input_tokens", "output_tokens"}
    assert told.events("limit")[0]["limit"] == limit


def test_only_the_limits_of_agent_yaml_hold(agents: AgentCapsule) -> None:
    def ping() -> None: ...

    limits = {"agent.yaml": {"limits": {"max_turns": 61, "max_tool_calls": 60}}}
    context = agents.scripted(*[{"tool": "ping"}] * 60, DONE, **limits)
    assert context.agent(tools=[ping]).run().usage.requests == 61


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([{"text": "a"}], "all 1 steps are used"),
        ([{**DONE, "offered": ["ping"]}], r"has the tools \['ping', 'pong'\]; expected \['ping'\]"),
        ([{"tool": "ping"}, {**DONE, "result": "nothing like it"}], "the last tool returned .*; expected"),
        ([{"tool": "ping"}, {**DONE, "result": {"b": 1}}], "the last tool returned .*; expected"),
        ([{**DONE, "result": "x"}], "the last tool returned no result"),
    ],
)
def test_a_script_that_is_not_followed_fails(agents: AgentCapsule, steps: list[Any], expected: str) -> None:
    def ping() -> dict[str, int]:
        return {"a": 1}

    def pong() -> None: ...

    with pytest.raises(aod.ModelError, match=expected) as raised:
        agents.scripted(*steps).agent(tools=[ping, pong]).run()
    assert raised.value.code == "script_failed"


def test_a_script_that_is_followed_passes(agents: AgentCapsule) -> None:
    def ping() -> dict[str, Any]:
        return {"a": 1, "b": [2]}

    steps = [
        {"error": {"status": 503, "retry_after": 0}},
        {"error": {"connection": "gone"}},
        {"tool": "ping", "offered": ["ping"]},
        {"text": "so", "result": {"a": 1}},
        {**DONE, "result": '"b"'},
    ]
    context = agents.scripted(*steps)
    assert context.agent(tools=[ping]).run().output == {"title": "x"}
    context.close()


def test_steps_that_are_left_fail_the_run(agents: AgentCapsule, capsule: Capsule) -> None:
    context = agents.scripted(DONE, {"text": "never said"})
    context.agent().run()
    with pytest.raises(aod.ModelError, match="1 of 2 steps were used"):
        context.close()
    capsule.environment["AOD_MODEL"] = "script/script.yaml"
    main = "def execute(inputs, ctx):\n    return ctx.agent().run(f'{inputs[\"n\"]}').output"
    capsule.write(main, {"input": {}, "output": TITLE}, {"n": 1})
    (capsule.directory / "script.yaml").write_text('[{"output": {"title": "x"}}, {"text": "left"}]')
    ended = capsule.ended(capsule.start())
    assert (ended.exit_code, ended.output["error"]["code"]) == (6, "script_failed")


def test_a_script_has_lists_for_several_agents(agents: AgentCapsule) -> None:
    agents.write(**{"script.yaml": {"cheap": [{"output": {"title": "c"}}], "default": [DONE]}})
    agents.set(AOD_MODEL="script/script.yaml")
    context = agents.context()
    assert context.agent("cheap").run().output == {"title": "c"}
    assert context.agent().run().output == {"title": "x"}
    context.close()
    with pytest.raises(aod.CapsuleInvalid, match="dear: nothing found"):
        context.agent("dear").run()


def test_a_script_that_is_wrong_is_told_whole(agents: AgentCapsule) -> None:
    context = agents.scripted({"txt": "x"}, "y", {"text": "a", "tool": "b"})
    with pytest.raises(aod.CapsuleInvalid) as raised:
        context.agent().run()
    assert [problem.partition(":")[0] for problem in raised.value.problems] == ["step 1", "step 1", "step 2", "step 3"]


def test_manifests_with_wrong_fields_are_told_whole(agents: AgentCapsule) -> None:
    agents.write(
        **{
            "agent.yaml": {"model": 7, "retries": {"model": -1}, "output_mode": "x", "models": {"a": {"model": "m"}}},
            "tools.yaml": {
                "capsules": [{"as": "x", "args": "y"}],
                "mcp_servers": {"s": {"allow": ["a"]}},
                "python": "x",
            },
        }
    )
    with pytest.raises(aod.CapsuleInvalid) as agent:
        read_agent(agents.directory)
    assert {problem.partition(":")[0] for problem in agent.value.problems} == {
        "model",
        "retries.model",
        "output_mode",
        "models.a.provider",
    }
    with pytest.raises(aod.CapsuleInvalid) as tools:
        read_tools(agents.directory)
    places = {problem.partition(":")[0] for problem in tools.value.problems}
    assert places == {"capsules[0].name", "capsules[0].args", "mcp_servers.s.command", "python"}
    agents.write(**{"agent.yaml": "a: [", "tools.yaml": "[{name: own, description: x}, Capsule B]"})
    with pytest.raises(aod.CapsuleInvalid, match=r"agent\.yaml is unreadable"):
        read_agent(agents.directory)
    assert [tool.target for tool in read_tools(agents.directory).capsules] == ["Capsule B"]


def test_manifests_of_agent_on_demand_load(agents: AgentCapsule) -> None:
    agents.write(
        **{"agent.yaml": "model: gpt-4o\ntemperature: 0.2\nmax_tokens: 100\nsettings: {max_tokens: 7, thinking: off}"}
    )
    manifest = read_agent(agents.directory)
    assert (manifest.model, manifest.settings.temperature, manifest.settings.max_tokens) == ("gpt-4o", 0.2, 7)
    assert manifest.settings.thinking == "off"


def test_nothing_of_the_agent_is_loaded_before_it_runs(tmp_path: Path) -> None:
    heavy = "('pydantic_ai', 'pydantic', 'mcp', 'openai', 'anthropic', 'google', 'jinja2', 'yaml', 'asyncio')"
    program = (
        "import sys, aod, aod.bridge\n"
        "context = aod.Context(); context.close()\n"
        f"print([name for name in {heavy} if name in sys.modules])\n"
        "context.agent()\n"
        f"print([name for name in {heavy[:-11]}) if name in sys.modules])\n"
    )
    command = [sys.executable, "-c", program]
    environment = {"PYTHONPATH": str(SOURCES)}
    ran = subprocess.run(command, check=True, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert (ran.stdout.splitlines(), ran.stderr) == (["[]", "[]"], "")


def test_a_missing_library_is_told_with_its_extra(agents: AgentCapsule, monkeypatch: pytest.MonkeyPatch) -> None:
    context = agents.scripted(DONE)
    monkeypatch.delitem(sys.modules, "aod.agent.loop", raising=False)
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(aod.CapsuleInvalid, match=r"expected the extra aod-capsule\[agent\]"):
        context.agent().run()


def test_a_form_may_hold_files_anywhere(agents: AgentCapsule) -> None:
    schema = {"properties": {"pictures": {"type": "array", "items": FILE}}}
    context = agents.scripted({"output": {"pictures": ["a.png"]}}, {"output": {"pictures": []}})
    assert context.agent().run(output_schema=schema).output == {"pictures": []}
