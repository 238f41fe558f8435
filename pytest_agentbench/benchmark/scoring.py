"""Score one item and its prediction: by a named metric, or by the row's own evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pytest_agentbench.benchmark.concurrency import Desk, Pending
from pytest_agentbench.benchmark.results import EvaluationResult
from pytest_agentbench.checks.base import CheckContext
from pytest_agentbench.checks.run import run_checks
from pytest_agentbench.config.profiles import SecurityPolicy
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics.registry import (
    BUILTIN_METRICS,
    METRICS,
    Metric,
    asks_model,
    find_metric,
    measure,
    measure_async,
    takes_trace,
)
from pytest_agentbench.records.case import Case, Compat, Message, MetricSpec, RunnerSpec
from pytest_agentbench.records.check_specs import Check
from pytest_agentbench.records.evaluation import CheckResult, MetricResult
from pytest_agentbench.records.gold import Gold, gold_of_compat, gold_reply
from pytest_agentbench.records.run import FinalOutputEvent, RunArtifact
from pytest_agentbench.sources.dataset import Dataset
from pytest_agentbench.sources.items import BenchmarkItem
from pytest_agentbench.sources.predictions import as_prediction
from pytest_agentbench.sources.rows import GradingParts, evaluator_of, read_grading

Lookup = Callable[[str], Metric | None]

_NONE: Mapping[int, int] = {}
_running: ContextVar[Mapping[int, int]] = ContextVar("agentbench_metric_lookups", default=_NONE)
"""Level of the running lookup of each benchmark, by id(), in this thread: the number of assigned lookups below it."""


class MetricLookup:
    """A data descriptor: the metric's function by its name, from assigned functions and the registry below them.

    Seed 001 assigns a lambda that falls back to the attribute which it replaces:

        benchmark._get_metric_function = lambda metric: {
            "mine": mine
        }.get(metric, benchmark._get_metric_function(metric))

    While an assigned function runs, the attribute is therefore the previous one, and returns None for an unknown name.
    Only the outermost lookup raises ConfigError. Assignments stack; `base` is the lowest function.
    """

    def __init__(self, base: Callable[[Any, str], Metric | None]) -> None:
        self._base = base

    def __get__(self, benchmark: Any, owner: type | None = None) -> Any:
        if benchmark is None:
            return self
        level = _running.get().get(id(benchmark), len(_list_assigned(benchmark)))
        return partial(self._find, benchmark, level)

    def __set__(self, benchmark: Any, function: Lookup) -> None:
        if not callable(function):
            raise TypeError(f"_get_metric_function: found {type(function).__name__}, expected a function of a name")
        benchmark.__dict__[_ASSIGNED] = (*_list_assigned(benchmark), function)

    def _find(self, benchmark: Any, level: int, name: str) -> Metric | None:
        running = _running.get()
        # A context variable and not an attribute, because several threads score with one benchmark.
        token = _running.set({**running, id(benchmark): level - 1})
        try:
            metric = _list_assigned(benchmark)[level - 1](name) if level > 0 else self._base(benchmark, name)
        finally:
            _running.reset(token)
        # An assigned lookup called this one, and may know the name itself, so None is a valid answer.
        if id(benchmark) in running:
            return metric
        if metric is None:
            return find_metric(name, METRICS)  # raises the error that names the registered metrics
        if not callable(metric):
            raise ConfigError(f"metric {name!r}: the lookup returned {type(metric).__name__}, expected a function")
        return metric


def find_registered(benchmark: object, name: str) -> Metric | None:
    """Return the benchmark's own method `_<name>` for a metric that ships with the package, else the registered metric.

    Subclasses of the original override `_exact_match` and the like: `(self, ground_truth, prediction, **options)`.
    """
    if name in BUILTIN_METRICS:
        method: Metric | None = getattr(benchmark, f"_{name}", None)
        if callable(method):
            return method
    return METRICS.get(name)


_ASSIGNED = "_metric_lookups"


def _list_assigned(benchmark: Any) -> tuple[Lookup, ...]:
    lookups: tuple[Lookup, ...] = benchmark.__dict__.get(_ASSIGNED, ())
    return lookups


_RUNNER = "predictions"


def _find_grading(dataset: Dataset, item: BenchmarkItem) -> GradingParts:
    """Return the checks, the metrics with their arguments from the row, and the reference of an item.

    Raises ValueError if they cannot be used.
    """
    metadata = item.metadata or {}
    row = {"id": item.id, "question": item.question, "answer": item.row_answer, "metadata": metadata}
    return read_grading(dataset, row, metadata)


async def _check_output(check: Check, item: BenchmarkItem, output: str, compat: Compat | None) -> CheckResult:
    """Return the result of the check of a prediction. Never raises: an error of the check is an outcome."""
    case = Case(
        case_id=item.id,
        title=item.id,
        path=Path(item.id),
        runner=RunnerSpec(type=_RUNNER),
        messages=(Message(role="user", content=item.question),),
        checks=(check,),
        reference=item.answer,
    )
    artifact = RunArtifact(
        run_id=item.id,
        case_id=item.id,
        runner_type=_RUNNER,
        model={},
        repetition=1,
        status="success",
        started_at=datetime.now(UTC),
        duration_seconds=0.0,
        trace=(FinalOutputEvent(sequence=0, at=0.0, content=output),),
    )
    [result] = await run_checks(CheckContext(case, artifact, None, METRICS, compat), SecurityPolicy())
    return result


_NOTHING = "there is nothing to score against: the item has neither an answer nor an evaluator"


class ChosenMetric:
    """A metric with its function. `spec.compat` picks the original's definition of a registered one.

    Raises ConfigError for a metric of a trace.
    """

    def __init__(self, spec: MetricSpec, function: Metric) -> None:
        self.spec = spec
        self.registered = METRICS.get(spec.name) is function
        self.function = find_metric(spec.name, METRICS, spec.compat) if self.registered else function
        if takes_trace(self.function):
            raise ConfigError(
                f"metric {spec.name!r} looks at how a run used its tools, which predictions do not contain"
            )
        self.waits = asks_model(self.function)
        self.needs_answer = spec.name in BUILTIN_METRICS and METRICS.get(spec.name) is function and spec.compat is None
        # `function` belongs to `compat` already. Only metrics that ask models need the field as well.
        self._applied = spec if self.waits else spec.model_copy(update={"compat": None})
        self._metrics = {spec.name: self.function}

    def measure(self, reference: Gold, output: str | tuple[str, ...]) -> MetricResult:
        """Return the metric of an output, with an `error` if it has no score."""
        if self.spec.compat is not None:
            reference = gold_of_compat(reference)
        return measure(self._applied, reference, output, self._metrics)

    async def ask(
        self, item: BenchmarkItem, reference: Gold, output: str | tuple[str, ...], desk: Desk
    ) -> MetricResult:
        """Return the metric of an output like `measure`, for a metric that asks a model."""
        return await measure_async(self._applied, reference, output, self._metrics, desk.context(item))


@dataclass(frozen=True, slots=True)
class Scorer:
    """A scorer of items by the `chosen` metric, or by their own `evaluator`. `find` returns a metric by name.

    `dataset` decides rows with an evaluator, and with `by_row` every row, because the metric's arguments are fields of
    the row. It also decides rows whose answer is no text. `missing` is the score of an item without a prediction.
    """

    chosen: ChosenMetric
    find: Callable[[str], Metric]
    dataset: Dataset
    by_row: bool
    missing: float | None

    def score(self, item: BenchmarkItem, prediction: Any) -> EvaluationResult | Pending:
        """Return the result for a user's prediction of any type."""
        chosen = self.chosen
        try:
            output = as_prediction(prediction)
        except ValueError as error:
            return _make_failed(item, prediction, chosen.spec.name, f"prediction: {error}")
        if output is None or output == ():
            return _make_result(item, output, self.missing, chosen.spec.name, {"missing": True})
        # Before the check for an answer, because a row with an evaluator may need none.
        evaluator = evaluator_of(item.metadata)
        if evaluator is not None:
            return self._score_by_row(item, output, {"evaluator": evaluator})
        if chosen.needs_answer and not item.answer:
            return _make_failed(item, output, chosen.spec.name, _NOTHING)
        if item.answer and (self.by_row or item.typed_answer is not None):
            return self._score_by_row(item, output, {})
        return _score_by_metric(item, output, chosen, item.answer, {})

    def _score_by_row(
        self, item: BenchmarkItem, output: str | tuple[str, ...], details: dict[str, Any]
    ) -> EvaluationResult | Pending:
        """Decide an item as the engine decides the row: a check gives 1 or 0, a metric its score."""
        try:
            checks, metrics, reference = _find_grading(self.dataset, item)
            if checks:
                return _score_by_check(item, output, checks[0], self.chosen.spec.compat, details)
            spec = metrics[0]
            if self.chosen.spec.compat is not None:
                spec = spec.model_copy(update={"compat": self.chosen.spec.compat})
            return _score_by_metric(item, output, ChosenMetric(spec, self.find(spec.name)), reference or "", details)
        except Exception as error:  # noqa: BLE001  the lookup may be the user's code
            text = str(error) or type(error).__name__
            return _make_failed(item, output, self.chosen.spec.name, text, details)


def _score_by_check(
    item: BenchmarkItem, output: str | tuple[str, ...], check: Check, compat: Compat | None, details: dict[str, Any]
) -> Pending:
    if not isinstance(output, str):
        raise ValueError(f"found several predictions, expected one text for the check {check.kind}")

    async def finish(desk: Desk) -> EvaluationResult:
        result = await _check_output(check, item, output, compat)
        if result.outcome not in ("passed", "failed"):
            return _make_failed(item, output, check.kind, result.message, details)
        passed = result.outcome == "passed"
        outcome = {"passed": passed, "reason": result.message}
        return _make_result(item, output, float(passed), check.kind, {**details, **outcome})

    return Pending(item, finish)


def _score_by_metric(
    item: BenchmarkItem, output: str | tuple[str, ...], chosen: ChosenMetric, reference: Gold, details: dict[str, Any]
) -> EvaluationResult | Pending:
    if not chosen.waits:
        return _make_measured(item, output, reference, chosen.measure(reference, output), details)

    async def finish(desk: Desk) -> EvaluationResult:
        return _make_measured(item, output, reference, await chosen.ask(item, reference, output, desk), details)

    return Pending(item, finish)


def _make_measured(
    item: BenchmarkItem, output: str | tuple[str, ...], reference: Gold, measured: MetricResult, details: dict[str, Any]
) -> EvaluationResult:
    if measured.score is None:
        return _make_failed(item, output, measured.name, measured.error or "the metric gave no score", details)
    details = {**details, **measured.details, **_make_typed(item)}
    if "evaluator" in details and measured.passed is not None:
        details["passed"] = measured.passed
    if measured.usage is not None:
        details["usage"] = measured.usage.model_dump(exclude_none=True, exclude={"raw"})
    return EvaluationResult(
        item.id, item.question, gold_reply(reference), output, measured.score, measured.name, details
    )


def _make_failed(
    item: BenchmarkItem, output: Any, metric_name: str, error: str, details: Mapping[str, Any] | None = None
) -> EvaluationResult:
    return _make_result(item, output, None, metric_name, {**(details or {}), "error": error})


def _make_result(
    item: BenchmarkItem, output: Any, score: float | None, metric_name: str, details: dict[str, Any]
) -> EvaluationResult:
    details = {**details, **_make_typed(item)}
    return EvaluationResult(item.id, item.question, item.answer, output, score, metric_name, details)


def _make_typed(item: BenchmarkItem) -> dict[str, Any]:
    """Return the details that keep an answer that is no text."""
    if item.typed_answer is None:
        return {}
    return {"typed_answer": item.typed_answer}
