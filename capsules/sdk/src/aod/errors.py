"""What can go wrong in a capsule, sorted by who raises it; each ends the process with an exit code of its own."""

from __future__ import annotations

from typing import Any


class CapsuleError(Exception):
    """An error that the author of the capsule foresaw: raise it in ``execute``, and callers get all of it.

    ``code`` is a snake_case word that callers may act on, ``message`` a sentence for people, ``detail`` any JSON
    of at most 4,000 characters, ``retryable`` whether the same call may succeed later.
    """

    exit_code = 1

    def __init__(self, code: str, message: str, *, detail: Any = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail
        self.retryable = retryable


class SecretMissing(CapsuleError):
    """There is no such secret: agent.yaml does not name it, or the operator does not keep one that is not required.

    ``name`` is the secret's.
    """

    def __init__(self, name: str, path: str) -> None:
        text = f"there is no secret {name!r} at {path}; agent.yaml must name it, and the operator must keep it"
        super().__init__("secret_missing", text, retryable=True)
        self.name = name


class LimitExceeded(CapsuleError):
    """A limit that the capsule set for itself, of turns, tokens, cost or time, is reached."""

    exit_code = 5


class ModelError(CapsuleError):
    """A model or its provider failed, or refused, and no other one was left to ask.

    ``code`` is "model_failed" where another try may help (``retryable``), "model_refused" where the provider takes no
    such request, "model_output_invalid" where the model's answer never fitted, or the orchestrator's own word.
    """

    exit_code = 6


class ToolError(Exception):
    """A tool of an agent did not do what it was asked for: raise it in a tool, and the model reads the message.

    Any other exception of a tool ends the agent.
    """


class CapsuleInvalid(CapsuleError):
    """A file of the capsule itself, as agent.yaml or a prompt, cannot be used as it is; ``problems`` has all of it."""

    exit_code = 70

    def __init__(self, message: str, problems: list[str]) -> None:
        super().__init__("capsule_invalid", f"{message}: {'; '.join(problems)}", detail={"problems": problems})
        self.problems = problems


class HandoffError(Exception):
    """A call to another capsule came to nothing.

    ``target`` is the capsule as it was named, ``code`` a word that programs may rely on (docs/errors/),
    ``retryable`` whether the same call may succeed later.
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
    """The call was not taken: its target, arguments or files are not as they must be. It fails again.

    ``status`` is the HTTP status, ``problems`` all that is wrong, each ``{"pointer": …, "message": …}``.
    """

    def __init__(self, target: str, status: int, code: str, message: str, problems: list[dict[str, Any]]) -> None:
        places = "".join(f"; {item.get('pointer') or 'the whole'}: {item.get('message')}" for item in problems)
        super().__init__(target, code, message + places, detail={"errors": problems} if problems else None)
        self.status = status
        self.problems = problems


class HandoffFailed(HandoffError):
    """The callee began and did not succeed.

    ``source`` tells who can mend it ("capsule", "caller" or "platform"), ``run_id`` which run it was; ``detail``
    is the callee's own.
    """

    def __init__(self, target: str, error: dict[str, Any], run_id: str | None) -> None:
        code = str(error.get("code", "capsule_error"))
        message = str(error.get("message", "no reason given"))
        retryable = bool(error.get("retryable", False))
        super().__init__(target, code, message, detail=error.get("detail"), retryable=retryable)
        self.source = str(error.get("source", "capsule"))
        self.run_id = run_id


class HandoffTimedOut(HandoffFailed):
    """The callee did not end, or not begin, in the time that it had."""


class HandoffUnavailable(HandoffError):
    """The orchestrator could not take the call now (429, 503, or no answer at all), however often it was asked."""

    def __init__(self, target: str, code: str, message: str) -> None:
        super().__init__(target, code, message, retryable=True)
