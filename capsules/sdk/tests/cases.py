"""A case of the contract, as in tests/contract/ of the repository: what the SDK makes of it.

The counterpart in Rust is crates/domain/tests/contract/case.rs; the two must answer alike.
"""

from __future__ import annotations

import json
from typing import Any

from aod.contract import Checked, Contract, FileKind, Problem, Unfit, rewrite
from aod.contract.references import copied


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """``{"payload", "references", "rewritten"}``, or ``{"refused": STAGE, "problems": [{"pointer", "code"}]}``."""
    rename = case.get("rename", {})
    stage = "schema"
    try:
        contract = Contract(json.dumps(case["schema"]).encode())
        stage = "payload"
        checked = _check(contract, case)
        stage = "rename"
        rewritten = rewrite(checked.payload, checked.references, lambda name: rename.get(name, name))
    except Unfit as unfit:
        return {"refused": stage, "problems": sorted(map(_told, unfit.problems), key=_text)}
    references = [reference._asdict() for reference in checked.references]
    return {"payload": checked.payload, "references": references, "rewritten": rewritten}


def _check(contract: Contract, case: dict[str, Any]) -> Checked:
    files, directories = case.get("files", []), case.get("directories", [])

    def exists(name: str) -> FileKind | None:
        if name in files:
            return "file"
        return "directory" if name in directories else None

    payload = copied(expanded(case["instance"]))
    if case["side"] == "output":
        return contract.check_output(payload, exists)
    directory = {"input": "input", "handoff": "outgoing"}[case["side"]]
    return contract.check_input(payload, directory, exists)


def _told(problem: Problem) -> dict[str, str]:
    return {"pointer": problem.pointer, "code": problem.code}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def expanded(value: Any) -> Any:
    """``value`` with the short forms for what is large written out.

    ``{"$repeat": TEXT, "times": N}`` is a text, ``{"$list": VALUE, "times": N}`` a list, ``{"$nest": VALUE,
    "levels": N}`` so many lists in one another.
    """
    match value:
        case {"$repeat": text, "times": times}:
            return text * times
        case {"$list": item, "times": times}:
            return [expanded(item)] * times
        case {"$nest": inner, "levels": levels}:
            inner = expanded(inner)
            for _ in range(levels):
                inner = [inner]
            return inner
        case dict():
            return {key: expanded(member) for key, member in value.items()}
        case list():
            return [expanded(item) for item in value]
    return value
