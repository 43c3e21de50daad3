"""Between the orchestrator and ``execute``: reads and checks the input, calls, checks and writes the answer.

Exit codes: 0 done, 1 the capsule's own error, 2 input, 3 output, 4 an unhandled failed call, 5 limit, 6 model,
70 exception, 143 stopped. All except 0 and 143 also leave an ``{"error": …}`` in output.json.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from .context import Context
from .contract import Contract, Unfit, numbers, rewrite
from .contract.schema import read_json
from .directories import Directories
from .errors import CapsuleError, HandoffError
from .logs import log

EXIT_INPUT, EXIT_OUTPUT, EXIT_EXCEPTION, EXIT_STOPPED = 2, 3, 70, 143

#: Maximum bytes of an error's detail as JSON. Source: the orchestrator stores 12 KiB.
DETAIL_BYTES_MAX = 12_000
#: Maximum characters of an error's message. Source: the orchestrator stores 4 KiB.
MESSAGE_LENGTH_MAX = 4_000
#: Maximum characters of a traceback: its end, which has the place.
TRACEBACK_LENGTH_MAX = 3_000


def run() -> NoReturn:
    """Runs the capsule whose run.py calls this: ``execute`` of src/main.py beside it. Ends the process."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    if script is None:
        raise RuntimeError("aod.run() must be called by a file, such as run.py")
    sys.exit(_run(Path(script).resolve().parent))


class _Broken(Exception):
    """The input or the output violates the contract."""

    def __init__(self, exit_code: int, code: str, message: str, unfit: Unfit | None = None) -> None:
        self.exit_code = exit_code
        self.code = code
        self.detail = None if unfit is None else {"problems": [problem._asdict() for problem in unfit.problems]}
        self.retryable = False
        super().__init__(message if unfit is None else f"{message}: {unfit}")


def _run(capsule: Path) -> int:
    directories = Directories()
    inputs: dict[str, Any] = {}
    context = Context(directories, capsule, inputs)
    signal.signal(signal.SIGTERM, lambda *_: _stop(context))
    try:
        contract = _contract(capsule)
        inputs.update(_inputs(contract, directories))
        answer = _call(_execute(capsule), dict(inputs), context)
        context.close()
        _write(directories, _checked(contract, answer, directories))
    except Exception as error:
        return _fail(directories, error)
    return 0


def _contract(capsule: Path) -> Contract:
    try:
        return Contract((capsule / "schema.json").read_bytes())
    except Unfit as unfit:
        raise _Broken(EXIT_EXCEPTION, "capsule_invalid", "schema.json is invalid", unfit) from None


def _inputs(contract: Contract, directories: Directories) -> dict[str, Any]:
    path = directories.input_json
    try:
        payload = read_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _Broken(EXIT_INPUT, "input_malformed", f"{path}: {error}; expected a JSON object") from None
    try:
        checked = contract.check_input(payload, "input", lambda name: directories.kind("input", name))
    except Unfit as unfit:
        raise _Broken(EXIT_INPUT, "input_invalid", "the input does not match schema.json", unfit) from None
    inputs: dict[str, Any] = rewrite(checked.payload, checked.references, lambda name: name)
    return inputs


def _execute(capsule: Path) -> Callable[..., Any]:
    """``execute`` of src/main.py. Imported after the checks of the input, because its imports may be slow."""
    if not (capsule / "src" / "main.py").is_file():
        raise _Broken(EXIT_EXCEPTION, "capsule_invalid", f"{capsule}/src/main.py is missing; expected it beside run.py")
    if str(capsule) not in sys.path:
        sys.path.insert(0, str(capsule))
    execute = getattr(importlib.import_module("src.main"), "execute", None)
    if not callable(execute):
        message = "src/main.py has no execute; expected execute(inputs) or execute(inputs, ctx)"
        raise _Broken(EXIT_EXCEPTION, "capsule_invalid", message)
    found: Callable[..., Any] = execute
    return found


def _call(execute: Callable[..., Any], inputs: dict[str, Any], context: Context) -> Any:
    """Calls it with the arguments that it accepts, and awaits an asynchronous one."""
    import inspect

    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [it for it in inspect.signature(execute).parameters.values() if it.kind in kinds]
    answer = execute(inputs, context) if len(parameters) > 1 else execute(inputs)
    if not inspect.isawaitable(answer):
        return answer
    import asyncio

    async def awaited() -> Any:
        return await answer

    return asyncio.run(awaited())


def _checked(contract: Contract, answer: Any, directories: Directories) -> Any:
    """The answer as JSON, its paths and declared references as bare names."""

    def name_of(value: Any) -> str:
        if isinstance(value, os.PathLike):
            return directories.name_of("output", value)
        raise TypeError(f"{type(value).__name__} is not JSON")

    try:
        payload = json.loads(json.dumps(answer, default=name_of, allow_nan=False))
        json.dumps(payload, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _Broken(EXIT_OUTPUT, "output_malformed", f"the answer cannot be written as JSON: {error}") from None
    try:
        checked = contract.check_output(payload, lambda name: directories.kind("output", name))
    except Unfit as unfit:
        if all(problem.code == "file_missing" for problem in unfit.problems):
            message = f"the answer names files that are not in {directories.path('output')}"
            raise _Broken(EXIT_OUTPUT, "output_file_missing", message, unfit) from None
        raise _Broken(EXIT_OUTPUT, "output_invalid", "the answer does not match schema.json", unfit) from None
    return rewrite(checked.payload, checked.references, lambda name: name)


def _write(directories: Directories, document: Any) -> None:
    """Writes output.json atomically."""
    path = directories.output_json
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(document, ensure_ascii=False), "utf-8")
    part.replace(path)


def _fail(directories: Directories, error: Exception) -> int:
    """Writes the error to the log and to output.json; returns the exit code."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, (CapsuleError, HandoffError, _Broken)):
        exit_code, code, message = error.exit_code, error.code, str(error)
        detail, retryable = error.detail, error.retryable
    else:
        exit_code, code, message = EXIT_EXCEPTION, "exception", f"{type(error).__name__}: {error}"
        detail, retryable = {"traceback": _traceback(error)[-TRACEBACK_LENGTH_MAX:]}, False
    log.error(message, code=code, exit_code=exit_code, **_whence(error))
    document = {
        "code": code,
        "message": message.encode(errors="replace").decode()[:MESSAGE_LENGTH_MAX],
        "detail": _bounded(detail),
        "retryable": retryable,
    }
    try:
        _write(directories, {"error": document})
    except OSError as unwritten:
        log.error(f"cannot write {directories.output_json}: {unwritten}")
    return exit_code


def _whence(error: Exception) -> dict[str, str]:
    """The origin of an error for the log: none for violations of the contract, the line of a deliberate error of the
    capsule, the traceback of any other exception."""
    if isinstance(error, _Broken):
        return {}
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, CapsuleError) and frames:
        return {"place": f"{frames[-1].filename}:{frames[-1].lineno}"}
    return {"exception": _traceback(error)}


def _traceback(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


def _bounded(detail: Any) -> Any:
    """``detail`` as JSON of the maximum size: the first problems, or the beginning of other values."""
    text = json.dumps(detail, default=str)
    if len(text) <= DETAIL_BYTES_MAX:
        value = json.loads(text)
        # In a text, numbers that 64 bits cannot hold keep their digits.
        return text if numbers.problems(value) else value
    problems = detail.get("problems", []) if isinstance(detail, dict) else []
    while problems:
        problems = problems[:-1]
        shorter = {"problems": problems}
        if len(json.dumps(shorter, default=str)) <= DETAIL_BYTES_MAX:
            return shorter
    return text[:TRACEBACK_LENGTH_MAX] + "…"


def _stop(context: Context) -> NoReturn:
    """Handles SIGTERM immediately, even during a wait. The container removes all leftovers."""
    context.cancel_calls()
    log.info("stopped by SIGTERM")
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, RuntimeError):
            pass  # The signal interrupted a write to it, or it has no reader.
    os._exit(EXIT_STOPPED)
