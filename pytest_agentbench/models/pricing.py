"""Tokens and money of one reply: the provider's usage block, normalised, and what it cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pytest_agentbench.records import Model, Prices, Usage

DEFAULT_BASE_URL = "https://api.openai.com/v1"


def read_usage(block: object, model: Model, answered_by: str) -> Usage:
    """The `usage` block of a chat completion as Usage; all None where there is none.

    The cost is the provider's own, else by `model.prices`, else by the price library, else None. `answered_by` is the
    model name of the reply. Scripted models cost nothing unless `prices` says otherwise.
    """
    if not isinstance(block, Mapping):
        return Usage(cost_usd=0.0) if model.scripted and model.prices is None else Usage()
    prompt = _count(block, "prompt_tokens", "input_tokens")
    completion = _count(block, "completion_tokens", "output_tokens")
    total = _count(block, "total_tokens")
    if total is None and prompt is not None and completion is not None:
        total = prompt + completion
    cached = _count(_mapping(block, "prompt_tokens_details", "input_tokens_details"), "cached_tokens")
    usage = Usage.model_construct(
        input_tokens=prompt,
        output_tokens=completion,
        total_tokens=total,
        reasoning_tokens=_count(
            _mapping(block, "completion_tokens_details", "output_tokens_details"), "reasoning_tokens"
        ),
        cached_tokens=_count(block, "prompt_cache_hit_tokens") if cached is None else cached,
        cost_usd=None,
        raw=(dict(block),),
    )
    return usage.model_copy(update={"cost_usd": _cost(block, usage, model, answered_by)})


def _cost(block: Mapping[str, Any], usage: Usage, model: Model, answered_by: str) -> float | None:
    reported = block.get("cost")
    if isinstance(reported, int | float) and not isinstance(reported, bool) and 0 <= reported < math.inf:
        return float(reported)
    if model.prices is not None:
        return by_prices(usage, model.prices)
    if model.scripted:
        return 0.0
    return by_library(usage, model.base_url or DEFAULT_BASE_URL, answered_by, model.requested_model)


def by_prices(usage: Usage, prices: Prices) -> float | None:
    """USD by a price per million tokens; cached input at its own price where there is one. None: tokens unknown."""
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached = min(usage.cached_tokens or 0, usage.input_tokens)
    cached_price = prices.input_per_1m if prices.cached_input_per_1m is None else prices.cached_input_per_1m
    cost = (usage.input_tokens - cached) * prices.input_per_1m + cached * cached_price
    return (cost + usage.output_tokens * prices.output_per_1m) / 1_000_000


def by_library(usage: Usage, base_url: str, *names: str) -> float | None:
    """USD by the list prices that genai-prices ships (no network), for the first of `names` that it knows.

    None where tokens are unknown, or the endpoint or the model is not in its list; a server on this machine never is.
    """
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    if urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1"):
        return None
    import genai_prices

    tokens = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=min(usage.cached_tokens or 0, usage.input_tokens),
    )
    for name in names:
        try:
            return float(genai_prices.calc_price(tokens, name, provider_api_url=base_url).total_price)
        except LookupError:
            continue
    return None


def _count(block: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = block.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def _mapping(block: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((value for name in names if isinstance(value := block.get(name), Mapping)), {})
