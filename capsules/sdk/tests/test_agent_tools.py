"""The tools of agents: MCP servers, callees, functions; the model's view of them, and leftovers."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from mcp.server.mcpserver import MCPServer

import aod
from aod.agent import mcp_process, mcp_servers
from aod.agent.manifest import McpServer
from conftest import FILE, AgentCapsule, Told
from orchestrator import Callee, Orchestrator

SERVER = str(Path(__file__).with_name("mcp_server.py"))
DONE = {"output": {"title": "x"}}
#: Ends a test that waits for a missing event.
WAIT_SECONDS_MAX = 20
#: Enables results of tools in the log.
CAPTURE: dict[str, Any] = {"agent.yaml": {"telemetry": {"capture_content": True}}}


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def result_of(told: Told) -> Any:
    """The result of the first tool."""
    return json.loads(told.events("tool.end")[0]["content"])


def servers(allow: Any = "*", **more: Any) -> dict[str, Any]:
    server = {"command": sys.executable, "args": [SERVER], "allow": allow, **more}
    return {"tools.yaml": {"mcp_servers": {"it": server}}}


def test_only_allowed_tools_are_offered_under_names_that_all_providers_take(agents: AgentCapsule) -> None:
    steps = [{"tool": "it__add", "args": {"a": 1, "b": 2}, "offered": ["it__add", "it__dotted_name"]}]
    steps.append({**DONE, "result": {"total": 3}})
    assert agents.scripted(*steps, **servers(["add", "dotted.name"])).agent().run().output == {"title": "x"}


def test_an_allowed_tool_that_is_not_there_is_an_error_at_the_start(agents: AgentCapsule) -> None:
    context = agents.scripted(DONE, **servers(["add", "subtract"]))
    with pytest.raises(aod.CapsuleInvalid, match=r"\.it\.allow: the server has no tool 'subtract'; its tools: add, "):
        context.agent().run()


def test_a_server_gets_a_clean_environment(
    agents: AgentCapsule, told: Told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mcp_process, "SECRETS", tmp_path)
    (tmp_path / "PASSWORD").write_text("hush")
    agents.set(OPENAI_API_KEY="sk-secret", OTHER="of the capsule", AOD_RUN_ID="run_1")
    tools = servers(env={"TOKEN": "say ${OTHER} ${PASSWORD}", "LEVEL": 3, "DEBUG": True})
    agents.scripted({"tool": "it__environment"}, DONE, **tools, **CAPTURE).agent().run()
    environment = json.loads(result_of(told))
    assert environment.keys() <= {*mcp_process.PASSED, "TOKEN", "LEVEL", "DEBUG"}
    assert (environment["TOKEN"], environment["LEVEL"], environment["DEBUG"]) == (
        "say of the capsule hush",
        "3",
        "true",
    )


def test_a_variable_that_is_not_set_is_told(agents: AgentCapsule) -> None:
    context = agents.scripted(DONE, **servers(env={"TOKEN": "${NOT_THERE}"}))
    with pytest.raises(aod.CapsuleInvalid, match=r"mcp_servers\.it\.env: NOT_THERE is not set"):
        context.agent().run()


def test_results_are_bounded_and_bytes_become_files(agents: AgentCapsule) -> None:
    steps = [
        {"tool": "it__long"},
        {"tool": "it__picture", "result": "[the first 65536 of 100000 bytes; the rest is omitted]"},
        {"output": {"title": "x", "picture": "it__picture-1.png"}, "result": {"files": ["it__picture-1.png"]}},
    ]
    result = agents.scripted(*steps, **servers()).agent().run()
    assert result.output["picture"] == "it__picture-1.png"
    assert (agents.io / "output/it__picture-1.png").read_bytes() == b"\x89PNG"


def test_failures_of_a_server_are_told_to_the_model(agents: AgentCapsule) -> None:
    steps = [
        {"tool": "it__fail"},
        {"tool": "it__slow", "result": "it is out of order"},
        {**DONE, "result": "gave no answer within 1 s"},
    ]
    agents.scripted(*steps, **servers(timeout_s=1)).agent().run()
    steps = [{"tool": "it__crash"}, {"tool": "it__add", "result": "failed"}, {**DONE, "result": "failed"}]
    agents.scripted(*steps, **servers()).agent().run()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["/not/there"], "cannot start MCP server .*No such file"),
        ([sys.executable, "-c", "raise SystemExit(3)"], "ended with exit code 3"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "no answer within 1 s"),
        ([sys.executable, "-c", "print('hello', flush=True); input()"], "MCP server 'it'"),
    ],
)
def test_a_server_that_does_not_start_is_an_error(
    agents: AgentCapsule, monkeypatch: pytest.MonkeyPatch, command: list[str], expected: str
) -> None:
    monkeypatch.setattr(mcp_servers, "START_SECONDS_MAX", 1.0)
    context = agents.scripted(DONE, **servers(command=command[0], args=command[1:]))
    with pytest.raises(aod.CapsuleError, match=expected) as raised:
        context.agent().run()
    assert raised.value.code == "mcp_server_failed"


def test_nothing_that_a_server_started_is_left(agents: AgentCapsule, told: Told) -> None:
    starts = agents.directory / "starts"
    agents.scripted({"tool": "it__child"}, DONE, **servers(env={"STARTS": str(starts)}), **CAPTURE).agent().run()
    pids = [int(result_of(told)), *map(int, starts.read_text().split())]
    assert len(pids) == 2
    wait_until(lambda: not any(map(is_alive, pids)))


def test_agents_at_one_time_share_servers_and_later_ones_start_their_own(agents: AgentCapsule) -> None:
    starts = agents.directory / "starts"
    call = {"tool": "it__add", "args": {"a": 1, "b": 2}}
    context = agents.scripted(*[call] * 3, *[DONE] * 3, **servers(env={"STARTS": str(starts)}))

    async def three() -> None:
        await asyncio.gather(*(context.agent().arun() for _ in range(3)))

    asyncio.run(three())
    assert len(starts.read_text().split()) == 1
    agents.scripted(DONE)
    agents.context().agent().run()
    assert len(starts.read_text().split()) == 2
    wait_until(lambda: not any(is_alive(int(pid)) for pid in starts.read_text().split()))


def test_servers_end_when_the_agent_fails(agents: AgentCapsule) -> None:
    starts = agents.directory / "starts"
    files = servers(env={"STARTS": str(starts)}, timeout_s=60)
    context = agents.scripted({"tool": "it__slow"}, **files, **{"agent.yaml": {"limits": {"timeout_s": 3}}})
    with pytest.raises(aod.LimitExceeded):
        context.agent().run()
    wait_until(lambda: not any(is_alive(int(pid)) for pid in starts.read_text().split()))


def test_the_errors_of_a_server_are_in_the_log(agents: AgentCapsule, told: Told) -> None:
    agents.scripted(DONE, **servers()).agent().run()
    wait_until(lambda: any(line.get("fields", {}).get("server") == "it" for line in told.lines()))


@contextmanager
def remote_server() -> Iterator[tuple[str, list[dict[bytes, bytes]]]]:
    """The address of an official MCP server over HTTP, and the headers of its requests."""
    server = MCPServer("remote")

    @server.tool()
    def double(number: int) -> int:
        return 2 * number

    inner, asked = server.streamable_http_app(), []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            asked.append(dict(scope["headers"]))
        await inner(scope, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        program = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=program.run, args=([listener],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", asked
        finally:
            program.should_exit = True
            thread.join()


def test_a_server_may_run_elsewhere(agents: AgentCapsule) -> None:
    with remote_server() as (url, asked):
        agents.set(TOKEN="hush")
        headers = {"Authorization": "Bearer ${TOKEN}"}
        tools = {"mcp_servers": {"far": {"url": url, "headers": headers, "allow": ["double"]}}}
        steps = [{"tool": "far__double", "args": {"number": 4}}, {**DONE, "result": {"result": 8}}]
        agents.scripted(*steps, **{"tools.yaml": tools}).agent().run()
        assert {request[b"authorization"] for request in asked} == {b"Bearer hush"}
    with pytest.raises(aod.CapsuleError, match="MCP server 'far'") as raised:
        agents.scripted(DONE).agent().run()
    assert raised.value.code == "mcp_server_failed"


@pytest.fixture
def callees(agents: AgentCapsule, orchestrator: Orchestrator) -> Orchestrator:
    agents.io = orchestrator.io
    agents.set(AOD_IO=str(orchestrator.io))
    schema = {
        "input": {
            "required": ["table", "kind"],
            "properties": {"table": FILE, "kind": {"enum": ["bar", "line"]}, "size": {"type": "integer"}},
        },
        "output": {},
    }
    orchestrator.capsules = {
        "chart": {"title": "Chart", "aliases": ["Plot it"], "description": "Draws a chart.", "schema": schema},
        "capsule-b": {"title": "Capsule B", "schema": {"input": {}, "output": {}}},
    }
    return orchestrator


def tools_of(callees: list[Any]) -> dict[str, Any]:
    return {"tools.yaml": {"capsules": callees}}


def test_a_callee_is_a_tool_by_its_own_schema(agents: AgentCapsule, callees: Orchestrator) -> None:
    (agents.io / "input/t.csv").write_text("a,b")

    def drawn(callee: Callee) -> None:
        (agents.io / "handoff/incoming/chart.png").write_text("picture")
        callee.succeed({"picture": "chart.png"}, {"chart.png": "chart.png"})

    callees.on_call = drawn
    steps = [
        {"tool": "chart", "args": {"table": "none.csv", "kind": "pie", "size": "x"}, "offered": ["chart"]},
        {"tool": "chart", "args": {"table": "none.csv", "kind": "bar"}, "result": "/kind"},
        {"tool": "chart", "args": {"table": "t.csv", "kind": "bar"}, "result": "/table"},
        {
            "output": {"title": "x", "picture": "chart.png"},
            "result": {"output": {"picture": "chart.png"}, "files": ["chart.png"]},
        },
    ]
    files = tools_of([{"name": "Chart", "timeout_s": 30}, {"name": "capsule-b", "visible_to_ai": False}])
    context = agents.scripted(*steps, **files, **{"agent.yaml": {"retries": {"tool": 2}}})
    result = context.agent().run()
    (callee,) = callees.callees.values()
    assert callee.body == {"target": "Chart", "args": {"table": "t.csv", "kind": "bar"}, "timeout_seconds": 30}
    assert (agents.io / "handoff/outgoing/t.csv").read_text() == "a,b"
    assert result.output["picture"] == "chart.png"
    assert (agents.io / "output/chart.png").read_text() == "picture"


def test_a_callee_has_the_name_words_and_arguments_that_tools_yaml_gives(
    agents: AgentCapsule, callees: Orchestrator
) -> None:
    (agents.io / "input/t.csv").write_text("a,b")
    grant = {"name": "Plot it", "as": "draw", "description": "Draws bars.", "args": {"kind": "bar"}}
    context = agents.scripted({"tool": "draw", "args": {"table": "t.csv"}}, DONE, **tools_of([grant]))
    context.agent().run()
    (callee,) = callees.callees.values()
    assert callee.body["args"] == {"table": "t.csv", "kind": "bar"}
    assert context._session is not None
    (tool,) = context._session.callees
    assert (tool.name, tool.description) == ("draw", "Draws bars.")
    assert (tool.parameters["required"], sorted(tool.parameters["properties"])) == (["table"], ["size", "table"])


def test_what_a_callee_does_not_do_is_told_to_the_model(agents: AgentCapsule, callees: Orchestrator) -> None:
    callees.on_call = lambda callee: callee.fail("no_rows", detail={"rows": 0})
    problem = {"code": "arguments_invalid", "detail": "no fit", "errors": [{"pointer": "/args/n", "message": "bad"}]}
    callees.refusals = [(422, {}, problem), (403, {}, {"code": "target_not_allowed", "detail": "not you"})]
    call = {"tool": "capsule-b", "args": {"n": 1}}
    steps = [
        call,
        {**call, "result": "/args/n: bad"},
        {**call, "result": "not you (target_not_allowed)"},
        {**DONE, "result": 'it is no_rows (no_rows); {"rows": 0}'},
    ]
    agents.scripted(*steps, **tools_of(["Capsule B"])).agent().run()


def test_an_orchestrator_that_cannot_now_ends_the_agent(
    agents: AgentCapsule, callees: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aod.handoff.UNAVAILABLE_SECONDS_MAX", 0.1)
    callees.refusals = [(503, {}, {"code": "unavailable", "detail": "not now"})] * 99
    context = agents.scripted({"tool": "capsule-b"}, **tools_of(["capsule-b"]))
    with pytest.raises(aod.HandoffUnavailable, match="not now"):
        context.agent().run()
    monkeypatch.delenv("AOD_URL")
    with pytest.raises(aod.HandoffUnavailable, match="AOD_URL is not set"):
        agents.scripted(DONE, **tools_of(["capsule-b"])).agent().run()


def test_a_callee_that_may_not_be_called_is_told_with_those_that_may(
    agents: AgentCapsule, callees: Orchestrator
) -> None:
    with pytest.raises(
        aod.CapsuleInvalid, match="'other' is not a capsule that may be called; expected one of: capsule-b, chart"
    ):
        agents.scripted(DONE, **tools_of(["other", "chart"])).agent().run()


def test_a_call_under_way_is_cancelled_when_the_agent_is_out_of_time(
    agents: AgentCapsule, callees: Orchestrator
) -> None:
    callees.on_call = None
    context = agents.scripted(
        {"tool": "capsule-b"}, **tools_of(["capsule-b"]), **{"agent.yaml": {"limits": {"timeout_s": 1}}}
    )
    with pytest.raises(aod.LimitExceeded, match="timeout_s"):
        context.agent().run()
    callees.wait_until(lambda: any(path.endswith("/cancel") for _, path, _ in callees.requests))


def test_functions_are_tools_by_their_hints_and_docstrings(agents: AgentCapsule) -> None:
    source = '''
import aod

def shout(text: str, times: int = 1) -> str:
    """Says it louder."""
    if times > 2:
        raise aod.ToolError("that is too loud")
    return text.upper() * times

async def boom() -> None:
    raise KeyError("a bug")
'''
    files = {"src/of_test/tools.py": source, "tools.yaml": {"python": ["src.of_test.tools:shout"]}}
    steps = [
        {"tool": "shout", "args": {"text": "a", "times": "many"}, "offered": ["shout"]},
        {"tool": "shout", "args": {"text": "a", "times": 3}, "result": "times"},
        {"tool": "shout", "args": {"text": "a", "times": 2}, "result": "that is too loud"},
        {**DONE, "result": "AA"},
    ]
    agents.scripted(*steps, **files).agent().run()
    agents.write(**{"tools.yaml": {"python": ["src.of_test.tools:boom"]}})
    with pytest.raises(KeyError, match="a bug"):
        agents.scripted({"tool": "boom"}).agent().run()
    agents.write(**{"tools.yaml": {"python": ["src.of_test.tools:nothing", "src.of_test.nothing:x"]}})
    with pytest.raises(aod.CapsuleInvalid) as raised:
        agents.scripted(DONE).agent().run()
    assert len(raised.value.problems) == 2


def test_two_tools_of_one_name_are_an_error(agents: AgentCapsule) -> None:
    def it__add() -> None: ...

    with pytest.raises(aod.CapsuleInvalid, match="it__add"):
        agents.scripted(DONE, **servers(["add"])).agent(tools=[it__add]).run()


def test_tool_events_tell_who_took_how_long(agents: AgentCapsule, told: Told) -> None:
    def ping(secret: str) -> str:
        return secret

    agents.scripted({"tool": "ping", "args": {"secret": "hush"}}, DONE).agent(tools=[ping]).run()
    assert told.events("tool.start") == [{"event": "tool.start", "tool": "ping"}]
    (end,) = told.events("tool.end")
    assert end.keys() == {"event", "tool", "duration_ms"}
    assert "hush" not in str(told.lines())


def test_a_process_is_not_waited_for_before_its_group_has_ended(tmp_path: Path) -> None:
    script = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])"
    server = McpServer("x", sys.executable, ["-c", script], {}, None, {}, None, None)
    process = mcp_process.McpProcess(server, tmp_path)
    wait_until(lambda: process.exit_code() is not None)
    group = process.process.pid
    process.end()

    def is_empty() -> bool:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        return False

    wait_until(is_empty)
