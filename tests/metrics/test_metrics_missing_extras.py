"""A metric whose package is not installed says so, and how to get it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_agentbench.metrics import registry
from pytest_agentbench.metrics.registry import METRICS, metric


@pytest.fixture
def lacking() -> Iterator[str]:
    @metric("lacking", requires="no_such_module_anywhere")
    def lacking(ground_truth: str, prediction: str) -> float:
        return 1.0

    yield "lacking"
    del METRICS["lacking"], registry._REQUIRED["lacking"]


def test_a_missing_module_is_named_with_its_extra(lacking: str) -> None:
    assert registry.missing_extra(lacking) == (
        "the metric lacking needs the module no_such_module_anywhere; "
        "install it with: pip install 'pytest-agentbench[metrics]'"
    )
    assert registry.missing_extra("exact_match") is None


def test_an_installed_module_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._REQUIRED, "exact_match", "json")
    assert registry.missing_extra("exact_match") is None
    monkeypatch.setitem(registry._REQUIRED, "exact_match", "no_such_module_anywhere")
    assert registry.missing_extra("exact_match") is not None


def test_a_metric_takes_long_by_its_name_or_by_the_length_of_its_texts() -> None:
    assert registry.takes_long("math_equal", METRICS, "1", "1")
    assert not registry.takes_long("exact_match", METRICS, "1", "1")
    half = "x" * (registry._LONG // 2)
    assert not registry.takes_long("exact_match", METRICS, half, half)
    assert registry.takes_long("exact_match", METRICS, half, f"{half}xx")
    assert not registry.takes_long("no such metric", METRICS, "", "")
