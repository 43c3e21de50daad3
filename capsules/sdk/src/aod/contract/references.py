"""Finds the texts of a payload that name files, and gives them their final names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..file_name import DIRECTORIES, NameRefused, check_name, relative
from .limits import each_string
from .problem import Problem, Unfit, problem, quoted

if TYPE_CHECKING:
    import jsonschema_rs

#: The values of ``format`` that declare a file reference: a file, a directory, or (``path``) either.
FILE_FORMATS = ("file_path", "file-path", "directory_path", "directory-path", "path")

FileKind = Literal["file", "directory"]

#: Returns the kind of file with a (valid) name, if it exists.
Exists = Callable[[str], FileKind | None]


class Reference(NamedTuple):
    """A text in a payload that names a file or a directory.

    ``name`` is without ``./`` or ``/io/…`` before it; ``declared``: the schema declares the text as a path; otherwise
    it only equals the name of an existing file.
    """

    pointer: str
    name: str
    declared: bool
    kind: FileKind


def find(payload: Any, evaluation: jsonschema_rs.Evaluation, directory: str, exists: Exists) -> list[Reference]:
    """All references of a valid payload, sorted by pointer. Raises Unfit for invalid declared ones."""
    declared = _declared(evaluation)
    references: list[Reference] = []
    problems: list[Problem] = []
    for pointer, text in each_string(payload):
        allowed = declared.get(pointer)
        if allowed is None:
            references.extend(_inferred(pointer, text, directory, exists))
            continue
        found = _check_declared(pointer, text, allowed, directory, exists)
        if isinstance(found, Reference):
            references.append(found)
        else:
            problems.append(found)
    if problems:
        others = _other_texts(evaluation)
        problems = [found for found in problems if found.pointer not in others]
    if problems:
        raise Unfit(problems)
    return sorted(references)


def _declared(evaluation: jsonschema_rs.Evaluation) -> dict[str, set[FileKind]]:
    """The places that the schema declares as paths, with their kinds.

    Only valid schemas have annotations, so invalid branches of an ``anyOf`` are excluded.
    """
    declared: dict[str, set[FileKind]] = {}
    for annotation in evaluation.annotations():
        value = annotation["annotations"]
        # A property called "format" has the same end, but its annotations are not texts.
        if value in FILE_FORMATS and annotation["schemaLocation"].endswith("/format"):
            kinds = declared.setdefault(annotation["instanceLocation"], set())
            kinds.update(_kinds(str(value)))
    return declared


def _other_texts(evaluation: jsonschema_rs.Evaluation) -> set[str]:
    """The places of texts that fit a branch of an ``anyOf`` without a path beside one with a path: the name of a file
    or something else, such as a URL.
    """
    tree: Any = evaluation.hierarchical()
    return {
        node["instanceLocation"]
        for node in _nodes(tree)
        if node["evaluationPath"].endswith("/anyOf")
        and any(branch["valid"] and not _has_path(branch, node["instanceLocation"]) for branch in _parts(node))
    }


def _has_path(branch: Any, place: str) -> bool:
    """Whether the schema at ``branch`` of an evaluation declares the text at ``place`` as a path."""
    return any(node["instanceLocation"] == place and node.get("annotations") in FILE_FORMATS for node in _nodes(branch))


def _nodes(node: Any) -> Iterator[Any]:
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(_parts(node))


def _parts(node: Any) -> list[Any]:
    return node.get("details") or []


def _kinds(file_format: str) -> set[FileKind]:
    if file_format.startswith("directory"):
        return {"directory"}
    return {"file"} if file_format.startswith("file") else {"file", "directory"}


def _check_declared(
    pointer: str, text: str, allowed: set[FileKind], directory: str, exists: Exists
) -> Reference | Problem:
    try:
        name = check_name(relative(directory, text))
    except NameRefused as refusal:
        return problem(pointer, "file_name", str(refusal))
    kind = exists(name)
    if kind in allowed:
        return Reference(pointer, name, True, kind)
    found, code = ("not", "file_missing") if kind is None else (f"a {kind}", "file_kind")
    expected = " or ".join(f"a {kind}" for kind in sorted(allowed, reverse=True))
    message = f"{quoted(text)} is {found} in {DIRECTORIES[directory]}; expected {expected}"
    return problem(pointer, code, message)


def _inferred(pointer: str, text: str, directory: str, exists: Exists) -> list[Reference]:
    """Never infers directories: words like ``data`` would copy whole trees by chance."""
    try:
        name = check_name(relative(directory, text))
    except NameRefused:
        return []
    return [Reference(pointer, name, False, "file")] if exists(name) == "file" else []


def rewrite(payload: Any, references: list[Reference], final_name: Callable[[str], Any]) -> Any:
    """A copy of ``payload`` with declared ``references`` replaced by the bare names or paths of ``final_name``.

    Nothing else changes. Raises Unfit for an inferred reference whose file was renamed.
    """
    payload = copied(payload)
    problems = []
    for reference in references:
        name = final_name(reference.name)
        if reference.declared:
            _replace(payload, reference.pointer, name)
        elif name != reference.name:
            message = (
                f"{quoted(reference.name)} names a file that AOD must rename to {quoted(name)}, but the schema does "
                'not declare this string as a file name; expected "format": "file_path" in the schema, '
                "or another file name"
            )
            problems.append(problem(reference.pointer, "file_undeclared", message))
    if problems:
        raise Unfit(problems)
    return payload


def copied(value: Any) -> Any:
    """A deep copy of a JSON value."""
    if isinstance(value, dict):
        return {key: copied(member) for key, member in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def _replace(payload: Any, pointer: str, value: Any) -> None:
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])
    for part in parents:
        payload = payload[int(part) if isinstance(payload, list) else part]
    payload[int(last) if isinstance(payload, list) else last] = value
