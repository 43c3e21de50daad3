"""Secrets of the run, each a file in memory."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import SecretMissing

# Where a container finds them, by the names that agent.yaml has.
_DIRECTORY = Path("/run/secrets")


def read(name: str) -> str:
    """The value of the secret ``name``. Raises SecretMissing."""
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise ValueError(f"{name!r} is no name of a secret; expected such as OPENAI_API_KEY")
    path = Path(os.environ.get(f"{name}_FILE") or _DIRECTORY / name)
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise SecretMissing(name, str(path)) from error
    # In a container it is the value alone; elsewhere a file as people write it, with the end of its last line.
    return text if path.parent == _DIRECTORY else text.removesuffix("\n").removesuffix("\r")
