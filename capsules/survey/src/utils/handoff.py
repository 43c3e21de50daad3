"""Hands a subtask to another capsule, with files in both directions.

Whether this capsule may call that one, where it runs and what happens when its host dies is the
orchestrator's business; here is only the request and the wait for its answer.
"""

import json
import os
import shutil
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

OUTGOING = Path("/io/handoff/outgoing")
INCOMING = Path("/io/handoff/incoming")

# The orchestrator is at the loopback address, whatever proxy the environment names for the world.
DIRECT = build_opener(ProxyHandler({}))


class HandoffFailed(Exception):
    """The other capsule failed, or was not allowed to start; `code` and `detail` are its own."""

    def __init__(self, target, error):
        super().__init__(f"the capsule '{target}' failed: {error.get('message', 'no reason given')}")
        self.code = error.get("code", "handoff_failed")
        self.detail = error.get("detail", "")
        self.retryable = bool(error.get("retryable", False))


def offer(path, name=None):
    """Puts a copy of the file `path` where a callee's arguments can name it; returns that name."""
    name = name or Path(path).name
    shutil.copyfile(path, OUTGOING / name)
    return name


def hand_off(target, **arguments):
    """Runs the capsule `target` and returns its output, a dictionary; its files are in INCOMING.

    Waits for as long as that takes, hours if need be: the orchestrator knows the deadlines. It
    may send white space meanwhile, which JSON allows before a value.
    """
    request = Request(
        os.environ["ORCHESTRATOR_URL"].rstrip("/") + "/handoff",
        data=json.dumps({"target": target, "args": arguments}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with DIRECT.open(request) as answer:
            reply = json.load(answer)
    except HTTPError as refusal:
        raise HandoffFailed(target, problem_of(refusal)) from refusal
    except (OSError, HTTPException, ValueError) as break_off:
        problem = {"code": "orchestrator_lost", "message": f"no whole answer came: {break_off}", "retryable": True}
        raise HandoffFailed(target, problem) from break_off
    if not reply["success"]:
        raise HandoffFailed(target, reply["error"])
    return reply["output"]


def problem_of(refusal):
    """What a refused request says of itself: problem+json, or whatever a proxy in front made of it."""
    text = refusal.read().decode("utf-8", "replace")
    try:
        problem = dict(json.loads(text))
    except (ValueError, TypeError):
        problem = {}
    return {
        "code": problem.get("code", "handoff_refused"),
        "message": problem.get("detail") or problem.get("title") or str(refusal),
        "detail": text,
        "retryable": refusal.code in (429, 503),
    }
