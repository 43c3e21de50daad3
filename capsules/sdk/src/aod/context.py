"""What ``execute(inputs, ctx)`` is given beside its inputs."""

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
    """How another capsule is called; all of it may be left out.

    ``files`` are copied to outgoing/ first, and so is every path (``os.PathLike``) in the arguments; where the name
    is taken by another file, the copy gets another one, and the texts in the arguments that name it follow.
    ``timeout`` bounds the callee, in seconds; ``retries``, ``limits`` and ``label`` are those of the HTTP API.
    ``key`` names the call, in at most 255 characters of ASCII: the same key is the same callee. Without one, the
    same target, arguments and files are the same call, the second time of the same words being another one.
    """

    files: Iterable[str | os.PathLike[str]]
    timeout: float | None
    key: str | None
    retries: Mapping[str, int] | None
    limits: Mapping[str, int] | None
    label: str | None


class Context:
    """The run: who it is, where its files are, whom it calls, its agents.

    ``capsule`` is the directory of run.py, the current one unless given; ``inputs`` what prompts are filled in with.
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
        """None outside of the orchestrator."""
        return os.environ.get("AOD_RUN_ID")

    @property
    def root_run_id(self) -> str | None:
        """The run at the top of the tree of calls; None outside of the orchestrator."""
        return os.environ.get("AOD_ROOT_RUN_ID")

    @property
    def attempt(self) -> int:
        """1, and one more each time the run had to begin anew."""
        return int(os.environ.get("AOD_ATTEMPT", "1"))

    @property
    def deadline(self) -> datetime | None:
        """When the run is ended at the latest; None outside of the orchestrator."""
        text = os.environ.get("AOD_DEADLINE")
        return datetime.fromisoformat(text) if text else None

    @property
    def workspace(self) -> Path:
        """A directory for scratch, gone afterwards."""
        return self._directories.workspace()

    @property
    def log(self) -> Log:
        return log

    def progress(self, fraction: float, message: str = "") -> None:
        """Logs how far the work is, from 0 to 1."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"progress is {fraction}; expected 0 to 1")
        log.info(message or "progress", progress=fraction)

    def input_file(self, name: str | os.PathLike[str]) -> Path:
        """The input that a value of the inputs names. Raises NameRefused, FileNotFoundError."""
        return self._directories.existing("input", name)

    def output_file(self, name: str | os.PathLike[str]) -> Path:
        """Where to write a file of the answer; its parents are made. The answer may hold the path itself.

        Raises NameRefused.
        """
        return self._directories.made("output", name)

    def outgoing_file(self, name: str | os.PathLike[str]) -> Path:
        """Where to write a file for a callee; its parents are made. Arguments may hold the path itself.

        Raises NameRefused.
        """
        return self._directories.made("outgoing", name)

    def incoming_file(self, name: str | os.PathLike[str]) -> Path:
        """The file of a callee that its output names. Raises NameRefused, FileNotFoundError."""
        return self._directories.existing("incoming", name)

    def secret(self, name: str) -> str:
        """The value of a secret that agent.yaml names; it is in no log, event or variable. Raises SecretMissing.

        Outside of the orchestrator the variable ``<name>_FILE`` names the file to read.
        """
        from .secret import read

        return read(name)

    def call(self, target: str, args: Mapping[str, Any], **options: Unpack[CallOptions]) -> Answer:
        """Runs another capsule and waits for its answer, hours if need be.

        ``target`` is a title, alias or name; ``options`` are those of CallOptions.

        Raises HandoffRefused, HandoffFailed, HandoffTimedOut, HandoffUnavailable; ValueError and OSError for
        arguments and files that cannot be sent.
        """
        return self.start(target, args, **options).result()

    async def acall(self, target: str, args: Mapping[str, Any], **options: Unpack[CallOptions]) -> Answer:
        """As ``call``, for asyncio. Files are copied before anything is awaited."""
        return await self.start(target, args, **options).wait()

    def start(self, target: str, args: Mapping[str, Any], **options: Unpack[CallOptions]) -> Handle:
        """As ``call``, without waiting: for calls in parallel, 256 at a time."""
        from .handoff import whole_seconds

        fields = {name: options.get(name) for name in ("retries", "limits", "label")}
        fields["timeout_seconds"] = whole_seconds(options.get("timeout"))
        given = {name: value for name, value in fields.items() if value is not None}
        return self._calls().start(target, args, options.get("files", ()), options.get("key"), given)

    def agent(
        self, model: str | None = None, *, system: str | None = None, tools: Sequence[Callable[..., Any]] = ()
    ) -> Agent:
        """An agent, by agent.yaml and tools.yaml: ``ctx.agent().run().output``. Needs the extra ``agent``.

        ``model`` is a key of ``models``, or ``provider/model``; the manifest's own unless given. ``system`` is in the
        place of src/ai/system.md. ``tools`` are functions that the model may call besides those of tools.yaml; their
        hints and docstrings tell it how. They raise ToolError for what the model is to be told.
        """
        from .agent import Agent

        # Two threads may ask for the first agent: one session has the scripts and the servers of both.
        with self._session_lock:
            if self._session is None:
                from .agent.session import Session

                self._session = Session(self, self._capsule, self._inputs, self._directories)
            session = self._session
        return Agent(session, model, system, tools)

    def close(self) -> None:
        """The capsule is done: what a scripted model has left to say is an error. Raises ModelError."""
        if self._session is not None:
            self._session.close()

    def _calls(self) -> Handoffs:
        if self._handoffs is None:
            from .channel import Channel
            from .handoff import Handoffs

            self._handoffs = Handoffs(Channel.from_environment(), self._directories)
        return self._handoffs

    def cancel_calls(self) -> None:
        """Cancels all calls that are under way, as far as that goes in a few seconds."""
        if self._handoffs is not None:
            self._handoffs.cancel_all()
