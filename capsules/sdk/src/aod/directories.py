"""The directories of a capsule's files: below /io in a container, otherwise below AOD_IO."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .contract.references import FileKind
from .file_name import DIRECTORIES, check_name, relative

_CONTAINER_ROOT = "/io"


class Directories:
    """The paths of the container contract; ``root`` is AOD_IO, by default /io."""

    def __init__(self) -> None:
        self.root = Path(os.environ.get("AOD_IO", _CONTAINER_ROOT))
        self.input_json = Path(os.environ.get("AOD_INPUT", self.root / "input.json"))
        self.output_json = Path(os.environ.get("AOD_OUTPUT", self.root / "output.json"))

    def path(self, directory: str) -> Path:
        """The path of ``directory``, a key of file_name.DIRECTORIES."""
        return self.root / Path(DIRECTORIES[directory]).relative_to(_CONTAINER_ROOT)

    def workspace(self) -> Path:
        """A temporary directory, created outside of a container."""
        if self.root == Path(_CONTAINER_ROOT):
            return Path("/workspace")
        workspace = self.root / "workspace"
        workspace.mkdir(parents=True, exist_ok=True)
        return workspace

    def named(self, directory: str, name: str | os.PathLike[str]) -> Path:
        """The path of ``name`` in ``directory``. Raises NameRefused."""
        return self.path(directory) / self.name_of(directory, name)

    def name_of(self, directory: str, name: str | os.PathLike[str]) -> str:
        """``name`` without ``./``, ``/io/…`` or the real path of ``directory`` before it. Raises NameRefused."""
        text = os.fspath(name).removeprefix(f"{self.path(directory)}/")
        return check_name(relative(directory, text))

    def existing(self, directory: str, name: str | os.PathLike[str]) -> Path:
        """The path of an existing file. Raises NameRefused, FileNotFoundError."""
        path = self.named(directory, name)
        if not path.exists():
            raise FileNotFoundError(f"{os.fspath(name)!r} is not in {self.path(directory)}; expected an existing file")
        return path

    def made(self, directory: str, name: str | os.PathLike[str]) -> Path:
        """The path for a new file; creates its parents. Raises NameRefused."""
        path = self.named(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def kind(self, directory: str, name: str) -> FileKind | None:
        """The kind of ``name``, if it can be handed over: a regular file, or a directory with one, without links."""
        path = self.path(directory)
        mode = 0
        try:
            for component in name.split("/"):
                path = path / component
                mode = path.lstat().st_mode
                if stat.S_ISLNK(mode):
                    return None
        except OSError:
            return None
        if stat.S_ISDIR(mode):
            return "directory" if any(files for _, _, files in os.walk(path)) else None
        return "file" if stat.S_ISREG(mode) else None
