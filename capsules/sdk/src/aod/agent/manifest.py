"""What agent.yaml and tools.yaml say about the agent: the fields that the orchestrator, too, knows them by."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import CapsuleInvalid
from .fields import Fields, read_yaml

#: How long one request to a model may take unless ``settings`` has another ``timeout_s``, in seconds.
REQUEST_SECONDS_MAX = 120

THINKING = ("off", "low", "medium", "high")
OUTPUT_MODES = ("tool", "native", "prompted")


@dataclass(frozen=True)
class Settings:
    """How a model is asked; None leaves it to the provider."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    timeout_seconds: int | None = None
    thinking: str | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None

    def over(self, other: Settings) -> Settings:
        """These settings, and those of ``other`` where these leave something open."""
        pairs = {name: value if value is not None else vars(other)[name] for name, value in vars(self).items()}
        return Settings(**pairs)


@dataclass(frozen=True)
class NamedModel:
    """An entry of ``models``."""

    provider: str
    model: str
    base_url: str | None
    api_key_env: str | None
    settings: Settings


@dataclass(frozen=True)
class Retries:
    """How often each kind of failure is tried again."""

    model: int = 2
    tool: int = 1
    output: int = 2


@dataclass(frozen=True)
class Limits:
    """Where the agent stops; None is no limit."""

    max_turns: int = 20
    max_tool_calls: int = 50
    max_total_tokens: int | None = None
    max_output_tokens: int | None = None
    max_cost_usd: float | None = None
    timeout_s: int | None = None


@dataclass(frozen=True)
class AgentManifest:
    """agent.yaml, as far as the agent needs it."""

    model: str | None = None
    models: dict[str, NamedModel] = field(default_factory=dict)
    fallback: list[str] = field(default_factory=list)
    settings: Settings = Settings()
    output_mode: str = "tool"
    retries: Retries = Retries()
    limits: Limits = Limits()
    system_prompt: str = "src/ai/system.md"
    task_prompt: str = "src/ai/task.md"
    capture_content: bool = False


@dataclass(frozen=True)
class CapsuleTool:
    """A capsule that may be called; ``args`` are fixed, and not the model's to choose."""

    target: str
    tool_name: str | None = None
    description: str | None = None
    timeout_seconds: int | None = None
    visible_to_ai: bool = True
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class McpServer:
    """A server of the Model Context Protocol: a program, or the address of one that runs already.

    ``allow`` are the tools that may be used; None means all.
    """

    name: str
    command: str | None
    args: list[str]
    env: dict[str, str]
    url: str | None
    headers: dict[str, str]
    allow: list[str] | None
    timeout_seconds: int | None


@dataclass(frozen=True)
class ToolsManifest:
    """tools.yaml, as far as the agent needs it."""

    capsules: list[CapsuleTool] = field(default_factory=list)
    mcp_servers: list[McpServer] = field(default_factory=list)
    python: list[str] = field(default_factory=list)


def read_agent(capsule: Path) -> AgentManifest:
    """agent.yaml in the directory ``capsule``; without one all is as if it said nothing. Raises CapsuleInvalid."""
    problems: list[str] = []
    fields = Fields(read_yaml(capsule / "agent.yaml"), "", problems)
    retries, limits, prompts = fields.part("retries"), fields.part("limits"), fields.part("prompts")
    # Capsules of the original implementation have these two at the top.
    top = Settings(temperature=fields.number("temperature"), max_tokens=fields.count("max_tokens"))
    model = fields.text("model")
    manifest = AgentManifest(
        model=None if model == "none" else model,
        models={name: _named_model(entry) for name, entry in fields.table("models").items()},
        fallback=fields.texts("fallback"),
        settings=_settings(fields.part("settings")).over(top),
        output_mode=fields.choice("output_mode", OUTPUT_MODES) or AgentManifest.output_mode,
        retries=Retries(**_counts(retries, Retries)),
        limits=Limits(**_counts(limits, Limits)),
        system_prompt=prompts.text("system") or AgentManifest.system_prompt,
        task_prompt=prompts.text("task") or AgentManifest.task_prompt,
        capture_content=fields.part("telemetry").flag("capture_content") or False,
    )
    if problems:
        raise CapsuleInvalid("agent.yaml cannot be used", problems)
    return manifest


def read_tools(capsule: Path) -> ToolsManifest:
    """tools.yaml in the directory ``capsule``; without one there are no tools. Raises CapsuleInvalid."""
    problems: list[str] = []
    document = read_yaml(capsule / "tools.yaml")
    if isinstance(document, list):
        # Bare names of capsules. Mappings are tools that capsules of the original implementation run themselves.
        document = {"capsules": [item for item in document if isinstance(item, str)]}
    fields = Fields(document, "", problems)
    servers = fields.table("mcp_servers") | fields.table("mcpServers")
    manifest = ToolsManifest(
        capsules=[
            CapsuleTool(item.strip()) if isinstance(item, str) else _capsule_tool(fields.of(item, "capsules", index))
            for index, item in enumerate(fields.items("capsules"))
        ],
        mcp_servers=[_mcp_server(name, server) for name, server in servers.items()],
        python=fields.texts("python"),
    )
    if problems:
        raise CapsuleInvalid("tools.yaml cannot be used", problems)
    return manifest


def _settings(fields: Fields) -> Settings:
    return Settings(
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p"),
        max_tokens=fields.count("max_tokens"),
        seed=fields.integer("seed"),
        timeout_seconds=fields.count("timeout_s"),
        thinking=fields.choice("thinking", THINKING),
        parallel_tool_calls=fields.flag("parallel_tool_calls"),
        stream=fields.flag("stream"),
    )


def _named_model(fields: Fields) -> NamedModel:
    return NamedModel(
        provider=fields.needed("provider"),
        model=fields.needed("model"),
        base_url=fields.text("base_url"),
        api_key_env=fields.text("api_key_env"),
        settings=_settings(fields.part("settings")),
    )


def _counts(fields: Fields, kind: type[Retries | Limits]) -> dict[str, Any]:
    """The fields of ``kind`` that are given."""
    names = kind.__dataclass_fields__
    values = {name: fields.number(name) if name == "max_cost_usd" else fields.count(name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _capsule_tool(fields: Fields) -> CapsuleTool:
    visible = fields.flag("visible_to_ai")
    return CapsuleTool(
        target=fields.needed("name").strip(),
        tool_name=fields.text("as"),
        description=fields.text("description"),
        timeout_seconds=fields.count("timeout_s"),
        visible_to_ai=True if visible is None else visible,
        args=fields.mapping("args"),
    )


def _mcp_server(name: str, fields: Fields) -> McpServer:
    url = fields.text("url")
    return McpServer(
        name=name,
        command=None if url else fields.needed("command"),
        args=fields.texts("args"),
        env=fields.plain("env"),
        url=url,
        headers=fields.plain("headers"),
        allow=None if fields.any("allow") == "*" else fields.texts("allow"),
        timeout_seconds=fields.count("timeout_s"),
    )
