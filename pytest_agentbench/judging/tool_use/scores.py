"""From the iterations of an MCP task's judges to its scores, their spread and their coefficient of variation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev

from pytest_agentbench.judging.aggregation import Method, aggregate, bar_of, sampled
from pytest_agentbench.records import TOOL_USE_DIMENSIONS, JudgeIteration, JudgeResult, JudgeVerdict


def aggregate_tool_use(
    iterations: Sequence[JudgeIteration],
    *,
    method: Method = "mean",
    pass_threshold: float | None = None,
    sample_sizes: Mapping[str, int] | None = None,
    seed: str = "",
) -> JudgeResult:
    """Each dimension aggregated as `aggregate` does it, all 1-10; `overall` is the mean of the six.

    `spread` and `cv_percent` are over the iterations that count; both say nothing where there is only one.
    Raises ValueError where no iteration succeeded.
    """
    sizes = sample_sizes or {}
    result = aggregate(
        iterations,
        method=method,
        pass_threshold=pass_threshold,
        sample_sizes=sizes,
        seed=seed,
        names=TOOL_USE_DIMENSIONS,
    )
    overall = fmean(result.dimensions.values())
    verdicts = [each for group in sampled(iterations, sizes, seed) for each in group]
    return result.model_copy(
        update={
            "overall": overall,
            "passed": overall >= bar_of(result.pass_threshold),
            "spread": _spread([verdict for _, verdict in verdicts]),
            "cv_percent": _cv_over_shuffles(verdicts),
        }
    )


def task_completion(verdict: JudgeVerdict) -> float:
    """The axis that coefficients of variation are of, 1-10: the mean of task_fulfillment and grounding."""
    return fmean(verdict.dimensions[name].score for name in ("task_fulfillment", "grounding"))


def cv_percent(scores: Sequence[float]) -> float | None:
    """sigma / mu x 100 % with population sigma (seed 004, 6.4); None for fewer than two scores, and where mu is 0."""
    mean = fmean(scores) if len(scores) > 1 else 0.0
    return 100 * pstdev(scores, mean) / mean if mean else None


def _spread(verdicts: Sequence[JudgeVerdict]) -> dict[str, float]:
    """The population standard deviation of each dimension."""
    if len(verdicts) < 2:
        return {}
    return {name: pstdev(verdict.dimensions[name].score for verdict in verdicts) for name in TOOL_USE_DIMENSIONS}


def _cv_over_shuffles(verdicts: Sequence[tuple[str, JudgeVerdict]]) -> float | None:
    """The mean over the judges that gave several verdicts."""
    by_judge: dict[str, list[float]] = defaultdict(list)
    for judge_id, verdict in verdicts:
        by_judge[judge_id].append(task_completion(verdict))
    found = [cv for scores in by_judge.values() if (cv := cv_percent(scores)) is not None]
    return fmean(found) if found else None
