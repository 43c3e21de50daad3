"""Files for callees: copied to outgoing/ with unique names, and identified by their contents."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .contract.limits import each_string
from .directories import Directories
from .file_name import NameRefused, check_name, unique_name

#: Bytes hashed per read.
_CHUNK_BYTES = 1024 * 1024


class Outgoing:
    """The files of this run for its callees."""

    def __init__(self, directories: Directories) -> None:
        self._directories = directories
        self._lock = threading.Lock()

    def prepare(self, arguments: Any, files: Iterable[str | os.PathLike[str]]) -> Any:
        """Copies ``files`` and all paths in ``arguments`` to outgoing/; returns the arguments with the names there.

        A text that equals one of ``files``, or its last component, becomes the name of this file there.
        Raises ValueError, NameRefused, OSError.
        """
        names: dict[str, set[str]] = {}
        for path in files:
            name = self._offer(Path(path))
            for text in (os.fspath(path), Path(path).name):
                names.setdefault(text, set()).add(name)
        named = self._named(arguments, names)
        try:
            return json.loads(json.dumps(named, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ValueError(f"the arguments of the call are not JSON: {error}") from error

    def _named(self, value: Any, names: dict[str, set[str]]) -> Any:
        if isinstance(value, dict):
            return {key: self._named(member, names) for key, member in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._named(item, names) for item in value]
        if isinstance(value, os.PathLike):
            return self._offer(Path(value))
        found = names.get(value, set()) if isinstance(value, str) else set()
        if len(found) > 1:
            raise ValueError(
                f"several files of the call are called {value!r}; expected the path itself in the arguments"
            )
        return next(iter(found), value)

    def _offer(self, path: Path) -> str:
        """Copies the file or directory to outgoing/, unless it is there. A link would be rejected."""
        outgoing = self._directories.path("outgoing")
        if path.is_relative_to(outgoing):
            return self._directories.name_of("outgoing", path)
        check_name(path.name)
        digests = contents(path)
        taken: set[str] = set()
        with self._lock:
            while True:
                name = unique_name(path.name, taken)
                place = outgoing / name
                if not place.exists():
                    outgoing.mkdir(parents=True, exist_ok=True)
                    (shutil.copytree if path.is_dir() else shutil.copyfile)(path, place)
                    return name
                if contents(place) == digests:
                    return name
                taken.add(name)

    def digests(self, arguments: Any) -> dict[str, str]:
        """The files for ``arguments`` with their SHA-256: those in outgoing/ that a text names, and all files in a
        directory that a text names."""
        found: dict[str, str] = {}
        for _, text in each_string(arguments):
            try:
                name = self._directories.name_of("outgoing", text)
            except NameRefused:
                continue
            if self._directories.kind("outgoing", name):
                below = contents(self._directories.path("outgoing") / name)
                found |= {f"{name}/{part}" if part else name: digest for part, digest in below.items()}
        return found


def contents(path: Path) -> dict[str, str]:
    """The SHA-256 of the file ``path``, under the empty name, or of all files below it. Raises OSError."""
    if not path.is_dir():
        return {"": _digest(path)}
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return {os.fspath(file.relative_to(path)): _digest(file) for file in files}


def _digest(path: Path) -> str:
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            hasher.update(chunk)
    return hasher.hexdigest()
