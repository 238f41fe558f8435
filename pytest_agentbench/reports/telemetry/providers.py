"""The conventions' names of providers."""

from __future__ import annotations

from functools import cache

from pytest_agentbench.records import Model

_NAMES = {
    "azure": "azure.ai.openai",
    "aws": "aws.bedrock",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "x-ai": "x_ai",
}
"""Where `gen_ai.provider.name` differs from the name in genai-prices."""


def provider_name(model: Model) -> str:
    """`gen_ai.provider.name` of a model: who answers, as far as its address tells.

    An address that nobody knows speaks OpenAI's protocol, and the conventions name the protocol then. A model that
    answers from scripts is `agentbench`, one that a plugin provides has the plugin's name.
    """
    if model.scripted:
        return "agentbench"
    return model.provider or _by_address(model.base_url)


@cache
def _by_address(base_url: str | None) -> str:
    from genai_prices.data_snapshot import get_snapshot

    if base_url is None:
        return "openai"
    try:
        provider = get_snapshot().find_provider(None, None, base_url).id
    except LookupError:
        return "openai"
    return _NAMES.get(provider, provider)
