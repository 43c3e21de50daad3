"""Where a capsule's files are: in a container below /io, elsewhere below AOD_IO."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .contract.references import FileKind
from .file_name import DIRECTORIES, check_name, relative

_CONTAINER_ROOT = "/io"


class Directories:
    """The places of the container contract; ``root`` is AOD_IO, /io unless given."""

    def __init__(self) -> None:
        self.root = Path(os.environ.get("AOD_IO", _CONTAINER_ROOT))
        self.input_json = Path(os.environ.get("AOD_INPUT", self.root / "input.json"))
        self.output_json = Path(os.environ.get("AOD_OUTPUT", self.root / "output.json"))

    def path(self, directory: str) -> Path:
        """Where ``directory`` is, a key of file_name.DIRECTORIES."""
        return self.root / Path(DIRECTORIES[directory]).relative_to(_CONTAINER_ROOT)

    def workspace(self) -> Path:
        """Private scratch; made if this is no container."""
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
        """The path of what must be there. Raises NameRefused, FileNotFoundError."""
        path = self.named(directory, name)
        if not path.exists():
            raise FileNotFoundError(f"{os.fspath(name)!r} is not in {self.path(directory)}; expected an existing file")
        return path

    def made(self, directory: str, name: str | os.PathLike[str]) -> Path:
        """The path of what is to be written, its parents made. Raises NameRefused."""
        path = self.named(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def kind(self, directory: str, name: str) -> FileKind | None:
        """What ``name`` is, if it can be handed over: a regular file, or a directory with one below, not by any link."""
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
