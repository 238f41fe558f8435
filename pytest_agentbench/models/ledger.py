"""Tokens and money of a command, by stages and within its limit. `replies` computes the cost of one reply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pytest_agentbench.records.run import Usage


@dataclass(slots=True)
class Spent:
    """Requests that may have been billed, their tokens and USD as far as they are known.

    The cost of `unknown` requests is unknown; `estimated_usd` is assumed for those that returned no usage.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unknown: int = 0
    estimated_usd: float = 0.0

    def less(self, other: Spent) -> Spent:
        """Return the amount spent since the other."""
        return Spent(
            self.requests - other.requests,
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.cost_usd - other.cost_usd,
            self.unknown - other.unknown,
            self.estimated_usd - other.estimated_usd,
        )

    def add(self, other: Spent) -> None:
        """Add the other to this one."""
        self.requests += other.requests
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.cost_usd += other.cost_usd
        self.unknown += other.unknown
        self.estimated_usd += other.estimated_usd


class Ledger:
    """The spending of one command by `stages`. `max_cost` is in USD, None for no limit."""

    def __init__(self, stages: Iterable[str], max_cost: float | None = None) -> None:
        self.max_cost = max_cost
        self.stages = {stage: Spent() for stage in stages}

    def book(self, stage: str, usage: Usage) -> None:
        """Add the usage of a request to a stage."""
        cost, part = usage.cost_usd, usage.unsettled
        spent = Spent(1, usage.input_tokens or 0, usage.output_tokens or 0, cost or 0.0, int(cost is None))
        if part is not None:
            spent.estimated_usd = part.estimated_cost_usd or 0.0
        self.stages[stage].add(spent)

    def snapshot(self) -> dict[str, Spent]:
        """Return the amount of each stage so far."""
        return {stage: replace(spent) for stage, spent in self.stages.items()}

    def since(self, before: Mapping[str, Spent]) -> dict[str, Spent]:
        """Return the amount of each stage since a snapshot."""
        return {stage: spent.less(before[stage]) for stage, spent in self.stages.items()}

    @property
    def total(self) -> Spent:
        """Return all stages together."""
        total = Spent()
        for spent in self.stages.values():
            total.add(spent)
        return total

    def used_up(self) -> str | None:
        """Return why no further request may be sent, or None if there is money left."""
        total = self.total
        if self.max_cost is None or total.cost_usd + total.estimated_usd < self.max_cost:
            return None
        spent = f"{total.cost_usd:.4f}"
        if total.estimated_usd > 0:
            spent = f"{spent} and {total.estimated_usd:.4f} estimated"
        return f"the budget is used up: {spent} of {self.max_cost:.4f} USD (--max-cost)"

    def uncounted(self) -> str | None:
        """Return the amount that the limit could not count, or None if there is none, or no limit."""
        unknown, estimated = self.total.unknown, self.total.estimated_usd
        if self.max_cost is None or not unknown:
            return None
        if estimated > 0:
            return f"--max-cost counted an estimate of {estimated:.4f} USD for {unknown} requests of unknown cost"
        return f"--max-cost did not count {unknown} requests of unknown cost; give the model prices in models.yaml"

    def rows(self) -> Iterator[tuple[str, Spent]]:
        """Yield each stage with its amount, then the total."""
        yield from self.stages.items()
        yield "total", self.total
