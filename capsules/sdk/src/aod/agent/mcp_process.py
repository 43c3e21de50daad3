"""The process of an MCP server: started with a clean environment, ended with all of its child processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import IO

from ..errors import CapsuleError, CapsuleInvalid
from ..logs import log
from .manifest import McpServer

#: Variables passed to a server: no secrets, nothing about the run. Its ``env`` names all others.
PASSED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "PATH", "SHELL", "TERM", "TMPDIR", "TZ")
#: Directory of the secrets from agent.yaml in a container.
SECRETS = Path("/run/secrets")
#: Time for a server to end after its input is closed, and again after SIGTERM, in seconds.
END_SECONDS_MAX = 2.0
#: Maximum bytes of a server's line in the log.
LINE_BYTES_MAX = 16 * 1024

_POLL_SECONDS = 0.02
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_.-]*)\}")


class McpProcess:
    """A started server. ``process`` has pipes for input and output; stderr goes to the log."""

    def __init__(self, server: McpServer, capsule: Path) -> None:
        """Starts it in ``capsule``, in a new process group. Raises CapsuleInvalid, CapsuleError."""
        assert server.command is not None
        command = [server.command, *server.args]
        pipe = subprocess.PIPE
        try:
            self.process = subprocess.Popen(
                command,
                env=environment(server),
                cwd=capsule,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise CapsuleError("mcp_server_failed", f"cannot start MCP server {server.name!r}: {error}") from None
        assert self.process.stderr is not None
        arguments = (server.name, self.process.stderr)
        threading.Thread(target=_log, args=arguments, name=f"log of {server.name}", daemon=True).start()

    def end(self) -> None:
        """Closes its input, then sends SIGTERM and SIGKILL to its process group. Waits a few seconds at most."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        if not self.ends_within(END_SECONDS_MAX):
            self._signal(signal.SIGTERM)
            self.ends_within(END_SECONDS_MAX)
        # Also kills leftovers of an ended server: its process id stays reserved until it is reaped.
        self._signal(signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def ends_within(self, seconds: float) -> bool:
        """Waits until it ends by itself."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.exit_code() is not None:
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def exit_code(self) -> int | None:
        """Its exit code; None while it runs. Does not reap the process, which would release its id."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        ended = os.waitid(os.P_PID, self.process.pid, flags)
        return None if ended is None else ended.si_status

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # The group is empty, or contains only zombies.


def environment(server: McpServer) -> dict[str, str]:
    """The server's environment: ``${NAME}`` in its ``env`` is a variable or a secret of the capsule.

    Raises CapsuleInvalid for missing ones.
    """
    given = {name: os.environ[name] for name in PASSED if name in os.environ}
    return given | expanded(server.name, "env", server.env)


def expanded(server: str, field: str, values: dict[str, str]) -> dict[str, str]:
    """``values`` with each ``${NAME}`` replaced by the variable, or the secret. Raises CapsuleInvalid."""
    names = sorted({name for text in values.values() for name in _VARIABLE.findall(text)})
    found = {name: value for name in names if (value := _value(name)) is not None}
    if missing := [name for name in names if name not in found]:
        problems = [f"mcp_servers.{server}.{field}: {name} is not set" for name in missing]
        raise CapsuleInvalid("tools.yaml is invalid", problems)
    return {key: _VARIABLE.sub(lambda match: found[match[1]], text) for key, text in values.items()}


def _value(name: str) -> str | None:
    """The variable ``name``, or the secret of this name in agent.yaml."""
    if name in os.environ:
        return os.environ[name]
    try:
        return (SECRETS / name).read_text("utf-8")
    except (OSError, ValueError):
        return None


def _log(server: str, stream: IO[bytes]) -> None:
    with stream:
        while line := stream.readline(LINE_BYTES_MAX):
            if text := line.decode(errors="replace").rstrip():
                log.info(text, server=server)
