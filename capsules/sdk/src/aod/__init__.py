"""The SDK of AOD for capsules in Python. A capsule's run.py is::

    import aod

    aod.run()

which calls ``execute(inputs)`` or ``execute(inputs, ctx)`` in src/main.py beside it. README.md describes the rest.

Nothing is loaded before it is used: `import aod` costs a millisecond.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .bridge import run
    from .context import Context
    from .contract import Contract, Problem, Unfit
    from .errors import (
        CapsuleError,
        CapsuleInvalid,
        HandoffError,
        HandoffFailed,
        HandoffRefused,
        HandoffTimedOut,
        HandoffUnavailable,
        LimitExceeded,
        ModelError,
        SecretMissing,
        ToolError,
    )
    from .file_name import NameRefused
    from .handoff import Answer, Handle
    from .log_handler import LogHandler
    from .logs import Log, log

__version__ = "0.1.0"

_PLACES = {
    "run": "bridge",
    "Context": "context",
    "Contract": "contract",
    "Problem": "contract",
    "Unfit": "contract",
    "CapsuleError": "errors",
    "CapsuleInvalid": "errors",
    "HandoffError": "errors",
    "HandoffFailed": "errors",
    "HandoffRefused": "errors",
    "HandoffTimedOut": "errors",
    "HandoffUnavailable": "errors",
    "LimitExceeded": "errors",
    "ModelError": "errors",
    "SecretMissing": "errors",
    "ToolError": "errors",
    "NameRefused": "file_name",
    "Answer": "handoff",
    "Handle": "handoff",
    "Log": "logs",
    "log": "logs",
    "LogHandler": "log_handler",
}

__all__ = [
    "Answer",
    "CapsuleError",
    "CapsuleInvalid",
    "Context",
    "Contract",
    "Handle",
    "HandoffError",
    "HandoffFailed",
    "HandoffRefused",
    "HandoffTimedOut",
    "HandoffUnavailable",
    "LimitExceeded",
    "Log",
    "LogHandler",
    "ModelError",
    "NameRefused",
    "Problem",
    "SecretMissing",
    "ToolError",
    "Unfit",
    "log",
    "run",
]


if not TYPE_CHECKING:  # For type checkers, any name would otherwise exist.

    def __getattr__(name: str) -> object:
        if name not in _PLACES:
            raise AttributeError(f"module 'aod' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"aod.{_PLACES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
