"""What several samples of one case say: pass@k and pass^k, as arithmetic and as metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb
from typing import Any

from pytest_agentbench.metrics.registry import METRICS, Measured, asks_model, find_metric, metric
from pytest_agentbench.metrics.scoring import score


def pass_at_k(n: int, passed: int, k: int) -> float | None:
    """The chance that at least one of k runs passes, unbiased, from `passed` of `n`.

    Chen et al. 2021, arXiv:2107.03374. None unless 1 <= k <= n.
    """
    return 1 - comb(n - passed, k) / comb(n, k) if 1 <= k <= n else None


def pass_hat_k(n: int, passed: int, k: int) -> float | None:
    """The chance that all of k runs pass, unbiased, from `passed` of `n`.

    Yao et al. 2024 (tau-bench), arXiv:2406.12045. None unless 1 <= k <= n.
    """
    return comb(passed, k) / comb(n, k) if 1 <= k <= n else None


@metric("pass_at_k", samples=True)
def pass_at_k_metric(ground_truth: str, prediction: str | Sequence[str], **options: Any) -> Measured:
    """The chance that at least one of `k` samples passes (`pass_at_k`), from all the samples of `prediction`.

    Options: `k` (1); `metric` (exact_match) and `threshold` (1.0) say when a sample passes; all others are that
    metric's. Details: `samples`, `passed`, `scores`. Raises ValueError for fewer samples than `k`.
    """
    return _over_samples("pass_at_k", pass_at_k, ground_truth, prediction, **options)


@metric("pass_hat_k", samples=True)
def pass_hat_k_metric(ground_truth: str, prediction: str | Sequence[str], **options: Any) -> Measured:
    """The chance that all of `k` samples pass (`pass_hat_k`); else like the metric `pass_at_k`."""
    return _over_samples("pass_hat_k", pass_hat_k, ground_truth, prediction, **options)


def _over_samples(
    name: str,
    estimate: Callable[[int, int, int], float | None],
    ground_truth: str,
    prediction: str | Sequence[str],
    *,
    k: int = 1,
    metric: str = "exact_match",
    threshold: float = 1.0,
    **kwargs: Any,
) -> Measured:
    if asks_model(find_metric(metric, METRICS)):
        raise ValueError(f"{name}: metric {metric!r} asks a model, expected one that compares texts")
    if isinstance(k, bool) or not isinstance(k, int):
        raise ValueError(f"{name}: k is {k!r}, expected a whole number")
    samples = [prediction] if isinstance(prediction, str) else list(prediction)
    for number, sample in enumerate(samples, 1):
        if not isinstance(sample, str):
            raise ValueError(f"{name}: sample {number} is {sample!r}, expected a text")
    scores = [score(metric, ground_truth, sample, **kwargs) for sample in samples]
    passed = sum(each >= threshold for each in scores)
    value = estimate(len(samples), passed, k)
    if value is None:
        raise ValueError(f"{name}: k is {k}, expected 1 to the number of samples, {len(samples)}")
    return Measured(value, {"samples": len(samples), "passed": passed, "scores": scores})
