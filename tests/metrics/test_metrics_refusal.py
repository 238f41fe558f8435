from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_agentbench.metrics.registry import BUILTIN_METRICS, METRICS, measure, refusal
from pytest_agentbench.records.case import MetricSpec

if TYPE_CHECKING:
    from decimal import Decimal


@pytest.mark.parametrize("name", sorted(BUILTIN_METRICS))
@pytest.mark.parametrize("compat", [None, "v1"])
def test_every_metric_of_one_answer_may_decide_a_run(name, compat):
    reason = refusal(MetricSpec(name=name), METRICS, compat)
    assert ("a run gives one answer" in (reason or "")) == name.startswith("pass_")


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("numeric_match", {"rel_tol": 1, "abs_tol": 0.5}),
        ("numeric_match", {"rel_tol": None}),
        ("json_match", {"tolerance": 0, "ignore_order": True}),
        ("multiple_choice", {"choices": ["x", 2, None]}),
        ("multiple_choice", {"choices": "{{ options }}"}),
        ("rouge_score", {"stem": False}),
        ("llm_judgement", {"model": "gpt-4o", "repetitions": 3}),
    ],
)
def test_args_that_a_metric_takes(name, args):
    assert refusal(MetricSpec(name=name, args=args), METRICS) is None


@dataclass
class Within:
    """A metric that is an object, and not hashable."""

    slack: int

    def __call__(self, ground_truth: str, prediction: str, sign: int = 1) -> float:
        return float(abs(len(ground_truth) - len(prediction)) <= self.slack)


def unresolved(ground_truth: str, prediction: str, limit: Decimal | None = None) -> float:
    return 1.0


def odd(ground_truth: str, prediction: str, by: Within | None = None, **more: object) -> float:
    return 1.0


@pytest.mark.parametrize("function", [Within(1), partial(Within(1).__call__), unresolved, odd, max])
def test_any_callable_may_be_a_metric(function):
    assert refusal(MetricSpec(name="own"), {"own": function}) is None
    if function is not max:
        assert measure(MetricSpec(name="own"), "a", "ab", {"own": function}).score == 1


def test_names_are_looked_at_where_annotations_cannot_be_resolved():
    own = {"own": unresolved, "odd": odd}
    assert refusal(MetricSpec(name="own", args={"limit": "x"}), own) is None
    assert "unexpected keyword argument 'more'" in refusal(MetricSpec(name="own", args={"more": 1}), own)
    assert refusal(MetricSpec(name="odd", args={"more": 1}), own) is None
