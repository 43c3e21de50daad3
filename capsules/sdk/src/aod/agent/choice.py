"""Resolves a model reference to its provider, address and key."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import CapsuleInvalid
from .manifest import REQUEST_SECONDS_MAX, AgentManifest, Settings

#: Overrides the model of every agent, including fallbacks: for tests.
MODEL_VARIABLE = "AOD_MODEL"

SCRIPT = "script"

#: Placeholder for a key that the orchestrator inserts, or that a local server does not need.
_KEY_PLACEHOLDER = "aod"


@dataclass(frozen=True)
class Provider:
    """A provider's address without the orchestrator, and the usual variables for its settings."""

    base_url: str
    base_url_variable: str | None
    key_variables: tuple[str, ...]
    needs_key: bool = True


_PROVIDERS = {
    "openai": Provider("https://api.openai.com/v1", "OPENAI_BASE_URL", ("OPENAI_API_KEY",)),
    "anthropic": Provider("https://api.anthropic.com", "ANTHROPIC_BASE_URL", ("ANTHROPIC_API_KEY",)),
    "google": Provider(
        "https://generativelanguage.googleapis.com", "GOOGLE_GEMINI_BASE_URL", ("GOOGLE_API_KEY", "GEMINI_API_KEY")
    ),
    "openrouter": Provider("https://openrouter.ai/api/v1", None, ("OPENROUTER_API_KEY",)),
    "ollama": Provider("http://127.0.0.1:11434/v1", None, (), needs_key=False),
}


@dataclass(frozen=True)
class Choice:
    """A model with everything needed to send it requests.

    ``format`` is "openai-responses", "openai-chat", "anthropic", "google" or "script"; a script's ``base_url`` is its
    file. ``is_proxied``: the orchestrator, on this machine, passes the requests to the provider.
    """

    provider: str
    model: str
    format: str
    base_url: str
    key: str
    settings: Settings
    is_proxied: bool = False

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}"

    @property
    def timeout_seconds(self) -> int:
        return self.settings.timeout_seconds or REQUEST_SECONDS_MAX

    @property
    def is_streamed(self) -> bool:
        """Whether answers are streamed; those of scripts never are."""
        return bool(self.settings.stream) and self.format != SCRIPT


def choose(manifest: AgentManifest, reference: str | None, capsule: Path) -> list[Choice]:
    """The model of ``reference``, then its fallbacks. Raises CapsuleInvalid.

    A reference is a key of ``models``, ``provider/model`` or ``provider:model``; None means the manifest's own.
    """
    if override := os.environ.get(MODEL_VARIABLE):
        return [_chosen(manifest, override, capsule)]
    first = reference or manifest.model
    if first is None:
        message = 'no model; expected "model" in agent.yaml, or ctx.agent(model=…)'
        raise CapsuleInvalid("agent.yaml is invalid", [message])
    return [_chosen(manifest, each, capsule) for each in dict.fromkeys([first, *manifest.fallback])]


def _chosen(manifest: AgentManifest, reference: str, capsule: Path) -> Choice:
    named = manifest.models.get(reference)
    if named is not None:
        provider, model, base_url = named.provider, named.model, named.base_url
        key_variable, settings = named.api_key_env, named.settings.over(manifest.settings)
    else:
        provider, model = _split(reference)
        base_url, key_variable, settings = None, None, manifest.settings
    if not provider or not model:
        message = f"{reference!r} is not a model; expected provider/model, or a key of models"
        raise CapsuleInvalid("agent.yaml is invalid", [message])
    if provider == SCRIPT:
        return Choice(provider, model, SCRIPT, str(capsule / model), "", settings)
    wire_format = _format(provider, has_base_url=base_url is not None)
    url, is_proxied = _place(provider, base_url, wire_format)
    key = _KEY_PLACEHOLDER if is_proxied else _key(provider, key_variable)
    return Choice(provider, model, wire_format, url, key, settings, is_proxied)


def _split(reference: str) -> tuple[str, str]:
    """Provider and model. Names of models may contain both separators: the first one counts.

    For a bare name, as in agent-on-demand capsules, its beginning determines the provider.
    """
    if found := re.match(r"([^/:]*)[/:](.*)", reference):
        return found[1], found[2]
    for beginning, provider in (("claude", "anthropic"), ("gemini", "google")):
        if reference.startswith(beginning):
            return provider, reference
    return "openai", reference


def _format(provider: str, *, has_base_url: bool) -> str:
    """Only OpenAI itself certainly supports the Responses API; other servers with OpenAI's format support Chat."""
    if provider in ("anthropic", "google"):
        return provider
    return "openai-responses" if provider == "openai" and not has_base_url else "openai-chat"


def _place(provider: str, base_url: str | None, wire_format: str) -> tuple[str, bool]:
    """The base URL for the provider's own SDK, and whether it leads to the orchestrator."""
    known = _PROVIDERS.get(provider)
    if override := os.environ.get(f"AOD_PROVIDER_{_as_variable(provider)}_BASE_URL"):
        return override.rstrip("/"), False
    if orchestrator := os.environ.get("AOD_URL"):
        version = "/v1" if wire_format.startswith("openai") else ""
        return f"{orchestrator.rstrip('/')}/llm/{provider}{version}", True
    shared = os.environ.get(known.base_url_variable) if known and known.base_url_variable else None
    url = base_url or shared or (known.base_url if known else None)
    if url is None:
        message = f'provider {provider!r} has no known address; expected "base_url" in models'
        raise CapsuleInvalid("agent.yaml is invalid", [message])
    return url.rstrip("/"), False


def _key(provider: str, key_variable: str | None) -> str:
    known = _PROVIDERS.get(provider)
    if key_variable:
        variables: tuple[str, ...] = (key_variable,)
    else:
        variables = known.key_variables if known else (f"{_as_variable(provider)}_API_KEY",)
    for variable in variables:
        if key := os.environ.get(variable):
            return key
    if key_variable or (known and known.needs_key):
        message = f"{' or '.join(variables)} is not set; expected the key of {provider}"
        raise CapsuleInvalid("the model has no key", [message])
    return _KEY_PLACEHOLDER


def _as_variable(provider: str) -> str:
    return re.sub("[^A-Z0-9]", "_", provider.upper())
