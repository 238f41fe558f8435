"""Dialects: the request fields of an endpoint, by the host of its address and by its protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from pytest_agentbench.records.case import ApiName, Dialect, DialectName

_ANTHROPIC_IGNORES = (
    *("response_format", "seed", "logprobs", "top_logprobs", "presence_penalty", "frequency_penalty", "logit_bias"),
    *("metadata", "user", "reasoning_effort", "service_tier", "strict"),
)

DIALECTS: Mapping[DialectName, tuple[str, Dialect]] = {
    "openai": (r"api\.openai\.com", Dialect(limit="max_completion_tokens", prompt_cache="key")),
    "azure": (
        r"[^.]+\.(openai\.azure\.com|services\.ai\.azure\.com|cognitiveservices\.azure\.com|azure-api\.net)",
        Dialect(limit="max_completion_tokens", auth_header="api-key"),
    ),
    "openrouter": (r"openrouter\.ai", Dialect(reasoning_object=True, prompt_cache="marks")),
    "anthropic": (
        r"api\.anthropic\.com",
        Dialect(final_without_tools=False, temperature_max=1.0, ignored=_ANTHROPIC_IGNORES),
    ),
    "gemini": (r"generativelanguage\.googleapis\.com", Dialect()),
    "vertex": (r".*aiplatform\.googleapis\.com", Dialect()),
    "deepseek": (
        r"api\.deepseek\.com",
        Dialect(
            json_schema=False,
            return_empty_in_tool_loop=("reasoning_content",),
            ignored=("max_completion_tokens", "presence_penalty", "frequency_penalty"),
        ),
    ),
    "moonshot": (r"api\.moonshot\..*", Dialect(return_empty_in_tool_loop=("reasoning_content",))),
    "mistral": (
        r"(api|codestral)\.mistral\.ai",
        Dialect(seed="random_seed", never_back=("*unknown",), call_ids="nine"),
    ),
    "groq": (
        r"api\.groq\.com",
        Dialect(limit="max_completion_tokens", never_back=("*unknown",), always_back=("reasoning",)),
    ),
    "xai": (r"(.+\.)?api\.x\.ai", Dialect()),
    "together": (r"api\.together\.(xyz|ai)", Dialect(reasoning_object=True)),
    "fireworks": (r"api\.fireworks\.ai", Dialect()),
    "bedrock": (
        r"bedrock-(runtime|mantle)\.[a-z0-9-]+\.(amazonaws\.com|api\.aws)",
        Dialect(final_without_tools=False),
    ),
    "local": (r"localhost|127\.0\.0\.1|::1", Dialect(truncation_watch=True)),
    "other": (r".*", Dialect()),
}
"""Each with the hosts (a pattern of the whole name) that speak it; the first that fits holds."""


_NATIVE = {"limit": "max_tokens", "json_schema": True, "never_back": (), "return_empty_in_tool_loop": ()}
_APIS: Mapping[ApiName | None, Mapping[str, Any]] = {
    "responses": {
        **_NATIVE,
        "reasoning_object": False,
        "ignored": (
            *("audio", "frequency_penalty", "logit_bias", "logprobs", "modalities", "n", "prediction"),
            *("presence_penalty", "seed", "stop", "web_search_options"),
        ),
    },
    "messages": {
        **_NATIVE,
        "reasoning_object": False,
        "auth_header": "x-api-key",
        "final_without_tools": False,
        "temperature_max": 1.0,
        "ignored": (
            *("audio", "frequency_penalty", "logit_bias", "logprobs", "modalities", "n", "prediction", "store", "user"),
            *("presence_penalty", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "seed"),
            *("top_logprobs", "verbosity", "web_search_options"),
        ),
    },
    "gemini": {
        **_NATIVE,
        "reasoning_object": False,
        "auth_header": "x-goog-api-key",
        "final_without_tools": False,
        "ignored": (
            *(
                "audio",
                "logit_bias",
                "logprobs",
                "modalities",
                "n",
                "parallel_tool_calls",
                "prediction",
                "store",
                "user",
            ),
            *("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "top_logprobs", "verbosity"),
            "web_search_options",
        ),
    },
}
"""Properties of a protocol at any endpoint. Fields of Chat Completions that it lacks are not sent."""


def resolve_dialect(
    name: str | None, base_url: str, overrides: Dialect | None = None, api: ApiName | None = "chat"
) -> Dialect:
    """Return the named dialect, else ("auto", None) the dialect of the host and protocol. `overrides` win."""
    dialect = _find_dialect(name or "auto", base_url)
    if native := _APIS.get(api):
        dialect = dialect.model_copy(update=native)
    if overrides is None:
        return dialect
    return dialect.model_copy(update={field: getattr(overrides, field) for field in overrides.model_fields_set})


@lru_cache(maxsize=256)
def _find_dialect(name: str, base_url: str) -> Dialect:
    if name != "auto":
        return next(dialect for known, (_, dialect) in DIALECTS.items() if known == name)
    host = (urlsplit(base_url).hostname or "").rstrip(".")
    return next(dialect for hosts, dialect in DIALECTS.values() if re.fullmatch(hosts, host))
