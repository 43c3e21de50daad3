"""Calls to other capsules, with a double of the orchestrator over real HTTP."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

import aod
from aod import handoff
from orchestrator import Callee, Orchestrator


@pytest.fixture
def context(orchestrator: Orchestrator) -> aod.Context:
    return aod.Context()


def keys(orchestrator: Orchestrator) -> list[str]:
    return [key for method, path, key in orchestrator.requests if path == "/handoff" and key]


def test_an_answer_has_output_files_and_run(orchestrator: Orchestrator, context: aod.Context) -> None:
    orchestrator.on_call = lambda callee: callee.succeed({"f": "a-2.txt"}, {"a.txt": "a-2.txt"})
    answer = context.call(
        "Capsule B", {"n": 1}, timeout=1.5, retries={"capsule": 2}, limits={"queue_seconds": 30}, pool="x"
    )
    incoming = Path(orchestrator.io) / "handoff/incoming/a-2.txt"
    assert answer == aod.Answer({"f": "a-2.txt"}, {"a.txt": incoming}, "run_0")
    (callee,) = orchestrator.callees.values()
    more = {"timeout_seconds": 2, "retries": {"capsule": 2}, "limits": {"queue_seconds": 30}, "pool": "x"}
    assert callee.body == {"target": "Capsule B", "args": {"n": 1}, **more}
    with pytest.raises(FileNotFoundError, match=r"a-2\.txt"):
        context.incoming_file(answer.output["f"])
    incoming.write_text("x")
    assert context.incoming_file(answer.output["f"]).read_text() == "x"


def test_a_failed_callee_tells_all_of_it(orchestrator: Orchestrator, context: aod.Context) -> None:
    orchestrator.on_call = lambda callee: callee.fail("no_rows", detail={"rows": 0}, retryable=True)
    with pytest.raises(aod.HandoffFailed, match="'b' failed: it is no_rows") as failed:
        context.call("b", {})
    error = failed.value
    assert (error.code, error.detail, error.retryable) == ("no_rows", {"rows": 0}, True)
    assert (error.source, error.run_id, error.target) == ("capsule", "run_0", "b")
    assert not isinstance(error, aod.HandoffTimedOut)
    orchestrator.on_call = lambda callee: callee.fail("timed_out", "caller")
    with pytest.raises(aod.HandoffTimedOut):
        context.call("b", {})


def test_a_refusal_has_its_problems_and_is_not_repeated(orchestrator: Orchestrator, context: aod.Context) -> None:
    problem = {
        "code": "arguments_invalid",
        "detail": "they do not fit",
        "errors": [{"pointer": "/args/n", "message": "no"}],
    }
    orchestrator.refusals = [(422, {}, problem)]
    with pytest.raises(aod.HandoffRefused, match="they do not fit; /args/n: no") as refused:
        context.call("b", {"n": "x"})
    assert (refused.value.status, refused.value.code) == (422, "arguments_invalid")
    assert refused.value.problems == problem["errors"]
    assert len(orchestrator.requests) == 1
    context.call("b", {"n": "x"})
    assert len(set(keys(orchestrator))) == 1, "a call that was not taken has not come about"


def test_what_is_not_taken_now_is_asked_again_with_the_same_key(
    orchestrator: Orchestrator, context: aod.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    not_now = {"code": "too_many_calls", "detail": "wait"}
    orchestrator.refusals = [(429, {"Retry-After": "2"}, not_now), (503, {}, not_now)]
    assert context.call("b", {}).output == {"echo": {}}
    assert pauses == [2.0, 0.2]
    assert len(keys(orchestrator)) == 3
    assert len(set(keys(orchestrator))) == 1


def test_patience_ends(orchestrator: Orchestrator, context: aod.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handoff, "UNAVAILABLE_SECONDS_MAX", 0.0)
    orchestrator.refusals = [
        (503, {}, {"code": "store_unavailable", "detail": "no store"}),
        (500, {}, {"code": "internal"}),
    ]
    with pytest.raises(aod.HandoffUnavailable, match="no store") as unavailable:
        context.call("b", {})
    assert (unavailable.value.code, unavailable.value.retryable) == ("store_unavailable", True)
    with pytest.raises(aod.HandoffUnavailable, match="status 500"):
        context.call("b", {})
    assert len(set(keys(orchestrator))) == 1, "a call that was never taken is the same one when it is said again"
    context.call("b", {})
    context.call("b", {})
    assert len(set(keys(orchestrator))) == 2


def test_nobody_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AOD_IO", str(tmp_path))
    for variable in ("AOD_URL", "ORCHESTRATOR_URL"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(aod.HandoffUnavailable, match="AOD_URL is not set"):
        aod.Context().call("b", {})
    monkeypatch.setattr(handoff, "UNAVAILABLE_SECONDS_MAX", 0.0)
    monkeypatch.setenv("AOD_URL", "http://127.0.0.1:1")
    with pytest.raises(aod.HandoffUnavailable) as unavailable:
        aod.Context().call("b", {})
    assert unavailable.value.code == "orchestrator_lost"
    monkeypatch.setenv("AOD_URL", "127.0.0.1:1")
    with pytest.raises(ValueError, match="http://HOST:PORT"):
        aod.Context().call("b", {})


def test_a_connection_that_breaks_is_asked_again_and_joins(orchestrator: Orchestrator, context: aod.Context) -> None:
    orchestrator.breaks = 2
    assert context.call("b", {"n": 1}).run_id == "run_0"
    assert len(keys(orchestrator)) == 3
    assert len(orchestrator.callees) == 1


def test_retries_restart_after_an_accepted_call(
    orchestrator: Orchestrator, context: aod.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    orchestrator.breaks = 3
    context.call("b", {})
    assert pauses == [handoff.PAUSE_SECONDS_MIN] * 3


def test_a_key_knows_the_contents_of_files(orchestrator: Orchestrator, context: aod.Context) -> None:
    def make(context: aod.Context, texts: tuple[str, ...]) -> set[str]:
        orchestrator.requests.clear()
        for text in texts:
            context.outgoing_file("sub/a.txt").write_text(text)
            context.call("b", {"file": "sub/a.txt"})
            context.call("b", {"directory": "/io/handoff/outgoing/sub"})
        return set(keys(orchestrator))

    both = make(context, ("one", "two"))
    assert len(both) == 4
    assert make(aod.Context(), ("two",)) | make(aod.Context(), ("one",)) == both


def test_keys_are_the_same_in_every_attempt(orchestrator: Orchestrator, context: aod.Context) -> None:
    def make(context: aod.Context) -> list[str]:
        orchestrator.requests.clear()
        context.outgoing_file("sub/a.txt").write_text("one")
        for target, arguments in (
            ("b", {"x": 1, "y": "sub/a.txt"}),
            ("b", {"y": "sub/a.txt", "x": 1}),
            ("c", {"x": 1}),
        ):
            context.call(target, arguments)
        context.outgoing_file("sub/a.txt").write_text("two")
        context.call("b", {"x": 1, "y": "sub/a.txt"})
        context.call("b", {"y": "sub"})
        context.call("b", {}, key="mine")
        return keys(orchestrator)

    first = make(context)
    assert len(set(first)) == 6
    assert first[-1] == "mine"
    assert all(key.isascii() and len(key) <= 255 for key in first)
    assert make(aod.Context()) == first


def test_calls_in_parallel(orchestrator: Orchestrator, context: aod.Context) -> None:
    orchestrator.on_call = None
    handles = [context.start("b", {"n": number}) for number in range(60)]
    # Further calls hold no connection longer than a poll: some must stay free for cancels.
    orchestrator.wait_until(lambda: len(orchestrator.callees) == 60)
    orchestrator.wait_until(lambda: orchestrator.waiting >= handoff.WAITING_MAX)
    assert not handles[0].done()
    with pytest.raises(TimeoutError, match="it continues"):
        handles[0].result(timeout=0.0)
    for callee in reversed(orchestrator.callees.values()):
        callee.succeed(callee.body["args"])
    assert [handle.result(timeout=30).output["n"] for handle in handles] == list(range(60))
    assert all(handle.done() and handle.run_id for handle in handles)
    assert orchestrator.waiting_max <= 64


def test_a_call_is_cancelled(orchestrator: Orchestrator, context: aod.Context) -> None:
    orchestrator.on_call = None
    handle = context.start("b", {})
    orchestrator.wait_until(lambda: orchestrator.waiting == 1)
    handle.cancel()
    with pytest.raises(aod.HandoffFailed) as failed:
        handle.result(timeout=30)
    assert failed.value.code == "cancelled"
    handle.cancel()
    assert [path for _, path, _ in orchestrator.requests].count("/handoffs/run_0/cancel") == 1, "it has ended"


def test_asyncio(orchestrator: Orchestrator, context: aod.Context) -> None:
    async def both() -> list[Any]:
        calls = (context.acall("b", {"n": number}) for number in (1, 2))
        return [answer.output for answer in await asyncio.gather(*calls)]

    assert asyncio.run(both()) == [{"echo": {"n": 1}}, {"echo": {"n": 2}}]


def test_a_cancelled_task_cancels_its_call(orchestrator: Orchestrator, context: aod.Context) -> None:
    orchestrator.on_call = None

    async def cancelled() -> None:
        task = asyncio.ensure_future(context.acall("b", {}))
        await asyncio.to_thread(orchestrator.wait_until, lambda: orchestrator.waiting == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    orchestrator.wait_until(lambda: ("POST", "/handoffs/run_0/cancel", None) in orchestrator.requests)


def test_files_are_brought_and_named(orchestrator: Orchestrator, context: aod.Context, tmp_path: Path) -> None:
    outgoing = orchestrator.io / "handoff/outgoing"
    for directory, text in (("one", "1"), ("two", "2")):
        (tmp_path / directory / "pages").mkdir(parents=True)
        (tmp_path / directory / "a.csv").write_text(text)
        (tmp_path / directory / "pages" / "p.txt").write_text(text)
    one, two = tmp_path / "one" / "a.csv", tmp_path / "two" / "a.csv"

    def sent(arguments: dict[str, Any], files: tuple[Path, ...] = ()) -> Any:
        return context.call("b", arguments, files=files).output["echo"]

    assert sent({"table": one}) == {"table": "a.csv"}
    assert sent({"table": "a.csv", "word": "see a.csv"}, (one,)) == {"table": "a.csv", "word": "see a.csv"}
    assert sent({"table": "a.csv", "again": [str(two)]}, (two,)) == {"table": "a-2.csv", "again": ["a-2.csv"]}
    assert (outgoing / "a-2.csv").read_text() == "2"
    assert sent({"pages": tmp_path / "one" / "pages"}) == {"pages": "pages"}
    assert sent({"pages": tmp_path / "two" / "pages"}) == {"pages": "pages-2"}
    assert (outgoing / "pages-2" / "p.txt").read_text() == "2"
    own = context.outgoing_file("deep/own.txt")
    own.write_text("3")
    assert sent({"own": own, "pair": (1, 2)}) == {"own": "deep/own.txt", "pair": [1, 2]}
    assert sorted(path.name for path in outgoing.iterdir()) == ["a-2.csv", "a.csv", "deep", "pages", "pages-2"]
    with pytest.raises(ValueError, match="several files"):
        sent({"table": "a.csv"}, (one, two))
    with pytest.raises(FileNotFoundError):
        sent({"table": tmp_path / "gone"})
    # Files for the orchestrator must have only one name: a copy, never a link.
    assert all(path.stat().st_nlink == 1 for path in outgoing.rglob("*.csv"))


@pytest.mark.parametrize("timeout", [0, -1, math.inf, math.nan])
def test_a_timeout_is_a_time(context: aod.Context, timeout: float) -> None:
    with pytest.raises(ValueError, match="seconds above 0"):
        context.start("b", {}, timeout=timeout)


def test_arguments_are_json(context: aod.Context) -> None:
    for arguments in ({"x": object()}, {"x": float("nan")}):
        with pytest.raises(ValueError, match="not JSON"):
            context.call("b", arguments)


def test_an_answer_that_is_no_answer_is_asked_again(orchestrator: Orchestrator, context: aod.Context) -> None:
    orchestrator.refusals = [(200, {}, None), (200, {}, [])]
    assert context.call("b", {}).run_id == "run_0"


def test_the_double_refuses_one_key_for_two_requests(orchestrator: Orchestrator) -> None:
    orchestrator.callee("k", {"args": 1})
    with pytest.raises(AssertionError):
        orchestrator.callee("k", {"args": 2})
    assert isinstance(orchestrator.callees["k"], Callee)
