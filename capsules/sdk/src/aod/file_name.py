"""Names of the files that travel with a run: relative paths that cannot leave their directory.

The rules are those of the orchestrator, which would reject the same names later.
"""

from __future__ import annotations

import re

COMPONENT_LENGTH_BYTES_MAX = 255
NAME_LENGTH_BYTES_MAX = 1_024
NAME_DEPTH_MAX = 16

#: Maximum extension that stays after the number of a renamed file, in bytes with its dots.
EXTENSION_LENGTH_BYTES_MAX = 16

#: The directories of named files in a container.
DIRECTORIES = {
    "input": "/io/input",
    "output": "/io/output",
    "outgoing": "/io/handoff/outgoing",
    "incoming": "/io/handoff/incoming",
}

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class NameRefused(ValueError):
    """A text is not a valid file name; states what was found and what was expected."""


def check_name(name: str) -> str:
    """Returns ``name`` if it is a relative path of normal components, in UTF-8 without control characters.

    At most 1,024 bytes, 16 components, and 255 bytes a component.
    Raises NameRefused.
    """
    shown = _quoted(name)
    if not name:
        raise NameRefused('a file name is empty; expected a relative path such as "report.pdf"')
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise NameRefused(f"file name {shown} is not UTF-8; expected UTF-8") from None
    if length > NAME_LENGTH_BYTES_MAX:
        raise NameRefused(f"file name {shown} has {length} bytes; expected at most {NAME_LENGTH_BYTES_MAX}")
    if control := _CONTROL.search(name):
        raise NameRefused(f"file name {shown} contains the control character {control[0]!r}; expected none")
    if name.startswith("/"):
        raise NameRefused(f"file name {shown} is absolute; expected a path relative to the directory of the files")
    components = name.split("/")
    if len(components) > NAME_DEPTH_MAX:
        raise NameRefused(f"file name {shown} has {len(components)} components; expected at most {NAME_DEPTH_MAX}")
    for component in components:
        _check_component(shown, component)
    return name


def _check_component(shown: str, component: str) -> None:
    if not component:
        raise NameRefused(f"file name {shown} has an empty component; expected neither // nor a / at the end")
    if component in (".", ".."):
        raise NameRefused(f'file name {shown} has the component "{component}"; expected neither "." nor ".."')
    length = len(component.encode())
    if length > COMPONENT_LENGTH_BYTES_MAX:
        raise NameRefused(
            f"file name {shown} has a component of {length} bytes; expected at most {COMPONENT_LENGTH_BYTES_MAX}"
        )


def relative(directory: str, text: str) -> str:
    """``text`` without the path of ``directory``, a key of DIRECTORIES, and without ``./`` before it.

    The path of another directory stays, so that the name is rejected as absolute.
    """
    return text.removeprefix(DIRECTORIES[directory] + "/").removeprefix("./")


def unique_name(name: str, taken: set[str]) -> str:
    """``name`` if it is free, else the first free one of ``name-2``, ``name-3``, …, numbers before extensions.

    A name also clashes if it is below a taken one, or a taken one below it: one of them would have to be a directory.
    If a taken file blocks the directory of ``report/page``, that part gets the number: ``report-2/page``.
    """
    if not _clashes(name, taken):
        return name
    end = _first_taken_prefix(name, taken) or len(name)
    found = _first_free(name[:end], name[end:], taken) or _first_free(name.rsplit("/", 1)[-1], "", taken)
    if found is None:
        raise AssertionError("a number at the top is always free")
    return found


def _first_free(clashing: str, rest: str, taken: set[str]) -> str | None:
    # Each taken name rules out at most one candidate: among one more than there are taken names, one is free.
    for number in range(2, len(taken) + 3):
        candidate = _numbered(clashing, rest, number)
        try:
            check_name(candidate)
        except NameRefused:
            return None
        if not _clashes(candidate, taken):
            return candidate
    return None


def _first_taken_prefix(name: str, taken: set[str]) -> int | None:
    ends = (end for end, character in enumerate(name) if character == "/")
    return next((end for end in ends if name[:end] in taken), None)


def _clashes(candidate: str, taken: set[str]) -> bool:
    directory = candidate + "/"
    return (
        candidate in taken
        or _first_taken_prefix(candidate, taken) is not None
        or any(name.startswith(directory) for name in taken)
    )


def _numbered(clashing: str, rest: str, number: int) -> str:
    start = clashing.rfind("/") + 1
    parent, component = clashing[:start], clashing[start:]
    extension_start = _extension_start(component)
    suffix = f"-{number}{component[extension_start:]}"
    room = min(COMPONENT_LENGTH_BYTES_MAX, NAME_LENGTH_BYTES_MAX - len((parent + rest).encode()))
    stem = component[:extension_start].encode()[: max(room - len(suffix.encode()), 0)].decode(errors="ignore")
    return f"{parent}{stem}{suffix}{rest}"


def _extension_start(component: str) -> int:
    start = component.rfind(".")
    if start <= 0:
        return len(component)
    stem = component[:start].removesuffix(".tar")
    if stem:
        start = len(stem)
    too_long = len(component[start:].encode()) > EXTENSION_LENGTH_BYTES_MAX
    return len(component) if too_long else start


def _quoted(text: str) -> str:
    from .contract.problem import quoted

    return quoted(text)
