"""Metrics that cannot be computed, here or as they are asked for, are refused before anything is paid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pytest_agentbench.config import EvaluationProfile, located
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics import Metric, refusal
from pytest_agentbench.records import Case, MetricAtLeast, MetricSpec
from pytest_agentbench.sources import Dataset

_Loc = tuple[str | int, ...]
Known = Mapping[str, Metric]
"""The metrics of the session by name."""


def require_for_case(case: Case, profile: EvaluationProfile, known: Known) -> None:
    """Raises ConfigError for metrics, and checks of metrics, of a test.yaml that cannot be computed here."""
    if problems := _of_case(case, profile, known):
        raise located(case.path, problems)


def require_for_profile(profile: EvaluationProfile, path: Path, known: Known) -> None:
    """The same for the metrics of an evaluation profile."""
    if problems := list(_refused(_named(profile.metrics), profile, known)):
        raise located(path, problems)


def require_for_dataset(dataset: Dataset, profile: EvaluationProfile, known: Known) -> None:
    """The same for the metrics of a dataset, which may come from the command line."""
    if reasons := [reason for _, reason in _refused(_named(dataset.metrics), profile, known)]:
        raise ConfigError(f"{dataset.path}:1:1: {'; '.join(reasons)}")


def require_for_row(case: Case, profile: EvaluationProfile, known: Known) -> None:
    """The same for the metrics that a row's own evaluator names."""
    if reasons := [reason for _, reason in _of_case(case, profile, known)]:
        raise ConfigError(f"{case.path}:{case.line}:1: evaluator: {'; '.join(reasons)}")


def _of_case(case: Case, profile: EvaluationProfile, known: Known) -> list[tuple[_Loc, str]]:
    checks = _refused(_checked(case), profile, known, checked=True)
    return [*_refused(_named(case.metrics), profile, known), *checks]


def _named(metrics: Iterable[MetricSpec]) -> Iterator[tuple[_Loc, MetricSpec]]:
    for index, metric in enumerate(metrics):
        yield ("metrics", index), metric


def _checked(case: Case) -> Iterator[tuple[_Loc, MetricSpec]]:
    for index, check in enumerate(case.checks):
        asked = check.declarative
        if isinstance(asked, MetricAtLeast):
            yield ("deterministic_checks", index, "declarative"), MetricSpec(name=asked.name, args=asked.args)


def _refused(
    metrics: Iterable[tuple[_Loc, MetricSpec]], profile: EvaluationProfile, known: Known, *, checked: bool = False
) -> Iterator[tuple[_Loc, str]]:
    for loc, metric in metrics:
        if metric.name in known and (reason := refusal(metric, known, profile.compat, checked=checked)):
            yield loc, reason
