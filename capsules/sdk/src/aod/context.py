"""The second argument of ``execute(inputs, ctx)``."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from .directories import Directories
from .logs import Log, log

if TYPE_CHECKING:
    from .agent import Agent
    from .agent.session import Session
    from .handoff import Answer, Handle, Handoffs


class CallOptions(TypedDict, total=False):
    """Options of a call; all are optional.

    ``files`` are copied to outgoing/ first, and so is every path (``os.PathLike``) in the arguments. If the name is
    taken by another file, the copy gets another name, and the texts in the arguments that name it are changed.
    ``timeout`` limits the callee, in seconds; ``retries``, ``limits`` and ``pool`` are those of the HTTP API.
    ``key`` identifies the call, in at most 255 ASCII characters: the same key is the same callee. By default the key
    follows from target, arguments, files, and the number of identical earlier calls.
    """

    files: Iterable[str | os.PathLike[str]]
    timeout: float | None
    key: str | None
    retries: Mapping[str, int] | None
    limits: Mapping[str, int] | None
    pool: str | None


class Context:
    """The run: its identity, files, calls and agents.

    ``capsule`` is the directory of run.py, by default the current one; ``inputs`` are the values of prompts.
    """

    def __init__(
        self,
        directories: Directories | None = None,
        capsule: Path | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> None:
        self._directories = directories or Directories()
        self._capsule = capsule or Path.cwd()
        self._inputs: Mapping[str, Any] = {} if inputs is None else inputs
        self._handoffs: Handoffs | None = None
        self._session: Session | None = None
        self._session_lock = threading.Lock()

    @property
    def run_id(self) -> str | None:
        """None without an orchestrator."""
        return os.environ.get("AOD_RUN_ID")

    @property
    def root_run_id(self) -> str | None:
        """The root of the tree of calls; None without an orchestrator."""
        return os.environ.get("AOD_ROOT_RUN_ID")

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1."""
        return int(os.environ.get("AOD_ATTEMPT", "1"))

    @property
    def deadline(self) -> datetime | None:
        """The latest end of the run; None without an orchestrator."""
        text = os.environ.get("AOD_DEADLINE")
        return datetime.fromisoformat(text) if text else None

    @property
    def workspace(self) -> Path:
        """A temporary directory, deleted afterwards."""
        return self._directories.workspace()

    @property
    def log(self) -> Log:
        return log

    def progress(self, fraction: float, message: str = "") -> None:
        """Logs the progress, from 0 to 1."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"progress is {fraction}; expected 0 to 1")
        log.info(message or "progress", progress=fraction)

    def input_file(self, name: str | os.PathLike[str]) -> Path:
        """The path of an input file that the inputs name. Raises NameRefused, FileNotFoundError."""
        return self._directories.existing("input", name)

    def output_file(self, name: str | os.PathLike[str]) -> Path:
        """The path for a file of the answer; creates its parents. The answer may contain the path itself.

        Raises NameRefused.
        """
        return self._directories.made("output", name)

    def outgoing_file(self, name: str | os.PathLike[str]) -> Path:
        """The path for a file for a callee; creates its parents. Arguments may contain the path itself.

        Raises NameRefused.
        """
        return self._directories.made("outgoing", name)

    def incoming_file(self, name: str | os.PathLike[str]) -> Path:
        """The path of a callee's file that its output names. Raises NameRefused, FileNotFoundError."""
        return self._directories.existing("incoming", name)

    def secret(self, name: str) -> str:
        """The value of a secret in agent.yaml; never in a log, event or variable. Raises SecretMissing.

        Without an orchestrator, the variable ``<name>_FILE`` names its file.
        """
        from .secret import read

        return read(name)

    def call(self, target: str, args: Mapping[str, Any], **options: Unpack[CallOptions]) -> Answer:
        """Runs another capsule and waits for its answer, up to hours.

        ``target`` is a title, alias or name; ``options`` are those of CallOptions.

        Raises HandoffRefused, HandoffFailed, HandoffTimedOut, HandoffUnavailable; ValueError and OSError for
        invalid arguments and files.
        """
        return self.start(target, args, **options).result()

    async def acall(self, target: str, args: Mapping[str, Any], **options: Unpack[CallOptions]) -> Answer:
        """``call`` for asyncio. Copies files before the first await."""
        return await self.start(target, args, **options).wait()

    def start(self, target: str, args: Mapping[str, Any], **options: Unpack[CallOptions]) -> Handle:
        """``call`` without waiting, for up to 256 concurrent calls."""
        from .handoff import whole_seconds

        fields = {name: options.get(name) for name in ("retries", "limits", "pool")}
        fields["timeout_seconds"] = whole_seconds(options.get("timeout"))
        given = {name: value for name, value in fields.items() if value is not None}
        return self._calls().start(target, args, options.get("files", ()), options.get("key"), given)

    def agent(
        self, model: str | None = None, *, system: str | None = None, tools: Sequence[Callable[..., Any]] = ()
    ) -> Agent:
        """An agent by agent.yaml and tools.yaml: ``ctx.agent().run().output``. Requires the extra ``agent``.

        ``model`` is a key of ``models``, or ``provider/model``; by default the manifest's own. ``system`` replaces
        src/ai/system.md. ``tools`` are functions that the model may call in addition to those of tools.yaml, described
        by their type hints and docstrings. They raise ToolError for errors that the model should read.
        """
        from .agent import Agent

        # Two threads may create the first agent: both must share the session with its scripts and servers.
        with self._session_lock:
            if self._session is None:
                from .agent.session import Session

                self._session = Session(self, self._capsule, self._inputs, self._directories)
            session = self._session
        return Agent(session, model, system, tools)

    def close(self) -> None:
        """Called at the end: unused steps of a scripted model are an error. Raises ModelError."""
        if self._session is not None:
            self._session.close()

    def _calls(self) -> Handoffs:
        if self._handoffs is None:
            from .channel import Channel
            from .handoff import Handoffs

            self._handoffs = Handoffs(Channel.from_environment(), self._directories)
        return self._handoffs

    def cancel_calls(self) -> None:
        """Cancels all calls in progress, within a few seconds."""
        if self._handoffs is not None:
            self._handoffs.cancel_all()
