"""Metrics whose library is not installed are refused while cases are collected, before anything is paid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pytest_agentbench.config import EvaluationProfile, located
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics import missing_extra
from pytest_agentbench.records import Case, MetricAtLeast, MetricSpec
from pytest_agentbench.sources import Dataset

_Loc = tuple[str | int, ...]


def require_for_case(case: Case, profile: EvaluationProfile) -> None:
    """Raises ConfigError for metrics, and checks of metrics, of a test.yaml that cannot be computed here."""
    named = [*_named(case.metrics), *_checked(case)]
    if problems := list(_lacking(named, profile)):
        raise located(case.path, problems)


def require_for_profile(profile: EvaluationProfile, path: Path) -> None:
    """The same for the metrics of an evaluation profile."""
    if problems := list(_lacking(_named(profile.metrics), profile)):
        raise located(path, problems)


def require_for_dataset(dataset: Dataset, profile: EvaluationProfile) -> None:
    """The same for the metrics of a dataset, which may come from the command line."""
    if reasons := [reason for _, reason in _lacking(_named(dataset.metrics), profile)]:
        raise ConfigError(f"{dataset.path}:1:1: {'; '.join(reasons)}")


def require_for_row(case: Case, profile: EvaluationProfile) -> None:
    """The same for the metrics that a row's own evaluator names."""
    named = [*_named(case.metrics), *_checked(case)]
    if reasons := [reason for _, reason in _lacking(named, profile)]:
        raise ConfigError(f"{case.path}:{case.line}:1: evaluator: {'; '.join(reasons)}")


def _named(metrics: Iterable[MetricSpec]) -> Iterator[tuple[_Loc, MetricSpec]]:
    for index, metric in enumerate(metrics):
        yield ("metrics", index, "name"), metric


def _checked(case: Case) -> Iterator[tuple[_Loc, MetricSpec]]:
    for index, check in enumerate(case.checks):
        if isinstance(check.declarative, MetricAtLeast):
            yield ("deterministic_checks", index, "declarative", "name"), MetricSpec(name=check.declarative.name)


def _lacking(metrics: Iterable[tuple[_Loc, MetricSpec]], profile: EvaluationProfile) -> Iterator[tuple[_Loc, str]]:
    for loc, metric in metrics:
        if reason := missing_extra(metric.name, metric.compat or profile.compat):
            yield loc, reason
