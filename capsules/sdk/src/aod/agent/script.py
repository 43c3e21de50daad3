"""Models that read their answers from a file: ``script/tests/cases/penguins/script.yaml``.

The file is a list of steps, one for each request; or a mapping of such lists, by the ``model`` of the agent
(``ctx.agent(model="cheap")``, default "default"). All agents of a run with the same list share it. A step is one of::

    - text: words                          # a text
    - output: {title: …}                   # the final answer
    - tool: chart                          # a call of a tool
      args: {table: penguins.csv}
    - tools: [{tool: a, args: {}}, …]      # several calls together
    - error: {status: 503, message: …}     # a failure of the provider; or {connection: why}

and may have conditions of its request: ``offered``, the names of all tools of the model, and ``result``, a text that
the result of the last tool contains, or JSON that it has. ``usage`` sets the tokens.

A request without a step, or a step without a request, fails the run.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from ..contract.problem import quoted
from ..errors import CapsuleInvalid, ModelError
from .fields import read_yaml

_KINDS = ("text", "output", "tool", "tools", "error")
_KEYS = {*_KINDS, "args", "offered", "result", "usage"}


class Script:
    """The steps of one list, and the number of used ones."""

    def __init__(self, place: str, steps: list[dict[str, Any]]) -> None:
        self._place = place
        self._steps = steps
        self._taken = 0
        # Agents may run on separate threads.
        self._lock = threading.Lock()

    def next(self, offered: list[str], last_result: str | None) -> dict[str, Any]:
        """The next step, if its conditions hold. Raises ModelError."""
        with self._lock:
            return self._next(offered, last_result)

    def _next(self, offered: list[str], last_result: str | None) -> dict[str, Any]:
        if self._taken == len(self._steps):
            raise self._failed(f"all {self._taken} steps are used; expected another step for this request")
        step = self._steps[self._taken]
        self._taken += 1
        if "offered" in step and sorted(step["offered"]) != sorted(offered):
            raise self._failed(f"the model has the tools {sorted(offered)}; expected {sorted(step['offered'])}")
        if "result" in step and not _holds(step["result"], last_result):
            found = "no result" if last_result is None else quoted(last_result)
            raise self._failed(f"the last tool returned {found}; expected {quoted(step['result'])}")
        return step

    def check_all_taken(self) -> None:
        """Raises ModelError."""
        if self._taken < len(self._steps):
            raise ModelError(
                "script_failed",
                f"{self._place}: {self._taken} of {len(self._steps)} steps were used; expected all of them",
            )

    def _failed(self, message: str) -> ModelError:
        return ModelError("script_failed", f"{self._place}, step {self._taken}: {message}")


class Scripts:
    """The scripts of a run."""

    def __init__(self) -> None:
        self._files: dict[Path, dict[str, Script]] = {}
        # Two agents on separate threads may read a file first.
        self._lock = threading.Lock()

    def find(self, path: Path, word: str) -> Script:
        """The steps in the file ``path`` for agents with ``model=word``. Raises CapsuleInvalid."""
        with self._lock:
            lists = self._files.get(path)
            if lists is None:
                lists = self._files[path] = _read(path)
        found = lists.get(word) or lists.get("")
        if found is None:
            raise CapsuleInvalid(f"{path} is invalid", [f"{word}: nothing found; expected a list of steps"])
        return found

    def check_all_taken(self) -> None:
        """Raises ModelError."""
        for lists in self._files.values():
            for script in lists.values():
                script.check_all_taken()


def _read(path: Path) -> dict[str, Script]:
    """The lists of a file by model, with an empty key for a file that is a list."""
    document = read_yaml(path)
    lists = document if isinstance(document, dict) else {"": document}
    problems = [problem for word, steps in lists.items() for problem in _problems(str(word), steps)]
    if problems:
        raise CapsuleInvalid(f"{path} is invalid", problems)
    return {str(word): Script(f"{path} {word}".strip(), steps) for word, steps in lists.items()}


def _problems(word: str, steps: Any) -> list[str]:
    if not isinstance(steps, list):
        return [f"{word or 'top level'}: {quoted(steps)} found; expected a list of steps"]
    problems = []
    for index, step in enumerate(steps, start=1):
        place = f"{word} step {index}".strip()
        if not isinstance(step, dict):
            problems.append(f"{place}: {quoted(step)} found; expected a mapping")
            continue
        if len(kinds := [key for key in _KINDS if key in step]) != 1:
            problems.append(f"{place}: {kinds or 'nothing'} found; expected one of {', '.join(_KINDS)}")
        if unknown := sorted(map(str, step.keys() - _KEYS)):
            problems.append(f"{place}: {', '.join(unknown)} found; expected {', '.join(sorted(_KEYS))}")
    return problems


def _holds(expected: Any, result: str | None) -> bool:
    if result is None:
        return False
    if isinstance(expected, str):
        return expected in result
    try:
        return _has(json.loads(result), expected)
    except ValueError:
        return False


def _has(found: Any, expected: Any) -> bool:
    """Whether ``found`` has all members of ``expected``, and possibly more."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(key in found and _has(found[key], expected[key]) for key in expected)
    return bool(found == expected)
