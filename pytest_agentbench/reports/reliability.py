"""What repeated runs say together: per case how often they differ, per model what k runs of each case come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from typing import Any

from pytest_agentbench.reports.statistics import mean


def flakiness(n: int, passed: int) -> float | None:
    """The chance that two runs of a case differ in their verdict, unbiased, from `passed` of `n`.

    The share of pairs of runs that do (Simpson 1949, doi:10.1038/163688a0). None for fewer than two verdicts.
    """
    return passed * (n - passed) / comb(n, 2) if n > 1 else None


def by_k(n: int, passed: int) -> dict[str, dict[str, float] | None]:
    """`pass_at_k` and `pass_hat_k` for each k from 1 to `n` verdicts, None without any; cheap for large `n` too."""
    none_pass, all_pass = [1.0], [1.0]
    for drawn in range(n):
        none_pass.append(none_pass[-1] * max(0, n - passed - drawn) / (n - drawn))
        all_pass.append(all_pass[-1] * max(0, passed - drawn) / (n - drawn))
    return {
        "pass_at_k": {str(k): 1 - none_pass[k] for k in range(1, n + 1)} or None,
        "pass_hat_k": {str(k): all_pass[k] for k in range(1, n + 1)} or None,
    }


def over_cases(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`pass_at_k`, `pass_hat_k` and `flaky_cases` of a model, from its entries of report.json's `cases[]`.

    Means over the cases that have a verdict, for each k that all of these reach; None without a verdict.
    `flaky_cases` counts those that passed and failed; None where no case has two verdicts.
    """
    judged = [case for case in cases if case["pass_at_k"]]
    common = min((len(case["pass_at_k"]) for case in judged), default=0)
    repeated = [case for case in judged if case["flakiness"] is not None]
    return {
        **{name: _means(judged, name, common) for name in ("pass_at_k", "pass_hat_k")},
        "flaky_cases": sum(case["flakiness"] > 0 for case in repeated) if repeated else None,
    }


def _means(cases: Sequence[Mapping[str, Any]], name: str, most: int) -> dict[str, float | None] | None:
    return {str(k): mean([case[name][str(k)] for case in cases]) for k in range(1, most + 1)} or None
