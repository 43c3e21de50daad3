"""The errors of a capsule, by their origin; each ends the process with its own exit code."""

from __future__ import annotations

from typing import Any


class CapsuleError(Exception):
    """An expected error of the capsule: raise it in ``execute``, and callers receive all of its fields.

    ``code`` is a snake_case word for programs, ``message`` a sentence for people, ``detail`` any JSON of at most
    12,000 bytes, ``retryable`` whether the same call may succeed later.
    """

    exit_code = 1

    def __init__(self, code: str, message: str, *, detail: Any = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail
        self.retryable = retryable


class SecretMissing(CapsuleError):
    """The secret is missing: agent.yaml does not name it, or it is optional and the operator has not stored it.

    ``name`` is the name of the secret.
    """

    def __init__(self, name: str, path: str) -> None:
        text = f"there is no secret {name!r} at {path}; add it to agent.yaml, and ask the operator to store it"
        super().__init__("secret_missing", text, retryable=True)
        self.name = name


class LimitExceeded(CapsuleError):
    """A limit in the capsule's own agent.yaml is reached: turns, tokens, cost or time."""

    exit_code = 5


class ModelError(CapsuleError):
    """A model or its provider failed or rejected the request, and no fallback was left.

    ``code`` is "model_failed" if a retry may help (``retryable``), "model_refused" if the provider rejects the request,
    "model_output_invalid" if the model's answer was never valid, or the orchestrator's error code.
    """

    exit_code = 6


class ToolError(Exception):
    """A failed tool of an agent: raise it in a tool, and the model reads the message.

    Any other exception of a tool ends the agent.
    """


class CapsuleInvalid(CapsuleError):
    """A file of the capsule itself, such as agent.yaml or a prompt, is invalid; ``problems`` has all problems."""

    exit_code = 70

    def __init__(self, message: str, problems: list[str]) -> None:
        super().__init__("capsule_invalid", f"{message}: {'; '.join(problems)}", detail={"problems": problems})
        self.problems = problems


class HandoffError(Exception):
    """A call to another capsule failed.

    ``target`` is the capsule as the caller named it, ``code`` an error code of docs/errors/, ``retryable`` whether the
    same call may succeed later.
    """

    exit_code = 4

    def __init__(self, target: str, code: str, message: str, *, detail: Any = None, retryable: bool = False) -> None:
        super().__init__(f"the call to {target!r} failed: {message}")
        self.target = target
        self.code = code
        self.message = message
        self.detail = detail
        self.retryable = retryable


class HandoffRefused(HandoffError):
    """The call was rejected: its target, arguments or files are invalid. A retry fails too.

    ``status`` is the HTTP status, ``problems`` are all problems, each ``{"pointer": …, "message": …}``.
    """

    def __init__(self, target: str, status: int, code: str, message: str, problems: list[dict[str, Any]]) -> None:
        places = "".join(f"; {item.get('pointer') or 'top level'}: {item.get('message')}" for item in problems)
        super().__init__(target, code, message + places, detail={"errors": problems} if problems else None)
        self.status = status
        self.problems = problems


class HandoffFailed(HandoffError):
    """The callee started and failed.

    ``source`` names who can fix it ("capsule", "caller" or "platform"), ``run_id`` the callee's run; ``detail`` is the
    callee's own.
    """

    def __init__(self, target: str, error: dict[str, Any], run_id: str | None) -> None:
        code = str(error.get("code", "capsule_error"))
        message = str(error.get("message", "no reason given"))
        retryable = bool(error.get("retryable", False))
        super().__init__(target, code, message, detail=error.get("detail"), retryable=retryable)
        self.source = str(error.get("source", "capsule"))
        self.run_id = run_id


class HandoffTimedOut(HandoffFailed):
    """The callee did not start or end within its time limit."""


class HandoffUnavailable(HandoffError):
    """The orchestrator did not accept the call (429, 503, or no answer) in spite of retries."""

    def __init__(self, target: str, code: str, message: str) -> None:
        super().__init__(target, code, message, retryable=True)
