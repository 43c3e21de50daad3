"""Secrets of the run, each a file in memory."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import SecretMissing

# The directory of secrets in a container, by their names in agent.yaml.
_DIRECTORY = Path("/run/secrets")


def read(name: str) -> str:
    """The value of the secret ``name``. Raises SecretMissing."""
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise ValueError(f"{name!r} is not a secret name; expected a name such as OPENAI_API_KEY")
    path = Path(os.environ.get(f"{name}_FILE") or _DIRECTORY / name)
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise SecretMissing(name, str(path)) from error
    # In a container, the file is the value; elsewhere it may have a line end.
    return text if path.parent == _DIRECTORY else text.removesuffix("\n").removesuffix("\r")
