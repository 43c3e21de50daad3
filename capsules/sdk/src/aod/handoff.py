"""Calls to other capsules: keys, waits, results.

The orchestrator identifies a call by its key. Each call has a key that is derived from its content and never random: a
retry after a broken connection joins the same callee, and so does a new attempt of the run after its host died. The
orchestrator would also derive a key, but might count a repeated request as another identical call, as long as it has
not noticed that the first connection is closed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .channel import Broken, Channel, Reply
from .directories import Directories
from .errors import HandoffFailed, HandoffRefused, HandoffTimedOut, HandoffUnavailable
from .outgoing import Outgoing

#: How long a call is retried that is not accepted (429, 503) or not answered, in seconds.
UNAVAILABLE_SECONDS_MAX = 60.0
#: First and maximum pause before a retry; pauses double. Retry-After may extend them.
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.1, 5.0
#: Maximum waiting requests: the orchestrator serves 64 connections of a run, and some must stay free for others.
WAITING_MAX = 48
#: Polling interval of calls beyond that maximum, in seconds.
POLL_SECONDS = 1.0
#: Maximum wait of a poll, in seconds.
POLL_WAIT_SECONDS = 300
#: Maximum wait for the answer to a cancellation, in seconds.
CANCEL_SECONDS_MAX = 5.0
#: When the run is stopped: maximum wait for the ids of calls just sent, and for all cancellations.
STORE_SECONDS_MAX, STOP_SECONDS_MAX = 1.0, 3.0

_TOOK_TOO_LONG = ("timed_out", "queue_timed_out", "heartbeat_missed", "deadline_exceeded")
NOT_NOW = (429, 503)


class Answer(NamedTuple):
    """The answer of a callee.

    ``files`` maps the callee's names of its files to their paths here; ``output`` contains their names here, which
    differ if two callees used the same name.
    """

    output: dict[str, Any]
    files: dict[str, Path]
    run_id: str


class Handle:
    """A started call."""

    def __init__(self, call: _Call, perform: Callable[[_Call], Answer]) -> None:
        self._call = call
        self._ended = threading.Event()
        self._outcome: Answer | BaseException | None = None
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._run, args=(perform,), name=f"call of {call.target}", daemon=True).start()

    def _run(self, perform: Callable[[_Call], Answer]) -> None:
        try:
            self._outcome = perform(self._call)
        except BaseException as error:
            self._outcome = error
        with self._lock:
            self._ended.set()
        for listener in self._listeners:
            listener()

    @property
    def run_id(self) -> str | None:
        """The callee's run; None until the orchestrator has stored the call."""
        return self._call.run_id

    def done(self) -> bool:
        return self._ended.is_set()

    def result(self, timeout: float | None = None) -> Answer:
        """Waits for the callee's end, at most ``timeout`` seconds; can be repeated.

        Raises TimeoutError, HandoffRefused, HandoffFailed, HandoffTimedOut, HandoffUnavailable.
        """
        if not self._ended.wait(timeout):
            raise TimeoutError(f"the call to {self._call.target!r} has not ended after {timeout} s; it continues")
        return self._result()

    def _result(self) -> Answer:
        if isinstance(self._outcome, Answer):
            return self._outcome
        assert self._outcome is not None
        raise self._outcome

    def cancel(self) -> None:
        """Cancels the callee and all its callees; ``result`` then raises HandoffFailed ("cancelled")."""
        self._call.cancel(CANCEL_SECONDS_MAX)

    def when_done(self, listener: Callable[[], None]) -> None:
        """Calls ``listener`` when the call has ended, on any thread."""
        with self._lock:
            if not self._ended.is_set():
                self._listeners.append(listener)
                return
        listener()

    async def wait(self) -> Answer:
        """``result`` for asyncio; cancelling the task cancels the call."""
        import asyncio

        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)

        self.when_done(wake)
        try:
            await ended.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self._result()


class _Call:
    """One call: its request and its state."""

    def __init__(self, channel: Channel, target: str, body: dict[str, Any], key: str) -> None:
        self.channel = channel
        self.target = target
        self.body = body
        self.key = key
        self.run_id: str | None = None
        self.is_cancelled = False
        self.is_open = True

    def cancel(self, seconds_max: float) -> None:
        self.is_cancelled = True
        if self.run_id and self.is_open:
            try:
                self.channel.ask("POST", f"/handoffs/{self.run_id}/cancel", answer_seconds_max=seconds_max)
            except Broken:
                pass  # The orchestrator also ends the callees of an ended run.

    def stored(self, run_id: str) -> None:
        self.run_id = run_id
        if self.is_cancelled:
            self.cancel(CANCEL_SECONDS_MAX)


class Handoffs:
    """The calls of a run."""

    def __init__(self, channel: Channel | None, directories: Directories) -> None:
        self._channel = channel
        self._incoming = directories.path("incoming")
        self._outgoing = Outgoing(directories)
        self._occurrences = _Occurrences()
        self._turns = threading.BoundedSemaphore(WAITING_MAX)
        self._calls: list[_Call] = []

    def start(
        self,
        target: str,
        arguments: Mapping[str, Any],
        files: Iterable[str | os.PathLike[str]],
        key: str | None,
        options: dict[str, Any],
    ) -> Handle:
        """Prepares the files and starts the call; ``options`` are more fields of the request, without None."""
        if self._channel is None:
            raise HandoffUnavailable(target, "no_orchestrator", "AOD_URL is not set; expected to run in a container")
        prepared = self._outgoing.prepare(dict(arguments), files)
        signature = _hash(target, prepared, self._outgoing.digests(prepared))
        occurrence = self._occurrences.take(signature) if key is None else 0
        body = {"target": target, "args": prepared, **options}
        call = _Call(self._channel, target, body, key or "aod-" + _hash(signature, occurrence))
        self._calls = [*(known for known in self._calls if known.is_open), call]

        def perform(call: _Call) -> Answer:
            try:
                return self._answer(call, self._reply(call))
            except (HandoffRefused, HandoffUnavailable):
                if key is None:
                    self._occurrences.give_back(signature, occurrence)
                raise
            finally:
                call.is_open = False

        return Handle(call, perform)

    def cancel_all(self) -> None:
        """Cancels calls in progress, within a few seconds. Takes no lock: for signal handlers."""
        began = time.monotonic()
        for call in self._calls:
            # A call that was just sent gets its run's id shortly.
            while call.is_open and call.run_id is None and time.monotonic() < began + STORE_SECONDS_MAX:
                time.sleep(0.01)
            left = began + STOP_SECONDS_MAX - time.monotonic()
            if left > 0:
                call.cancel(left)

    def _reply(self, call: _Call) -> Reply:
        """Retries until there is a final answer."""
        patience = Patience()

        def on_head(run_id: str) -> None:
            patience.renew()
            call.stored(run_id)

        while True:
            if call.is_cancelled and call.run_id is None:
                error = {"code": "cancelled", "message": "cancelled before it was sent", "source": "caller"}
                raise HandoffFailed(call.target, {**error, "retryable": True}, None)
            try:
                reply = self._ask(call, on_head)
                if reply.status == 200 and "success" not in reply.document:
                    raise Broken("the answer is empty")
                if reply.status not in NOT_NOW:
                    return reply
                code, message, _ = told(reply)
                seconds = reply.retry_after_seconds
            except Broken as broken:
                code, message, seconds = "orchestrator_lost", f"no complete answer: {broken}", 0.0
            if not patience.pause(seconds):
                raise HandoffUnavailable(call.target, code, message)

    def _ask(self, call: _Call, on_head: Callable[[str], None]) -> Reply:
        headers = {"Idempotency-Key": call.key}
        if self._turns.acquire(blocking=False):
            try:
                return call.channel.ask("POST", "/handoff", call.body, headers, on_head=on_head)
            finally:
                self._turns.release()
        headers["Prefer"] = "respond-async"
        reply = call.channel.ask("POST", "/handoff", call.body, headers, on_head=on_head)
        while reply.status == 202:
            has_turn = self._turns.acquire(timeout=POLL_SECONDS)
            try:
                seconds = POLL_WAIT_SECONDS if has_turn else 0
                reply = call.channel.ask("GET", f"/handoffs/{call.run_id}?wait={seconds}")
            finally:
                if has_turn:
                    self._turns.release()
        return reply

    def _answer(self, call: _Call, reply: Reply) -> Answer:
        document = reply.document
        if reply.status >= 500:
            code, message, _ = told(reply)
            raise HandoffUnavailable(call.target, code, message)
        if reply.status >= 400:
            code, message, problems = told(reply)
            raise HandoffRefused(call.target, reply.status, code, message, problems)
        if document.get("success"):
            files = {name: self._incoming / final for name, final in document["files"].items()}
            return Answer(document["output"], files, document["run_id"])
        error = document.get("error") or {}
        took_too_long = error.get("code") in _TOOK_TOO_LONG
        raise (HandoffTimedOut if took_too_long else HandoffFailed)(call.target, error, document.get("run_id"))


class _Occurrences:
    """Counts identical calls: the second one is another call.

    A call that was not accepted or answered releases its number: its repetition is the same call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[str, int] = {}
        self._given_back: dict[str, list[int]] = {}

    def take(self, signature: str) -> int:
        with self._lock:
            if given_back := self._given_back.get(signature):
                return given_back.pop(given_back.index(min(given_back)))
            occurrence = self._next.get(signature, 0)
            self._next[signature] = occurrence + 1
            return occurrence

    def give_back(self, signature: str, occurrence: int) -> None:
        with self._lock:
            self._given_back.setdefault(signature, []).append(occurrence)


class Patience:
    """The remaining time for retries."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self._deadline = time.monotonic() + UNAVAILABLE_SECONDS_MAX
        self._pause = PAUSE_SECONDS_MIN

    def pause(self, seconds_min: float) -> bool:
        """Waits, unless the time has expired."""
        seconds = max(self._pause, seconds_min)
        self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)
        if time.monotonic() + seconds > self._deadline:
            return False
        time.sleep(seconds)
        return True


def whole_seconds(timeout: float | None) -> int | None:
    """``timeout`` in whole seconds above 0, for the orchestrator. Raises ValueError."""
    if timeout is None:
        return None
    if not timeout > 0 or math.isinf(timeout):
        raise ValueError(f"the timeout of a call is {timeout}; expected seconds above 0, or None")
    return math.ceil(timeout)


def told(reply: Reply) -> tuple[str, str, list[dict[str, Any]]]:
    """Code, message and problems of a rejection (problem+json, RFC 9457)."""
    document = reply.document
    code = str(document.get("code") or f"status_{reply.status}")
    message = str(document.get("detail") or document.get("title") or f"HTTP status {reply.status}")
    return code, message, list(document.get("errors") or [])


def _hash(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
