"""An agent's answer: valid JSON whose files exist; problems go back to the model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..contract import Contract, FileKind, Unfit, rewrite
from ..directories import Directories
from ..errors import CapsuleInvalid


class Output:
    """The form of an answer."""

    def __init__(self, contract: Contract, directories: Directories, findings: Path) -> None:
        """``findings`` is the directory of files from tools; those in the answer are copied to the output."""
        self._contract = contract
        self._directories = directories
        self._findings = findings

    @classmethod
    def of(cls, capsule: Path, schema: Mapping[str, Any] | None, directories: Directories, findings: Path) -> Output:
        """Uses ``schema``, or the output side of the capsule's schema.json. Raises CapsuleInvalid."""
        try:
            text = (
                (capsule / "schema.json").read_bytes()
                if schema is None
                else json.dumps({"input": {}, "output": dict(schema)}).encode()
            )
            return cls(Contract(text), directories, findings)
        except (OSError, TypeError, ValueError) as error:
            raise CapsuleInvalid("the answer has no schema", [str(error)]) from None
        except Unfit as unfit:
            raise CapsuleInvalid("the schema of the answer is invalid", [str(unfit)]) from None

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema for the model; an answer is always an object."""
        document = self._contract.output_schema
        return {"type": "object", **(document if isinstance(document, dict) else {})}

    def checked(self, answer: Any) -> dict[str, Any]:
        """``answer`` with bare names of its files, all of which are in the output directory. Raises Unfit."""
        checked = self._contract.check_output(answer, self._kind)
        for reference in checked.references:
            self._take(reference.name)
        bare: dict[str, Any] = rewrite(checked.payload, checked.references, lambda name: name)
        return bare

    def _kind(self, name: str) -> FileKind | None:
        kind = self._directories.kind("output", name)
        return kind or ("file" if self._found(name) else None)

    def _found(self, name: str) -> Path | None:
        """The path of a file from a callee or a tool."""
        if self._directories.kind("incoming", name) == "file":
            return self._directories.named("incoming", name)
        found = self._findings / name
        return found if "/" not in name and found.is_file() else None

    def _take(self, name: str) -> None:
        if self._directories.kind("output", name) is None and (found := self._found(name)):
            shutil.copyfile(found, self._directories.made("output", name))
