"""Other capsules as tools: one for each in tools.yaml, with the callee's own schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..channel import Broken, Channel, Reply
from ..contract import Contract, FileKind, Problem, Unfit, rewrite
from ..directories import Directories
from ..errors import CapsuleInvalid, HandoffFailed, HandoffRefused, HandoffUnavailable, ToolError
from ..handoff import NOT_NOW, Patience, told
from .manifest import CapsuleTool
from .tool import ArgumentsUnfit, Tool

if TYPE_CHECKING:
    from ..context import Context

#: Maximum time for the orchestrator to return its capsules, in seconds.
ANSWER_SECONDS_MAX = 30.0

#: Directories searched for a file name in a model's arguments, in this order.
_PLACES = ("outgoing", "incoming", "output", "input")


def handoff_tools(grants: list[CapsuleTool], context: Context, directories: Directories, findings: Path) -> list[Tool]:
    """The tools of all ``grants`` that the model may use. ``findings`` is the directory of files from tools.

    Raises CapsuleInvalid, HandoffUnavailable.
    """
    shown = [grant for grant in grants if grant.visible_to_ai]
    if not shown:
        return []
    known: dict[str, Any] = _ask("/capsules").get("capsules", {})
    tools, problems = [], []
    for grant in shown:
        name = _name(grant.target, known)
        if name is None:
            callable_names = ", ".join(sorted(known)) or "none"
            problems.append(f"{grant.target!r} is not a capsule that may be called; expected one of: {callable_names}")
            continue
        schema = _ask(f"/capsules/{quote(name, safe='')}/schema")
        tools.append(_tool(grant, name, known[name], schema, _Callee(grant, schema, context, directories, findings)))
    if problems:
        raise CapsuleInvalid("the tools of the agent are invalid", problems)
    return tools


def _ask(path: str) -> dict[str, Any]:
    channel = Channel.from_environment()
    if channel is None:
        raise HandoffUnavailable(path, "no_orchestrator", "AOD_URL is not set; expected to run in a container")
    patience = Patience()
    while True:
        reply: Reply | None = None
        try:
            reply = channel.ask("GET", path, answer_seconds_max=ANSWER_SECONDS_MAX)
            if reply.status == 200:
                return reply.document
            code, message, _ = told(reply)
        except Broken as broken:
            code, message = "orchestrator_lost", f"no complete answer: {broken}"
        is_passing = reply is None or reply.status in NOT_NOW
        if not is_passing or not patience.pause(reply.retry_after_seconds if reply else 0.0):
            raise HandoffUnavailable(path, code, message)


def _name(target: str, known: Mapping[str, Any]) -> str | None:
    """The orchestrator's rule: an exact title or alias first, then the normalized name."""
    for name, capsule in known.items():
        if target in (capsule.get("title"), *capsule.get("aliases", ())):
            return name
    name = re.sub("[^a-z0-9]+", "-", target.lower()).strip("-")
    return next((each for each in (target, name) if each in known), None)


def _tool(grant: CapsuleTool, name: str, capsule: dict[str, Any], schema: dict[str, Any], callee: _Callee) -> Tool:
    description = grant.description or capsule.get("description") or f"Runs the capsule {capsule.get('title') or name}."
    return Tool(grant.tool_name or name, description, _parameters(schema.get("input"), grant.args), callee.call)


def _parameters(document: Any, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """The input schema without the fixed arguments."""
    parameters = {"type": "object", **(document if isinstance(document, dict) else {})}
    if fixed:
        properties = parameters.get("properties") or {}
        parameters["properties"] = {name: value for name, value in properties.items() if name not in fixed}
        parameters["required"] = [name for name in parameters.get("required") or [] if name not in fixed]
    return parameters


class _Callee:
    """A capsule as a tool of the model."""

    def __init__(
        self, grant: CapsuleTool, schema: dict[str, Any], context: Context, directories: Directories, findings: Path
    ) -> None:
        self._grant = grant
        self._context = context
        self._directories = directories
        self._findings = findings
        try:
            self._contract = Contract(json.dumps(schema).encode())
        except Unfit as unfit:
            raise CapsuleInvalid(f"the schema of {grant.target!r} is invalid", [str(unfit)]) from None

    async def call(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The callee's output and the names of its files, or an error for the model."""
        prepared = self._prepared({**arguments, **self._grant.args})
        try:
            answer = await self._context.acall(self._grant.target, prepared, timeout=self._grant.timeout_seconds)
        except HandoffRefused as refusal:
            problems = [
                Problem(str(p.get("pointer", "")), refusal.code, str(p.get("message"))) for p in refusal.problems
            ]
            if refusal.status == 422 and problems:
                raise ArgumentsUnfit(problems) from None
            raise ToolError(f"{refusal} ({refusal.code})") from None
        except HandoffFailed as failure:
            detail = "" if failure.detail is None else f"; {json.dumps(failure.detail, ensure_ascii=False)}"
            raise ToolError(f"{failure} ({failure.code}){detail}") from None
        return {"output": answer.output, "files": sorted(path.name for path in answer.files.values())}

    def _prepared(self, arguments: dict[str, Any]) -> Any:
        """``arguments`` with the paths of the files that they name, in any directory. Raises ArgumentsUnfit."""
        try:
            checked = self._contract.check_input(arguments, "outgoing", self._kind)
        except Unfit as unfit:
            raise ArgumentsUnfit(unfit.problems) from None
        named = [reference._replace(declared=True) for reference in checked.references]
        return rewrite(checked.payload, named, self._path)

    def _kind(self, name: str) -> FileKind | None:
        kinds = (self._directories.kind(place, name) for place in _PLACES)
        found = next((kind for kind in kinds if kind), None)
        return found or ("file" if "/" not in name and (self._findings / name).is_file() else None)

    def _path(self, name: str) -> Any:
        for place in _PLACES:
            if self._directories.kind(place, name):
                return self._directories.named(place, name)
        return self._findings / name
