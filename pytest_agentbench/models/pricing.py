"""Tokens and money: of one reply, and of a command by stages, within its limit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from pytest_agentbench.records.case import Model, Prices
from pytest_agentbench.records.run import Usage

DEFAULT_BASE_URL = "https://api.openai.com/v1"


def read_usage(block: object, model: Model, answered_by: str) -> Usage:
    """Return the `usage` block of a chat completion as Usage; all None where there is none.

    The cost is the provider's own, else by `model.prices`, else by the price library, else None. `answered_by` is the
    model name of the reply. Scripted models cost nothing unless `prices` says otherwise.
    """
    if not isinstance(block, Mapping):
        return Usage(cost_usd=0.0) if model.scripted and model.prices is None else Usage()
    prompt = _find_count(block, "prompt_tokens", "input_tokens")
    completion = _find_count(block, "completion_tokens", "output_tokens")
    total = _find_count(block, "total_tokens")
    if total is None and prompt is not None and completion is not None:
        total = prompt + completion
    cached = _find_count(_find_mapping(block, "prompt_tokens_details", "input_tokens_details"), "cached_tokens")
    # Without validation: every value was checked by `_find_count`, and this runs once per reply.
    usage = Usage.model_construct(
        input_tokens=prompt,
        output_tokens=completion,
        total_tokens=total,
        reasoning_tokens=_find_count(
            _find_mapping(block, "completion_tokens_details", "output_tokens_details"), "reasoning_tokens"
        ),
        cached_tokens=_find_count(block, "prompt_cache_hit_tokens") if cached is None else cached,
        cost_usd=None,
        raw=(dict(block),),
    )
    return usage.model_copy(update={"cost_usd": _find_cost(block, usage, model, answered_by)})


def _find_cost(block: Mapping[str, Any], usage: Usage, model: Model, answered_by: str) -> float | None:
    reported = block.get("cost")
    # OpenRouter, for one, reports what it charges: nearer to the bill than any list of prices.
    if isinstance(reported, int | float) and not isinstance(reported, bool) and 0 <= reported < math.inf:
        return float(reported)
    if model.prices is not None:
        return price_by_table(usage, model.prices)
    if model.scripted:
        return 0.0
    return price_by_library(usage, model.base_url or DEFAULT_BASE_URL, answered_by, model.requested_model)


def price_by_table(usage: Usage, prices: Prices) -> float | None:
    """Return USD by a price per million tokens, cached input at its own price where there is one.

    None where the tokens are unknown.
    """
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached = min(usage.cached_tokens or 0, usage.input_tokens)
    cached_price = prices.input_per_1m if prices.cached_input_per_1m is None else prices.cached_input_per_1m
    cost = (usage.input_tokens - cached) * prices.input_per_1m + cached * cached_price
    return (cost + usage.output_tokens * prices.output_per_1m) / 1_000_000


def price_by_library(usage: Usage, base_url: str, *names: str) -> float | None:
    """Return USD by the list prices that genai-prices ships (no network), for the first of `names` that it knows.

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


def _find_count(block: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = block.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def _find_mapping(block: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((value for name in names if isinstance(value := block.get(name), Mapping)), {})


@dataclass(slots=True)
class Spent:
    """Requests that were answered, their tokens and USD as far as they are known; `unknown` ones told no cost."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unknown: int = 0

    def less(self, other: Spent) -> Spent:
        """Return what was spent since the other."""
        return Spent(
            self.requests - other.requests,
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.cost_usd - other.cost_usd,
            self.unknown - other.unknown,
        )

    def add(self, other: Spent) -> None:
        """Add the other to this one."""
        self.requests += other.requests
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.cost_usd += other.cost_usd
        self.unknown += other.unknown


class Ledger:
    """The spending of one command by `stages`. `max_cost` is in USD, None for no limit."""

    def __init__(self, stages: Iterable[str], max_cost: float | None = None) -> None:
        self.max_cost = max_cost
        self.stages = {stage: Spent() for stage in stages}

    def book(self, stage: str, usage: Usage) -> None:
        """Add a reply's usage to a stage."""
        cost = usage.cost_usd
        self.stages[stage].add(
            Spent(1, usage.input_tokens or 0, usage.output_tokens or 0, cost or 0.0, unknown=int(cost is None))
        )

    def snapshot(self) -> dict[str, Spent]:
        """Return what each stage has spent so far."""
        return {stage: replace(spent) for stage, spent in self.stages.items()}

    def since(self, before: Mapping[str, Spent]) -> dict[str, Spent]:
        """Return what each stage has spent since a snapshot."""
        return {stage: spent.less(before[stage]) for stage, spent in self.stages.items()}

    @property
    def total(self) -> Spent:
        """Return all stages together."""
        total = Spent()
        for spent in self.stages.values():
            total.add(spent)
        return total

    def used_up(self) -> str | None:
        """Return why nothing more is to be asked; None while there is money left."""
        spent = self.total.cost_usd
        if self.max_cost is None or spent < self.max_cost:
            return None
        return f"the budget is used up: {spent:.4f} of {self.max_cost:.4f} USD (--max-cost)"

    def uncounted(self) -> str | None:
        """Return what the limit could not count; None where that is nothing, or there is no limit."""
        unknown = self.total.unknown
        if self.max_cost is None or not unknown:
            return None
        return f"--max-cost did not count {unknown} requests of unknown cost; give the model prices in models.yaml"

    def rows(self) -> Iterator[tuple[str, Spent]]:
        """Yield each stage with what it spent, then the total."""
        yield from self.stages.items()
        yield "total", self.total
