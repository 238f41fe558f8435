"""One item and its prediction to one result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pytest_agentbench.benchmark.asking import Desk, Pending
from pytest_agentbench.benchmark.deciding import check_output, decide
from pytest_agentbench.benchmark.results import EvaluationResult
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics import (
    BUILTIN_METRICS,
    METRICS,
    Metric,
    asks_model,
    find_metric,
    measure,
    measure_async,
    takes_trace,
)
from pytest_agentbench.records import Check, MetricResult, MetricSpec
from pytest_agentbench.sources import BenchmarkItem, Dataset, as_prediction

_NOTHING = "there is nothing to score against: the item has neither an answer nor an evaluator"


class Asked:
    """A metric with its function. `spec.compat` picks the original's definition of a registered one.

    Raises ConfigError for a metric of a trace.
    """

    def __init__(self, spec: MetricSpec, function: Metric) -> None:
        self.spec = spec
        self.registered = METRICS.get(spec.name) is function
        self.function = find_metric(spec.name, METRICS, spec.compat) if self.registered else function
        if takes_trace(self.function):
            raise ConfigError(f"metric {spec.name!r} looks at how a run used its tools: predictions do not say that")
        self.waits = asks_model(self.function)
        self.needs_answer = BUILTIN_METRICS.get(spec.name) is function and spec.compat is None
        # The definition is chosen here; only what is awaited is told of `compat`.
        self._applied = spec if self.waits else spec.model_copy(update={"compat": None})
        self._metrics = {spec.name: self.function}

    def measure(self, reference: str, output: str | tuple[str, ...]) -> MetricResult:
        """The metric of an output; what keeps it from a score is its `error`."""
        return measure(self._applied, reference, output, self._metrics)

    async def ask(self, item: BenchmarkItem, reference: str, output: str | tuple[str, ...], desk: Desk) -> MetricResult:
        """Like `measure`, for a metric that asks a model."""
        return await measure_async(self._applied, reference, output, self._metrics, desk.context(item))


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores items by `asked`, or by what their own `evaluator` asks for. `find` finds a metric by name.

    `dataset` is asked what decides a row that says so itself, `by_row` whether every row does: the metric's arguments
    are fields of it. `missing` is the score of an item without a prediction.
    """

    asked: Asked
    find: Callable[[str], Metric]
    dataset: Dataset
    by_row: bool
    missing: float | None

    def score(self, item: BenchmarkItem, given: Any) -> EvaluationResult | Pending:
        """The result for a prediction as it was given."""
        asked = self.asked
        try:
            output = as_prediction(given)
        except ValueError as error:
            return _failed(item, given, asked.spec.name, f"prediction: {error}")
        if output is None or output == ():
            return _result(item, output, self.missing, asked.spec.name, {"missing": True})
        evaluator = item.metadata.get("evaluator") if item.metadata else None
        if evaluator is not None:
            return self._by_row(item, output, {"evaluator": evaluator})
        if asked.needs_answer and not item.answer:
            return _failed(item, output, asked.spec.name, _NOTHING)
        if self.by_row and item.answer:
            return self._by_row(item, output, {})
        return _by_metric(item, output, asked, item.answer, {})

    def _by_row(
        self, item: BenchmarkItem, output: str | tuple[str, ...], details: dict[str, Any]
    ) -> EvaluationResult | Pending:
        """Decided as the engine decides the row: a check gives 1 or 0, a metric its score."""
        try:
            checks, metrics, reference = decide(self.dataset, item)
            if checks:
                return _by_check(item, output, checks[0], self.asked.spec.compat, details)
            spec = metrics[0]
            if self.asked.spec.compat is not None:
                spec = spec.model_copy(update={"compat": self.asked.spec.compat})
            return _by_metric(item, output, Asked(spec, self.find(spec.name)), reference or "", details)
        except Exception as error:  # noqa: BLE001  the lookup may be the user's code
            text = str(error) or type(error).__name__
            return _failed(item, output, self.asked.spec.name, text, details)


def _by_check(
    item: BenchmarkItem,
    output: str | tuple[str, ...],
    check: Check,
    compat: Literal["v1"] | None,
    details: dict[str, Any],
) -> Pending:
    if not isinstance(output, str):
        raise ValueError(f"found several predictions, expected one text for the check {check.kind}")

    async def finish(desk: Desk) -> EvaluationResult:
        found = await check_output(check, item, output, compat)
        if found.outcome not in ("passed", "failed"):
            return _failed(item, output, check.kind, found.message, details)
        passed = found.outcome == "passed"
        said = {**details, "passed": passed, "reason": found.message}
        return _result(item, output, float(passed), check.kind, said)

    return Pending(item, finish)


def _by_metric(
    item: BenchmarkItem, output: str | tuple[str, ...], asked: Asked, reference: str, details: dict[str, Any]
) -> EvaluationResult | Pending:
    if not asked.waits:
        return _measured(item, output, reference, asked.measure(reference, output), details)

    async def finish(desk: Desk) -> EvaluationResult:
        return _measured(item, output, reference, await asked.ask(item, reference, output, desk), details)

    return Pending(item, finish)


def _measured(
    item: BenchmarkItem, output: str | tuple[str, ...], reference: str, found: MetricResult, details: dict[str, Any]
) -> EvaluationResult:
    if found.score is None:
        return _failed(item, output, found.name, found.error or "the metric gave no score", details)
    details = {**details, **found.details}
    if "evaluator" in details and found.passed is not None:
        details["passed"] = found.passed
    if found.usage is not None:
        details["usage"] = found.usage.model_dump(exclude_none=True, exclude={"raw"})
    return EvaluationResult(item.id, item.question, reference, output, found.score, found.name, details)


def _failed(
    item: BenchmarkItem, output: Any, metric_name: str, error: str, details: Mapping[str, Any] | None = None
) -> EvaluationResult:
    return _result(item, output, None, metric_name, {**(details or {}), "error": error})


def _result(
    item: BenchmarkItem, output: Any, score: float | None, metric_name: str, details: dict[str, Any]
) -> EvaluationResult:
    return EvaluationResult(item.id, item.question, item.answer, output, score, metric_name, details)
