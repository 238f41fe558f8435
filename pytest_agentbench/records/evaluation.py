"""An evaluation: what checks, metrics and judges say of one run, and the verdict that follows."""

from typing import Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny, StrictBool

from pytest_agentbench.records.base import Dimension, HexId, Later, Record, RecordWithParts
from pytest_agentbench.records.run import Usage

CheckOutcome = Literal["passed", "failed", "error", "skipped"]
Outcome = Literal["passed", "failed", "error", "skipped"]


class CheckResult(Record):
    """One deterministic check. `message` says it in a sentence; `expected` and `actual` are short texts."""

    check_id: str
    kind: str
    dimensions: tuple[Dimension, ...] = ()
    outcome: CheckOutcome
    message: str
    expected: str | None = None
    actual: str | None = None
    outputs: dict[str, Any] = Field(default_factory=dict)


class MetricResult(Record):
    """One metric, 0-1, or in the unit that its name says. `passed` is None without a threshold. `score` is None where
    `error` kept it from one, and, without an error, where there is nothing to measure, such as a rate of tool calls
    where there are none.

    `details` explain the score in JSON values; `usage` is what a metric used that asks a model.
    """

    name: str
    score: float | None
    threshold: float | None = None
    passed: bool | None = None
    error: str | None = None
    details: dict[str, Any] = Field(default_factory=dict)
    usage: Usage | None = None


class AnswerVerdict(Record):
    """A judge's word on whether an answer is correct, and why."""

    correct: StrictBool
    reason: str


class Scored(Record):
    """A score of 0-10 with the judge's evidence for it."""

    score: float
    evidence: tuple[str, ...] = ()


class ExpectationVerdict(Record):
    """A score of one expectation, how far it is met, 0-1; `index` counts within its kind from 0."""

    kind: Literal["hard", "soft"]
    index: int
    met: float
    evidence: str = ""


class JudgeVerdict(Record):
    """One reply of a judge that keeps the contract; all scores 0-10."""

    summary: str
    dimensions: dict[str, Scored]
    overall: Scored
    expectations: tuple[ExpectationVerdict, ...] = ()


class JudgeIteration(Record):
    """One iteration of one judge run: a verdict, or why there is none after all re-asking.

    `scripted` judges answer from scripts. `shuffled` says that the rubric came in an order of this iteration's own.
    """

    judge_run_id: str
    judge_id: str
    model: str
    scripted: bool = False
    repetition: int
    shuffled: bool = False
    status: Literal["success", "invalid_output", "provider_error"]
    verdict: JudgeVerdict | None = None
    error: str | None = None
    attempts: int = 1
    usage: Usage = Field(default_factory=Usage)
    duration_seconds: float = 0.0


class JudgeResult(Record):
    """All iterations and what they come to, 0-10. `passed` compares `overall` with `10 * pass_threshold`.

    `expectations` is the weighted mean (0-1) over the case's expectations, None where it has none;
    `unmet_hard` are the texts of hard expectations below 1. `sampled` counts the iterations that were aggregated.
    `dimensions` are DIMENSIONS, or those of a grader's own judge; then `spread` is the population standard
    deviation of each over the iterations, and `cv_percent` sigma / mu of task completion over one judge's, in percent
    (the mean over the judges).
    """

    method: Literal["median", "mean", "majority_vote", "all_pass"]
    pass_threshold: float
    overall: float
    dimensions: dict[str, float]
    failed_dimensions: tuple[str, ...] = ()
    spread: dict[str, float] = Field(default_factory=dict)
    cv_percent: float | None = None
    passed: bool
    expectations: float | None = None
    unmet_hard: tuple[str, ...] = ()
    summary: str = ""
    sampled: int
    iterations: tuple[JudgeIteration, ...]
    usage: Usage = Field(default_factory=Usage)


class Evaluation(RecordWithParts):
    """The verdict on one run. `reasons` are the lines of the assertion report, empty where it passed.

    `outcome` is `error` where infrastructure kept it from a verdict (`error` says what), never a score of 0.
    `judge_usage` is what judges used that came to no verdict. `run_id` is the one run that it is of: a
    second run of the same fingerprint is another draw. `cassette` says of judges what RunArtifact's says of the run.
    `parts` are what graders of packs found out, by name: `evaluation.part(Model)`.
    """

    seam: ClassVar[str] = "evaluation_part"

    schema_version: Literal[2] = 2
    case_id: str
    run_id: HexId | None = None
    run_fingerprint: HexId | None = None
    fingerprint: HexId | None = None
    evaluation_profile_id: str | None = None
    checks: tuple[Later[CheckResult], ...] = ()
    metrics: tuple[Later[MetricResult], ...] = ()
    judge: Later[JudgeResult] | None = None
    parts: dict[str, SerializeAsAny[Record]] = Field(default_factory=dict)
    judge_usage: Later[Usage] | None = None
    cassette: Literal["recorded", "replayed"] | None = None
    final_score: float | None = None
    outcome: Outcome
    reasons: tuple[str, ...] = ()
    error: str | None = None
