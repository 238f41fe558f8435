"""From the judges' verdicts to one score: pure functions, as spec'd for evaluation profiles.

The iterations of each judge run are aggregated alone, then the judge runs by the same method. What holds for the
overall score holds for every dimension and every expectation.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import add
from typing import Literal

from pytest_agentbench.records import (
    DIMENSIONS,
    Expectation,
    Expectations,
    JudgeIteration,
    JudgeResult,
    JudgeVerdict,
    Usage,
)

Method = Literal["median", "mean", "majority_vote", "all_pass"]

DEFAULT_THRESHOLD = 0.5
"""The fraction of the scale at which a judge passes a run where the profile names none."""


def combine(method: Method, scores: Sequence[float], bar: float) -> float:
    """One score for several, at least one, within their range. `bar` is the score from which a vote is a pass."""
    if method == "median":
        ordered = sorted(scores)
        scores = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    if method == "all_pass":
        return min(scores)
    if method == "majority_vote":
        passing = [score for score in scores if score >= bar]
        failing = [score for score in scores if score < bar]
        scores = passing if len(passing) > len(failing) else failing
    # Rounding may carry the mean of equal scores past them, and so past the bar.
    return min(max(math.fsum(scores) / len(scores), min(scores)), max(scores))


def bar_of(pass_threshold: float) -> float:
    """The score of 0-10 that a fraction of the scale stands for, free of binary dust: 0.07 is 0.7."""
    return round(10 * pass_threshold, 9)


def sample(iterations: Sequence[JudgeIteration], size: int | None, seed: str) -> tuple[JudgeIteration, ...]:
    """The successful iterations, or a random subset of `size` of them that depends on `seed` and their numbers only."""
    succeeded = sorted((i for i in iterations if i.status == "success"), key=lambda iteration: iteration.repetition)
    if size is None or size >= len(succeeded):
        return tuple(succeeded)
    return tuple(random.Random(seed).sample(succeeded, size))


def aggregate(
    iterations: Sequence[JudgeIteration],
    *,
    method: Method = "median",
    pass_threshold: float | None = None,
    sample_sizes: Mapping[str, int] | None = None,
    seed: str = "",
    expectations: Expectations | None = None,
    names: Sequence[str] = DIMENSIONS,
) -> JudgeResult:
    """All iterations of all judge runs as one result. Those without a verdict are kept, and count for nothing.

    `sample_sizes` is by judge_run_id; `names` are the dimensions that every verdict scores. Raises ValueError where no
    iteration succeeded.
    """
    threshold = DEFAULT_THRESHOLD if pass_threshold is None else pass_threshold
    bar = bar_of(threshold)
    groups = [[verdict for _, verdict in group] for group in sampled(iterations, sample_sizes or {}, seed)]
    if not groups:
        raise ValueError("no iteration succeeded, so there is nothing to aggregate")

    def over(score: Callable[[JudgeVerdict], float], pass_at: float = bar) -> float:
        return combine(method, [combine(method, [score(v) for v in verdicts], pass_at) for verdicts in groups], pass_at)

    overall = over(lambda verdict: verdict.overall.score)
    dimensions = {name: over(partial(_dimension, name)) for name in names}
    met = [
        (kind, expectation, over(partial(_met, kind, index), threshold))
        for kind, index, expectation in numbered(expectations or Expectations())
    ]
    verdicts = [verdict for group in groups for verdict in group]
    return JudgeResult(
        method=method,
        pass_threshold=threshold,
        overall=overall,
        dimensions=dimensions,
        failed_dimensions=tuple(name for name, score in dimensions.items() if score < bar),
        passed=overall >= bar,
        expectations=_weighted_mean([(expectation.weight, value) for _, expectation, value in met]),
        unmet_hard=tuple(expectation.text for kind, expectation, value in met if kind == "hard" and value < 1),
        summary=min(verdicts, key=lambda verdict: abs(verdict.overall.score - overall)).summary,
        sampled=len(verdicts),
        iterations=tuple(iterations),
        usage=total_usage(iterations),
    )


def numbered(expectations: Expectations) -> list[tuple[Literal["hard", "soft"], int, Expectation]]:
    """The expectations with what judges name them by: their kind, and their index within it."""
    hard: list[tuple[Literal["hard", "soft"], int, Expectation]] = [
        ("hard", index, each) for index, each in enumerate(expectations.hard_expectations)
    ]
    return hard + [("soft", index, each) for index, each in enumerate(expectations.soft_expectations)]


def total_usage(iterations: Sequence[JudgeIteration]) -> Usage:
    """What all replies used. Iterations to which no reply came have nothing to add."""
    answered = [i.usage for i in iterations if i.status != "provider_error" or i.usage != Usage()]
    return reduce(add, answered) if answered else Usage()


def sampled(
    iterations: Sequence[JudgeIteration], sample_sizes: Mapping[str, int], seed: str
) -> list[list[tuple[str, JudgeVerdict]]]:
    """The verdicts that count, with the judge_id of each, of each judge run that has any."""
    by_run: dict[str, list[JudgeIteration]] = {}
    for iteration in iterations:
        by_run.setdefault(iteration.judge_run_id, []).append(iteration)
    samples = (sample(group, sample_sizes.get(run), f"{seed}:{run}") for run, group in by_run.items())
    verdicts = ([(each.judge_id, each.verdict) for each in group if each.verdict is not None] for group in samples)
    return [group for group in verdicts if group]


def _dimension(name: str, verdict: JudgeVerdict) -> float:
    return verdict.dimensions[name].score


def _met(kind: str, index: int, verdict: JudgeVerdict) -> float:
    return next(each.met for each in verdict.expectations if (each.kind, each.index) == (kind, index))


def _weighted_mean(weighted: Sequence[tuple[float, float]]) -> float | None:
    """None where nothing has any weight."""
    total = sum(weight for weight, _ in weighted)
    return sum(weight * value for weight, value in weighted) / total if total else None
