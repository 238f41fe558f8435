"""What will score cases, settled before anything is paid: metrics, the models they ask, predictions."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_agentbench.config.documents import Loc
from pytest_agentbench.config.loader import make_located_error
from pytest_agentbench.config.profiles import EvaluationProfile
from pytest_agentbench.engine.job import Plan
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics.registry import Metric, asks_model, refusal
from pytest_agentbench.records.case import Case, MetricSpec, Model
from pytest_agentbench.records.check_specs import MetricAtLeast
from pytest_agentbench.runners.predictions import Predictions
from pytest_agentbench.sources.case_source import BadRow, OpenedSource, SourceCase
from pytest_agentbench.sources.dataset import legal_id
from pytest_agentbench.sources.predictions import read_predictions


def metric_judges(
    plans: Sequence[Plan], specs: Iterable[MetricSpec], metrics: Mapping[str, Metric], place: str
) -> list[tuple[Model, ...]]:
    """For each plan the models that the metrics of a case at `place` ask, those of the evaluation profile included.

    Raises ConfigError for a metric that takes a `model` and has none.
    """
    specs = list(specs)
    return [tuple(_models(plan, (*specs, *plan.evaluation_profile.metrics), metrics, place).values()) for plan in plans]


def _models(plan: Plan, specs: Iterable[MetricSpec], metrics: Mapping[str, Metric], place: str) -> dict[str, Model]:
    found: dict[str, Model] = {}
    for spec in specs:
        function = metrics.get(spec.name)
        if function is None or not asks_model(function):
            continue
        name = spec.args.get("model")
        if name is not None and (not isinstance(name, str) or not name.strip()):
            raise ConfigError(f"{place}: metric {spec.name}: args.model: found {name!r}, expected a model's id or name")
        if plan.judged_by(name) is not None:
            model = plan.judge_model(name)
            found[model.model_id] = model
        elif "model" in inspect.signature(function).parameters:
            raise ConfigError(
                f"{place}: metric {spec.name} asks a model, and there is none to ask; name one in the metric's args "
                "(`args: {model: gpt4o}`), or a judge in the evaluation profile"
            )
    return found


Known = Mapping[str, Metric]
"""The metrics of the session by name."""


def require_for_profile(profile: EvaluationProfile, path: Path, known: Known) -> None:
    """Raise ConfigError for metrics of an evaluation profile that cannot be computed here."""
    if problems := list(_refused(_named(profile.metrics), profile, known)):
        raise make_located_error(path, problems)


def require_for_source(opened: OpenedSource, profile: EvaluationProfile, known: Known) -> None:
    """Raise ConfigError for metrics of a file's cases that cannot be computed; they may come from the command line."""
    if reasons := [reason for _, reason in _refused(_named(opened.metrics), profile, known)]:
        raise ConfigError(f"{opened.path}:1:1: {'; '.join(reasons)}")


def case_problems(case: Case, profile: EvaluationProfile, known: Known) -> list[tuple[Loc, str]]:
    """Return what keeps metrics, and checks of metrics, of a case from being computed, each at its field."""
    checks = _refused(_checked(case), profile, known, checked=True)
    return [*_refused(_named(case.metrics), profile, known), *checks]


def _named(metrics: Iterable[MetricSpec]) -> Iterator[tuple[Loc, MetricSpec]]:
    for index, metric in enumerate(metrics):
        yield ("metrics", index), metric


def _checked(case: Case) -> Iterator[tuple[Loc, MetricSpec]]:
    for index, check in enumerate(case.checks):
        asked = check.declarative
        if isinstance(asked, MetricAtLeast):
            yield ("deterministic_checks", index, "declarative"), MetricSpec(name=asked.name, args=asked.args)


def _refused(
    metrics: Iterable[tuple[Loc, MetricSpec]], profile: EvaluationProfile, known: Known, *, checked: bool = False
) -> Iterator[tuple[Loc, str]]:
    for loc, metric in metrics:
        if metric.name in known and (reason := refusal(metric, known, profile.compat, checked=checked)):
            yield loc, reason


_FIRST = 5


class Predicted:
    """The predictions of a file, assigned to cases while these are collected.

    One with an id belongs to one case. A list without ids answers the rows of one dataset in file order, and may leave
    none out. `problem` is why nothing can be scored.
    """

    def __init__(self, path: Path) -> None:
        self.problem: str | None = None
        found: dict[str, Any] | list[Any] = {}
        try:
            found = read_predictions(path)
        except ConfigError as error:
            self.problem = str(error)
        self._in_order = found if isinstance(found, list) else None
        self._answers = {} if isinstance(found, list) else {legal_id(key): value for key, value in found.items()}
        self._owners: dict[str, Path] = {}
        self._dataset: Path | None = None
        values = found if isinstance(found, list) else found.values()
        self.predictions = Predictions(path, self._answers, max(map(_samples, values), default=1))

    def rows(self, opened: OpenedSource, rows: Iterable[SourceCase | BadRow]) -> Iterator[SourceCase | BadRow]:
        """Pass the rows of a file on and assign them their predictions. To be read to the end.

        Raises ConfigError where another file has one of them.
        """
        if self._in_order is not None and opened.ordered:
            yield from self._rows_in_order(self._in_order, opened, rows)
            return
        for row in rows:
            if isinstance(row, SourceCase):
                if self._in_order is not None:
                    self._refuse(f"the case {row.case_id} is no row of a dataset")
                self._assign(row.case_id, opened.name if opened.ordered else None, opened.file)
            yield row

    def warnings(self, repetitions: int) -> Iterator[str]:
        """Yield what is worth saying of predictions that no collected case takes, and of samples that are missing."""
        if self.problem:
            return
        name = self.predictions.path.name
        if unused := [key for key in self._answers if key not in self._owners]:
            yield f"{name}: {self._counted(unused)} are of no case that was collected: {_some(unused)}"
        if fewer := [key for key, value in self._answers.items() if _samples(value) < repetitions]:
            missing = f"fewer samples than the {repetitions} repetitions, and what is missing counts as failed"
            yield f"{name}: {self._counted(fewer)} have {missing}: {_some(fewer)}"

    def _rows_in_order(
        self, values: list[Any], opened: OpenedSource, rows: Iterable[SourceCase | BadRow]
    ) -> Iterator[SourceCase | BadRow]:
        number, file = 0, opened.part
        if self._dataset not in (None, file):
            self._refuse(f"the session has several datasets ({self._dataset} and {file})")
        self._dataset = file
        for number, row in enumerate(rows, 1):
            if isinstance(row, SourceCase):
                if row.number != number - 1:
                    self._refuse(f"{file} takes its rows in another order or leaves some out")
                if number <= len(values):
                    self._answers[row.case_id] = values[number - 1]
                    self._owners[row.case_id] = file
            yield row
        if number != len(values):
            self._refuse(f"{file} has {number:,} items, the list {len(values):,}")

    def _counted(self, keys: list[str]) -> str:
        return f"{len(keys):,} of {len(self._answers):,} predictions"

    def _assign(self, case_id: str, dataset: str | None, path: Path) -> None:
        key = self.predictions.key(case_id, dataset)
        if key is None:
            return
        owner = self._owners.setdefault(key, path)
        if owner != path and not owner.samefile(path):
            raise ConfigError(
                f"{path}: found the prediction of {key!r} in {self.predictions.path.name}, which {owner} takes; "
                f"expected one for each: name predictions by their full case ids, such as {case_id!r}"
            )

    def _refuse(self, reason: str) -> None:
        self.problem = self.problem or (
            f"{self.predictions.path}: a list of predictions answers the rows of one dataset, all of them in file "
            f"order, but {reason}; name predictions by id instead: {{item id: prediction}}"
        )


def _some(keys: list[str]) -> str:
    return ", ".join(map(repr, keys[:_FIRST])) + (", ..." if len(keys) > _FIRST else "")


def _samples(value: Any) -> int:
    """Return how many repetitions a prediction asks for. A list of objects is none of samples: another file's, by
    mistake.
    """
    is_samples = isinstance(value, list) and not all(isinstance(each, (dict, list)) for each in value)
    return len(value) if is_samples else 1
