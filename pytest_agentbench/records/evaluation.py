"""An evaluation: the results of checks, metrics and judges for one run, and the verdict."""

from typing import Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny, StrictBool

from pytest_agentbench.records.base import Dimension, HexId, Later, Record, RecordWithParts
from pytest_agentbench.records.check_specs import TurnChoice
from pytest_agentbench.records.run import Usage

CheckOutcome = Literal["passed", "failed", "error", "skipped"]
Outcome = Literal["passed", "failed", "error", "skipped"]


UNMET_HARD = "judge: hard expectation not met: "
"""The beginning of a reason that names an unmet hard expectation."""


class CheckResult(Record):
    """One deterministic check. `message` is a sentence; `expected` and `actual` are short texts.

    `turn` is the turn of a conversation that the check looked at, None for the whole run.
    """

    check_id: str
    kind: str
    turn: TurnChoice | None = Field(default=None, exclude_if=lambda value: value is None)
    dimensions: tuple[Dimension, ...] = ()
    outcome: CheckOutcome
    message: str
    expected: str | None = None
    actual: str | None = None
    outputs: dict[str, Any] = Field(default_factory=dict)


class MetricResult(Record):
    """One metric, 0-1, or in the unit of its name. `passed` is None without a threshold. `score` is None if `error` is
    set, and, without an error, if there is nothing to measure, such as a rate of tool calls without calls.

    `details` explain the score in JSON values; `usage` is the usage of a metric that asks a model.
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
    """A score of one expectation, how far it is met, 0-1; `index` counts within its kind from 0.

    `turn` is the turn of the conversation that the expectation is about, None for the whole run.
    """

    kind: Literal["hard", "soft"]
    index: int
    turn: int | None = Field(default=None, exclude_if=lambda value: value is None)
    met: float
    evidence: str = ""


class JudgeVerdict(Record):
    """One reply of a judge that keeps the contract. Scores are 0-10; `met` of an expectation is 0-1.

    `criteria` are those of the rubric that the judge scored, by name.
    """

    summary: str
    dimensions: dict[str, Scored]
    overall: Scored
    expectations: tuple[ExpectationVerdict, ...] = ()
    criteria: dict[str, Scored] = Field(default_factory=dict)


class JudgeIteration(Record):
    """One iteration of one judge run: a verdict, or the reason if re-asking gave none.

    `scripted` judges answer from scripts. `shuffled`: this iteration had its rubric in a random order.
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
    """All iterations and their aggregate, 0-10. `passed` compares `overall` with `10 * pass_threshold`.

    `expectations` is the weighted mean (0-1) over the case's expectations, None if it has none; `unmet_hard` are the
    texts of hard expectations below 1. `sampled` counts the aggregated iterations. `dimensions` are DIMENSIONS, or
    those of a grader's judge; then `spread` is the population standard deviation of each over the iterations, and
    `cv_percent` is sigma / mu of task completion over the iterations of one judge, in percent (averaged over the
    judges). `criteria` are those of the rubric by name, with the evidence of the verdict nearest to the score.
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
    criteria: dict[str, Scored] = Field(default_factory=dict)
    summary: str = ""
    sampled: int
    iterations: tuple[JudgeIteration, ...]
    usage: Usage = Field(default_factory=Usage)


class StoredGrade(RecordWithParts):
    """A grade that is stored, because only a new run or payments could make it again: the fields of `Grade`.

    Runs store the grades that were made in their sandboxes, and evaluations other grades.
    """

    seam: ClassVar[str] = "evaluation_part"

    metrics: tuple[MetricResult, ...] = ()
    failures: tuple[str, ...] = ()
    final_score: float | None = None
    is_final: bool = False


class Evaluation(RecordWithParts):
    """The verdict on one run. `reasons` are the lines of the assertion report, empty if it passed.

    `outcome` is `error` if infrastructure prevented a verdict (`error` is the reason), never a score of 0.
    `accepts_status` is True if a grader accepted the status of a run that did not succeed.
    `judge_usage` is the usage of judges without a verdict. `run_id` is the judged run: a second run of the same
    fingerprint is another draw. `cassette` is like RunArtifact's, for judges. `parts` are the findings of graders from
    packs, by name: `evaluation.part(Model)`. `grades` are the stored grades by the names of their graders, without
    their metrics and parts.
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
    accepts_status: bool = False
    grades: dict[str, StoredGrade] | None = Field(default=None, exclude_if=lambda grades: grades is None)
    reasons: tuple[str, ...] = ()
    error: str | None = None
