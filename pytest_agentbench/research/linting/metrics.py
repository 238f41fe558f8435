"""Whether the `execution_metrics` of reports can be true: against the article, the prices, and each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_agentbench.config.annotations import TokenPrice
from pytest_agentbench.records import ExecutionMetrics, ReportRow
from pytest_agentbench.research.counting import Counted, counted
from pytest_agentbench.research.linting.finding import Finding
from pytest_agentbench.research.linting.tables import Table

COUNT_ERROR = 0.05
"""How far a count may be from the article's own, as a share of it."""
COST_ERROR = 0.1
_FEWEST_TOKENS_A_WORD = 0.4
"""Tokenizers join two or three Chinese characters at most, and no Latin words."""
_COUNTS = ("tool_calls_count", "sources_used", "citation_count", "word_count")
_TOKENS = ("input_tokens", "output_tokens")


def metrics_findings(table: Table[ReportRow], prices: Mapping[str, TokenPrice]) -> Iterator[Finding]:
    """Of every row of a file; the model whose prices count is the file's stem."""
    price = prices.get(table.path.stem)
    for row in table.rows:
        found = row.value.execution_metrics
        if found is None:
            yield Finding(table.path, row.line, "warning", "execution_metrics", "none", "what the agent's run measured")
            continue
        article = row.value.article
        own = counted(article)
        checks = (_lacking(found), _impossible(found, own.words), _uncounted(found, own, by_links="](" in article))
        for field, said, expected in (each for check in checks for each in check):
            yield Finding(table.path, row.line, "warning", f"execution_metrics.{field}", said, expected)
        yield from _costs(table.path, row.line, found, price)
    yield from _repeated(table)


def _lacking(metrics: ExecutionMetrics) -> Iterator[tuple[str, str, str]]:
    """What the efficiency of a report cannot be computed without."""
    if metrics.total_duration_seconds is None:
        yield "total_duration_seconds", "nothing", "seconds; without them there is no efficiency"
    if metrics.automation_level is None:
        yield "automation_level", "nothing", "a share of 0-1; without it there is no efficiency"
    usage = metrics.token_usage
    if usage.total_cost_usd is None and None in (usage.input_tokens, usage.output_tokens):
        yield "token_usage", "neither a cost nor all tokens", "total_cost_usd, or input_tokens and output_tokens"


def _impossible(metrics: ExecutionMetrics, words: int) -> Iterator[tuple[str, str, str]]:
    """Parts of things, and what no run can have needed for an article of so many words."""
    for field in _COUNTS:
        value = getattr(metrics, field)
        if value is not None and value != int(value):
            yield field, f"{value:g}", "a whole number"
    for field in _TOKENS:
        value = getattr(metrics.token_usage, field)
        if value is not None and value != int(value):
            yield f"token_usage.{field}", f"{value:g}", "a whole number"
    if words and metrics.total_duration_seconds == 0:
        yield "total_duration_seconds", "0", "the time that the report took"
    tokens = metrics.token_usage.output_tokens
    if tokens is not None and tokens < _FEWEST_TOKENS_A_WORD * words:
        yield "token_usage.output_tokens", f"{tokens:g}", f"enough for the {words} words of the article"


def _uncounted(metrics: ExecutionMetrics, own: Counted, *, by_links: bool) -> Iterator[tuple[str, str, str]]:
    """Counts that are not the article's own; those of citations only where it has markers such as [3], or no links."""
    if metrics.word_count is not None and _far(metrics.word_count, own.words):
        yield "word_count", f"{metrics.word_count:g}", f"{own.words}, as the article has"
    if not own.citations and by_links:
        return
    if metrics.citation_count is not None and _far(metrics.citation_count, own.citations):
        yield "citation_count", f"{metrics.citation_count:g}", f"{own.citations}, as the article has"
    if metrics.sources_used is not None and metrics.sources_used < own.sources:
        yield "sources_used", f"{metrics.sources_used:g}", f"at least {own.sources}, as the article cites so many"


def _costs(path: Path, line: int, metrics: ExecutionMetrics, price: TokenPrice | None) -> Iterator[Finding]:
    """A cost that is not that of the tokens; discounts and paid tools may be why."""
    usage = metrics.token_usage
    field = "execution_metrics.token_usage.total_cost_usd"
    if usage.input_tokens is None or usage.output_tokens is None:
        return
    if price is None:
        if usage.total_cost_usd is None:
            yield Finding(path, line, "warning", field, "nothing", f"a cost, as there is no price of {path.stem!r}")
        return
    expected = (usage.input_tokens * price.input_price_per_1k + usage.output_tokens * price.output_price_per_1k) / 1000
    if usage.total_cost_usd is not None and _far(usage.total_cost_usd, expected, COST_ERROR):
        said = f"about {expected:.4g} for its tokens at the prices of {path.stem!r}"
        yield Finding(path, line, "review", field, f"{usage.total_cost_usd:.4g}", said)


def _repeated(table: Table[ReportRow]) -> Iterator[Finding]:
    """Rows that took exactly as long and cost exactly as much as another: copied, not measured."""
    first_of: dict[tuple[float, float], int] = {}
    for row in table.rows:
        metrics = row.value.execution_metrics or ExecutionMetrics()
        seconds, cost = metrics.total_duration_seconds, metrics.token_usage.total_cost_usd
        if not seconds or not cost:
            continue
        first = first_of.setdefault((seconds, cost), row.line)
        if first != row.line:
            found = f"{seconds:g} seconds and {cost:g} USD, as on line {first}"
            yield Finding(table.path, row.line, "review", "execution_metrics", found, "what this run measured")


def _far(value: float, own: float, error: float = COUNT_ERROR) -> bool:
    return abs(value - own) > error * own
