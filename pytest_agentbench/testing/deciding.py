"""Kits for checks, metrics, judges and graders."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from pytest_agentbench.checks.base import CheckContext, CheckSpec, Unmet, Verdict
from pytest_agentbench.config.profiles import EvaluationProfile, JudgeConfig, RunProfile
from pytest_agentbench.engine.grading import (
    AskingGrader,
    FreeGrader,
    Grade,
    Grader,
    GradeRequest,
    dump_live_grade,
    find_live_grade,
    name_grade,
)
from pytest_agentbench.judging.asking import JudgeBackend, JudgeReply
from pytest_agentbench.judging.prompt import judge_messages
from pytest_agentbench.judging.verdicts import parse_verdict
from pytest_agentbench.metrics.registry import Measured, Metric, wrong_names
from pytest_agentbench.records.base import DIMENSIONS, Record, RunStatus
from pytest_agentbench.records.case import Case, Rubric
from pytest_agentbench.records.evaluation import JudgeResult, MetricResult
from pytest_agentbench.records.run import LIVE_GRADES, RunArtifact, Usage
from pytest_agentbench.testing.samples import (
    LONG,
    expect,
    expect_identity,
    expect_line,
    expect_refusal,
    sample_case,
    sample_run,
)
from pytest_agentbench.workspaces.sandboxes.base import Sandbox
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

_MOST_SHOWN = 1_000
"""Maximum characters of one check's message in a report."""


def check_check_spec(
    kind: type[CheckSpec],
    fields: Mapping[str, Any],
    *,
    passes: RunArtifact | None = None,
    fails: RunArtifact | None = None,
) -> None:
    """Check a kind of check. `fields` are a good one's, without `kind`; it `passes` and it `fails` such runs."""
    expect(isinstance(kind, type) and issubclass(kind, CheckSpec), f"found {kind!r}, expected a subclass of CheckSpec")
    expect_line((kind.__doc__ or "").strip().partition("\n")[0], f"{kind.__name__}: its docstring, which schemas show")
    literal = kind.model_fields["kind"].annotation
    names = get_args(literal)
    expect(get_origin(literal) is Literal and len(names) == 1, f"kind: found {literal}, expected one Literal")
    document = {"kind": names[0], **fields}
    spec = kind.model_validate(document)
    expect(kind.model_validate(spec.model_dump(mode="json")) == spec, "it changes when it is written and read back")
    what = f"{kind.__name__}: an unknown field"
    expect_refusal(lambda: kind.model_validate({**document, "no_such_field": 1}), what, ValidationError)
    expect(kind.model_config.get("frozen"), f"{kind.__name__}: it is not frozen")
    expect({*kind.default_dimensions} <= {*DIMENSIONS}, f"default_dimensions: found {kind.default_dimensions!r}")
    expect(isinstance(kind.beyond_answers, bool), f"beyond_answers: found {kind.beyond_answers!r}, expected a bool")
    for path in spec.looks_at:
        inside = isinstance(path, str) and not path.startswith("/") and ".." not in path.split("/")
        expect(inside, f"looks_at: {path!r} is not a path below the workspace")
    # Failed runs have no answer. A verdict must not contain a whole long answer, because every report stores verdicts
    for run in (sample_run(None), sample_run(""), sample_run(LONG)):
        verdict = _decide(spec, run)
        expect(verdict == _decide(spec, run), f"check: found {verdict} first, and then another verdict on the same run")
    for example, outcome in ((passes, "passed"), (fails, "failed")):
        if example is not None:
            verdict = _decide(spec, example)
            expect(verdict.outcome == outcome, f"check: found {verdict}, expected {outcome}")


def _decide(spec: CheckSpec, run: RunArtifact) -> Verdict:
    context = CheckContext(sample_case(), run, None, {})

    async def decide() -> Any:
        result = spec.check(context)
        if inspect.isawaitable(result):
            return await result
        return result

    verdict: Verdict
    try:
        verdict = asyncio.run(decide())
    except Unmet as unmet:
        verdict = Verdict("failed", str(unmet), actual=unmet.actual)
    except Exception as error:
        remedy = "which is an error of the check; raise Unmet for a run that lacks something"
        raise AssertionError(f"check: it raised {type(error).__name__} ({error}), {remedy}") from error
    expect(isinstance(verdict, Verdict), f"check: found {verdict!r}, expected a Verdict")
    outcomes = ("passed", "failed", "error", "skipped")
    expect(verdict.outcome in outcomes, f"check: found the outcome {verdict.outcome!r}, expected one of {outcomes}")
    expect_line(verdict.message, "check: the verdict's message")
    for text in (verdict.expected, verdict.actual, verdict.message):
        size = len(text or "")
        expect(size <= _MOST_SHOWN, f"check: its verdict has {size:,} characters; use excerpt()")
    return verdict


def check_metric(
    metric: Metric,
    examples: Sequence[tuple[str, str]],
    *,
    right: tuple[str, str] | None = None,
    wrong: tuple[str, str] | None = None,
    **args: Any,
) -> None:
    """Check a metric of an answer on pairs of ground truth and prediction, with its options `args`.

    `right` is a pair that scores 1, `wrong` one that scores 0.
    """
    expect(callable(metric), f"found {metric!r}, expected a function")
    expect(not inspect.iscoroutinefunction(metric), "it asks a model: this kit is for metrics that do not")
    problem = wrong_names(metric, args)
    expect(problem is None, f"it does not accept its options: {problem}")
    # A metric with **options ignores a misspelt one, so that a threshold would be compared with its default
    expect(wrong_names(metric, {**args, "no_such_option": 1}) is not None, "it accepts an unknown option")
    for truth, prediction in (*examples, *filter(None, (right, wrong))):
        score = _score(metric, truth, prediction, args)
        expect(
            score == _score(metric, truth, prediction, args),
            f"{truth!r}, {prediction!r}: the score changes between two calls",
        )
    for pair, expected in ((right, 1.0), (wrong, 0.0)):
        if pair is not None:
            score = _score(metric, *pair, args)
            expect(math.isclose(score, expected, abs_tol=1e-9), f"{pair}: found {score}, expected {expected}")
    # Models give such answers: the score may be anything, an exception may not
    for prediction in ("", LONG):
        _score(metric, examples[0][0], prediction, args)


def _score(metric: Metric, truth: str, prediction: str, args: Mapping[str, Any]) -> float:
    result = metric(truth, prediction, **args)
    score = result.score if isinstance(result, Measured) else result
    what = f"{truth[:40]!r}, {prediction[:40]!r}"
    expect(isinstance(score, int | float), f"{what}: found {result!r}, expected a number or Measured")
    expect(0 <= score <= 1, f"{what}: found {score!r}, expected a score from 0 to 1")
    return float(score)


def check_judge(backend: JudgeBackend, **config: Any) -> None:
    """Check a kind of judge: it is asked twice, at the same time, as a profile with this `config` asks it."""
    expect(callable(backend), f"found {backend!r}, expected `async (messages, judge, case) -> JudgeReply`")
    judge = JudgeConfig(**{"judge_id": "kit", "type": "kit", **config})
    profile = EvaluationProfile(schema_version=1, evaluation_profile_id="kit", title="Kit")
    case = sample_case(rubric=Rubric(scoring_instructions="Is the answer right?"))
    messages = judge_messages(case, sample_run(), (), profile)

    async def ask() -> list[JudgeReply]:
        return [*await asyncio.gather(backend(messages, judge, case), backend(messages, judge, case))]

    before = [dict(message) for message in messages]
    for reply in asyncio.run(ask()):
        expect(isinstance(reply, JudgeReply), f"found {reply!r}, expected a JudgeReply")
        expect(reply.usage is None or isinstance(reply.usage, Usage), f"usage: found {reply.usage!r}, expected Usage")
        try:
            verdict = parse_verdict(reply.content or "", case.expectations)
        except Exception as error:
            raise AssertionError(f"its reply breaks the contract that its messages state: {error}") from error
        expect(0 <= verdict.overall.score <= 10, f"overall: found {verdict.overall.score}, expected 0 to 10")
    expect([*map(dict, messages)] == before, "it changed the messages that it was given")


def check_grader(
    grader: Grader,
    case: Case,
    run: RunArtifact,
    *,
    metrics: Sequence[MetricResult] = (),
    judged: JudgeResult | None = None,
    services: Any = None,
    job: Any = None,
    profile: RunProfile | None = None,
    agent: Callable[[Sandbox], Awaitable[None]] | None = None,
) -> Grade:
    """Check a grader with a run of a case that it applies to; return the grade.

    `services` and `job` are for graders that need them; `metrics` and `judged` are other results of the run. A grader
    that wants a sandbox gets one by `profile`, where `agent` has done the agent's work.
    """
    expect(isinstance(grader, Grader), f"found {grader!r}, expected an object of a Grader")
    expect(grader.applies(case) is True, "applies: it does not apply to the case")
    expect_identity(lambda: grader.identity(services, job, case), "identity")
    for name in ("decides", "wants_sandbox"):
        flag = getattr(grader, name)
        expect(isinstance(flag, bool), f"{name}: found {flag!r}, expected a bool")
    unknown = {*grader.accepts} - {*get_args(RunStatus)}
    expect(not unknown, f"accepts: found {sorted(unknown)}, expected some of {get_args(RunStatus)}")
    request = GradeRequest(case=case, artifact=run, metrics=metrics, judged=judged, services=services, job=job)
    if grader.wants_sandbox:
        return _check_live_grade(grader, replace(request, metrics=(), judged=None), profile, agent)
    grade = _grade(grader, request)
    asks = isinstance(grader, AskingGrader) and grader.asks(case)
    expect(isinstance(asks, bool), f"asks: found {asks!r}, expected a bool")
    if not asks:
        again = _grade(grader, request)
        expect(grade == again, f"grade: found {grade} first, then {again} for the same run")
    if isinstance(grader, FreeGrader):
        # A stored run has the metrics of its grade
        free = grader.compute(replace(request, metrics=(*metrics, *grade.metrics)))
        expect(grade == free, f"compute: found {grade} first, then {free} with the metrics of its own grade")
    return grade


def _check_live_grade(
    grader: Grader,
    request: GradeRequest,
    profile: RunProfile | None,
    agent: Callable[[Sandbox], Awaitable[None]] | None,
) -> Grade:
    """Check that a grader grades in a sandbox, and that its grade can be stored with the run."""
    profile = profile or RunProfile(schema_version=1, run_profile_id="kit", title="Kit")
    workspaces = Workspaces()
    sandboxes = Sandboxes(workspaces)

    async def grade_once() -> Grade:
        try:
            spec = sandboxes.spec(profile.sandbox_settings, request.case.sandbox)
            await sandboxes.prepare(spec)
            sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, request.case.case_id))
            if agent is not None:
                await agent(sandbox)
            grade = await grader.grade(replace(request, sandbox=sandbox, workspace=sandbox.workspace))
            await sandbox.stop()
            return grade
        finally:
            await sandboxes.close()

    try:
        grade = _check_grade(grader, request, asyncio.run(grade_once()))
    finally:
        workspaces.close()
    stored = {LIVE_GRADES: {name_grade(grader): dump_live_grade(grader, grade)}}
    found = find_live_grade(grader, request.artifact.model_copy(update={"metadata": stored}))
    expect(found == grade, f"grade: found {grade}, and {found} after it is stored with the run and read back")
    return grade


def _grade(grader: Grader, request: GradeRequest) -> Grade:
    return _check_grade(grader, request, asyncio.run(grader.grade(request)))


def _check_grade(grader: Grader, request: GradeRequest, grade: Grade) -> Grade:
    expect(isinstance(grade, Grade), f"grade: found {grade!r}, expected a Grade")
    names = [metric.name for metric in (*request.metrics, *grade.metrics)]
    expect(len({*names}) == len(names), f"grade: two metrics have one name in {names}")
    for text in (*grade.failures, *grade.errors):
        expect_line(text, "grade: failures and errors")
    score = grade.final_score
    expect(score is None or 0 <= score <= 10, f"grade: found the final score {score!r}, expected 0 to 10 or None")
    record = grade.record
    if record is not None:
        expect(grader.part_name is not None, "grade: it returns a record, and has no part_name to store it under")
        expect(isinstance(record, Record), f"grade: found the record {record!r}, expected a Record")
        read = type(record).model_validate_json(record.model_dump_json())
        expect(read == record, f"grade: its record {record!r} is {read!r} after it is written and read back")
    return grade
