"""Judging of MCP tasks (seed 004, 5.2): six dimensions from 1 to 10, five iterations with shuffled rubrics."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import pstdev
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, StringConstraints

from pytest_agentbench.judging.prompt import Assessment, sample_sizes, sampling_seed
from pytest_agentbench.judging.verdicts import Method, aggregate, bar_of, sampled, structured
from pytest_agentbench.models.replies import ReplyPart, read_json
from pytest_agentbench.models.script_files import ScriptedVerdict, VerdictForm
from pytest_agentbench.packs.mcp_bench.judge_prompts import PROMPT_VERSION, make_judge_messages
from pytest_agentbench.packs.mcp_bench.records import MCP_TASKS, TOOL_USE_DIMENSIONS
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.evaluation import JudgeIteration, JudgeResult, JudgeVerdict, Scored
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.statistics.estimates import mean, mean_of

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import EvaluationProfile, JudgeRunConfig


TOOL_USE_SCHEMA = "tool_use_verdict"
"""Name of the response schema, which identifies a request for this verdict."""


def reasoning_key(dimension: str) -> str:
    """Return the key of the reasoning for a score, as seed 004, A.4 names it."""
    # A.4 leaves the `and` of parallelism_and_efficiency out in this key alone.
    return f"{dimension.replace('_and_', '_')}_reasoning"


def _write_scripted(verdict: ScriptedVerdict) -> str:
    """Return a script's verdict in the form of a judge's reply."""
    scores = {name: verdict.scored(name) for name in TOOL_USE_DIMENSIONS}
    reasons = {reasoning_key(name): "; ".join(scored.evidence) or verdict.summary for name, scored in scores.items()}
    return json.dumps({**reasons, **{name: scored.score for name, scored in scores.items()}}, ensure_ascii=False)


SCRIPTED_VERDICT = VerdictForm(TOOL_USE_DIMENSIONS, _write_scripted)
"""Form of the scripted judge's answers."""

TOOL_USE_FORMAT = structured(
    TOOL_USE_SCHEMA,
    {
        reasoning_key(name): {"type": "string", "description": f"Why {name} is what it is."}
        for name in TOOL_USE_DIMENSIONS
    }
    | {name: {"type": "number", "description": "1 to 10."} for name in TOOL_USE_DIMENSIONS},
)
"""The `response_format` of a request. Ranges are in descriptions, because some endpoints refuse `minimum`."""

_Reasoning = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]
# Strict: neither true nor "7" is a score (spec/mcp.md).
_Score = Annotated[float, Field(strict=True, ge=1, le=10, allow_inf_nan=False)]


class _Reply(ReplyPart):
    task_fulfillment_reasoning: _Reasoning
    grounding_reasoning: _Reasoning
    tool_appropriateness_reasoning: _Reasoning
    parameter_accuracy_reasoning: _Reasoning
    dependency_awareness_reasoning: _Reasoning
    parallelism_efficiency_reasoning: _Reasoning
    task_fulfillment: _Score
    grounding: _Score
    tool_appropriateness: _Score
    parameter_accuracy: _Score
    dependency_awareness: _Score
    parallelism_and_efficiency: _Score


def parse_tool_use(text: str) -> JudgeVerdict:
    """Return the verdict in a reply. The overall score is the mean of six; the reasoning is a dimension's evidence.

    Raises InvalidReply unless every score is a number from 1 to 10, and every reasoning has text.
    """
    reply = read_json(text, _Reply).model_dump()
    dimensions = {
        name: Scored(score=reply[name], evidence=(reply[reasoning_key(name)],)) for name in TOOL_USE_DIMENSIONS
    }
    overall = Scored(score=mean_of([scored.score for scored in dimensions.values()]))
    return JudgeVerdict(summary="", dimensions=dimensions, overall=overall)


def aggregate_tool_use(
    iterations: Sequence[JudgeIteration],
    *,
    method: Method = "mean",
    pass_threshold: float | None = None,
    sample_sizes: Mapping[str, int] | None = None,
    seed: str = "",
) -> JudgeResult:
    """Return each dimension aggregated by `method`, all 1-10; `overall` is the mean of the six.

    `spread` and `cv_percent` are over the counted iterations; both are None for a single one.
    Raises ValueError if no iteration succeeded.
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
    # From the aggregated dimensions: the median of the verdicts' own overall scores would be another number.
    overall = mean_of(result.dimensions.values())
    verdicts = [verdict for group in sampled(iterations, sizes, seed) for verdict in group]
    return result.model_copy(
        update={
            "overall": overall,
            "passed": overall >= bar_of(result.pass_threshold),
            "spread": _compute_spread([verdict for _, verdict in verdicts]),
            "cv_percent": _compute_cv_over_shuffles(verdicts),
        }
    )


def task_completion(verdict: JudgeVerdict) -> float:
    """Return the axis of the coefficients of variation, 1-10: the mean of task_fulfillment and grounding."""
    return mean_of([verdict.dimensions[name].score for name in ("task_fulfillment", "grounding")])


def cv_percent(scores: Sequence[float]) -> float | None:
    """Return sigma / mu x 100 % with population sigma (seed 004, 6.4).

    None for fewer than two scores, and if mu is 0.
    """
    middle = mean_of(scores) if len(scores) > 1 else 0.0
    if middle:
        return 100 * pstdev(scores, middle) / middle
    return None


def _compute_spread(verdicts: Sequence[JudgeVerdict]) -> dict[str, float]:
    """Return the population standard deviation of each dimension."""
    if len(verdicts) < 2:
        return {}
    return {name: pstdev(verdict.dimensions[name].score for verdict in verdicts) for name in TOOL_USE_DIMENSIONS}


def _compute_cv_over_shuffles(verdicts: Sequence[tuple[str, JudgeVerdict]]) -> float | None:
    """Return the mean over the judges that gave several verdicts."""
    by_judge: dict[str, list[float]] = defaultdict(list)
    for judge_id, verdict in verdicts:
        by_judge[judge_id].append(task_completion(verdict))
    # Each judge is computed alone: the difference between judges is a separate figure, `judges_cv_percent`.
    return mean([cv for scores in by_judge.values() if (cv := cv_percent(scores)) is not None])


TOOL_USE_REPETITIONS = 5
"""Default number of iterations of a judge run."""


def make_assessment(
    case: Case, artifact: RunArtifact, profile: EvaluationProfile, redact: Callable[[Any], Any]
) -> Assessment:
    """Return the assessment for the run of an MCP task; `redact` removes secrets from requests."""
    return Assessment(
        messages=make_judge_messages(case, artifact, profile, redact),
        response_format=TOOL_USE_FORMAT,
        parse=parse_tool_use,
        aggregate=partial(
            aggregate_tool_use,
            method=_choose_method(profile),
            pass_threshold=profile.aggregation.pass_threshold,
            sample_sizes=sample_sizes(profile),
            seed=sampling_seed(artifact),
        ),
        repetitions=_choose_repetitions,
        shuffled=profile.section(MCP_TASKS).shuffle != "none",
    )


def make_identity(profile: EvaluationProfile) -> dict[str, Any]:
    """Return the identity of verdicts on MCP tasks besides task and profile: the prompt and our defaults."""
    return {
        "prompt": PROMPT_VERSION,
        "method": _choose_method(profile),
        "repetitions": {run.judge_run_id: _choose_repetitions(run) for run in profile.judge_runs},
    }


def _choose_method(profile: EvaluationProfile) -> Method:
    if "method" in profile.aggregation.model_fields_set:
        return profile.aggregation.method
    return "mean"


def _choose_repetitions(run: JudgeRunConfig) -> int:
    # The field has a default for judges of all cases; only a number in the profile replaces the paper's five.
    if "repetitions" in run.model_fields_set:
        return run.repetitions
    return TOOL_USE_REPETITIONS
