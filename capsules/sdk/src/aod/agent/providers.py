"""Creates models of the agent library for the chosen ones."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from ..errors import CapsuleInvalid
from .choice import Choice
from .manifest import Settings

if TYPE_CHECKING:
    import httpx2

#: Timeout of a connection, in seconds.
CONNECT_SECONDS_MAX = 10.0

_EXTRAS = {"openai-chat": "openai", "openai-responses": "openai", "anthropic": "anthropic", "google": "google"}


async def model(choice: Choice, resources: AsyncExitStack) -> Model:
    """The model; ``resources`` closes its connections. Raises CapsuleInvalid if its library is not installed."""
    try:
        return _MAKERS[choice.format](choice, await _client(choice, resources), _settings(choice.settings))
    except ImportError as error:
        extra = _EXTRAS[choice.format]
        message = f"{error}; expected the extra aod-capsule[{extra}]"
        raise CapsuleInvalid(f"cannot use {choice.name}", [message]) from None


async def _client(choice: Choice, resources: AsyncExitStack) -> httpx2.AsyncClient:
    import httpx2

    # Bypasses proxies for the orchestrator, which is on this machine.
    timeout = httpx2.Timeout(choice.timeout_seconds, connect=CONNECT_SECONDS_MAX)
    client = httpx2.AsyncClient(timeout=timeout, trust_env=not choice.is_proxied)
    return await resources.enter_async_context(client)


def _openai_client(choice: Choice, client: httpx2.AsyncClient) -> Any:
    from openai import AsyncOpenAI

    # Disables the client's retries: the agent's own are the same for all providers.
    return AsyncOpenAI(api_key=choice.key, base_url=choice.base_url, http_client=client, max_retries=0)


def _openai_responses(choice: Choice, client: httpx2.AsyncClient, settings: ModelSettings) -> Model:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(openai_client=_openai_client(choice, client))
    return OpenAIResponsesModel(choice.model, provider=provider, settings=settings)


def _openai_chat(choice: Choice, client: httpx2.AsyncClient, settings: ModelSettings) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(openai_client=_openai_client(choice, client))
    return OpenAIChatModel(choice.model, provider=provider, settings=settings)


def _anthropic(choice: Choice, client: httpx2.AsyncClient, settings: ModelSettings) -> Model:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    asked = AsyncAnthropic(api_key=choice.key, base_url=choice.base_url, http_client=client, max_retries=0)
    return AnthropicModel(choice.model, provider=AnthropicProvider(anthropic_client=asked), settings=settings)


def _google(choice: Choice, client: httpx2.AsyncClient, settings: ModelSettings) -> Model:
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    provider = GoogleProvider(api_key=choice.key, base_url=choice.base_url, http_client=client)
    return GoogleModel(choice.model, provider=provider, settings=settings)


_MAKERS = {
    "openai-responses": _openai_responses,
    "openai-chat": _openai_chat,
    "anthropic": _anthropic,
    "google": _google,
}


def _settings(settings: Settings) -> ModelSettings:
    """The set values, with the names of the agent library."""
    given = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_tokens": settings.max_tokens,
        "seed": settings.seed,
        "thinking": False if settings.thinking == "off" else settings.thinking,
        "parallel_tool_calls": settings.parallel_tool_calls,
    }
    return cast(ModelSettings, {name: value for name, value in given.items() if value is not None})
