"""The agent's settings in agent.yaml and tools.yaml, with the same fields as in the orchestrator."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import CapsuleInvalid
from .fields import Fields, read_yaml

#: Default time limit of a request to a model (``timeout_s`` of ``settings``), in seconds.
REQUEST_SECONDS_MAX = 120

THINKING = ("off", "low", "medium", "high")
OUTPUT_MODES = ("tool", "native", "prompted")


@dataclass(frozen=True)
class Settings:
    """Settings of model requests; None means the provider's default."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    timeout_seconds: int | None = None
    thinking: str | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None

    def over(self, other: Settings) -> Settings:
        """These settings, with unset ones from ``other``."""
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
    """Maximum retries for each kind of failure."""

    model: int = 5
    tool: int = 1
    output: int = 2


@dataclass(frozen=True)
class Limits:
    """Limits of the agent; None means no limit."""

    max_turns: int = 20
    max_tool_calls: int = 50
    max_total_tokens: int | None = None
    max_output_tokens: int | None = None
    max_cost_usd: float | None = None
    timeout_s: int | None = None


@dataclass(frozen=True)
class AgentManifest:
    """The fields of agent.yaml that the agent uses."""

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
    """A capsule that may be called; ``args`` are fixed and hidden from the model."""

    target: str
    tool_name: str | None = None
    description: str | None = None
    timeout_seconds: int | None = None
    visible_to_ai: bool = True
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class McpServer:
    """A server of the Model Context Protocol: a program, or the address of a running one.

    ``allow`` are the allowed tools; None means all.
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
    """The fields of tools.yaml that the agent uses."""

    capsules: list[CapsuleTool] = field(default_factory=list)
    mcp_servers: list[McpServer] = field(default_factory=list)
    python: list[str] = field(default_factory=list)


def read_agent(capsule: Path) -> AgentManifest:
    """agent.yaml in the directory ``capsule``; a missing file means the defaults. Raises CapsuleInvalid."""
    problems: list[str] = []
    fields = Fields(read_yaml(capsule / "agent.yaml"), "", problems)
    retries, limits, prompts = fields.part("retries"), fields.part("limits"), fields.part("prompts")
    # Agent-on-demand capsules have these two at the top level.
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
        raise CapsuleInvalid("agent.yaml is invalid", problems)
    return manifest


def read_tools(capsule: Path) -> ToolsManifest:
    """tools.yaml in the directory ``capsule``; a missing file means no tools. Raises CapsuleInvalid."""
    problems: list[str] = []
    document = read_yaml(capsule / "tools.yaml")
    if isinstance(document, list):
        # Bare names of capsules. Mappings are tools that agent-on-demand capsules run themselves.
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
        raise CapsuleInvalid("tools.yaml is invalid", problems)
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
    """The fields of ``kind`` that are set."""
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
