"""Records and rows of single runs as a test says them; `support.random_reports` has whole reports."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_agentbench.records.case import Case, Model, RunnerSpec
from pytest_agentbench.records.evaluation import CheckResult, Evaluation, JudgeResult, MetricResult
from pytest_agentbench.records.run import FinalOutputEvent, RunArtifact, RunError, Usage
from pytest_agentbench.reports.rows import run_row

MODEL = Model(model_id="gpt4o", requested_model="gpt-4o", label="GPT-4o")
DEMO = Model(model_id="demo", requested_model="demo", scripted=True)
USAGE = Usage(input_tokens=1200, output_tokens=80, total_tokens=1280, cost_usd=0.0123)


def make_case(case_id: str = "capital", **fields: Any) -> Case:
    return Case(case_id=case_id, title=case_id, path=Path("test.yaml"), runner=RunnerSpec(type="llm_probe"), **fields)


def make_run(output: str | None = "It is London.", status: str = "success", **fields: Any) -> RunArtifact:
    trace = () if output is None else (FinalOutputEvent(sequence=0, at=0.5, content=output),)
    error = None if status == "success" else RunError(code="run_timeout", message="the run took more than 30 s")
    settings = {"usage": USAGE, "fingerprint": "ab12", "error": error, "trace": trace, **fields}
    return RunArtifact(
        run_id="r1",
        case_id="capital",
        runner_type="llm_probe",
        model={"model_id": "gpt4o"},
        repetition=1,
        status=status,  # type: ignore[arg-type]
        started_at=datetime(2026, 1, 2, tzinfo=UTC),
        duration_seconds=1.5,
        **settings,
    )


def make_judge(overall: float = 4.2, **fields: Any) -> JudgeResult:
    settings = {
        "dimensions": {"task": 3.5, "spark": 6.0},
        "passed": overall >= 5,
        "usage": Usage(cost_usd=0.002),
        "pass_threshold": 0.5,
        "iterations": (),
        **fields,
    }
    return JudgeResult(method="mean", overall=overall, sampled=1, **settings)


def make_evaluation(outcome: str = "failed", **fields: Any) -> Evaluation:
    return Evaluation(case_id="capital", outcome=outcome, **fields)  # type: ignore[arg-type]


def failed_check(check_id: str = "has-answer", **fields: Any) -> CheckResult:
    settings = {"message": "the answer does not hold 'Paris'", "expected": "'Paris'", "actual": "'It is London.'"}
    return CheckResult(check_id=check_id, kind="regex_match", outcome="failed", **{**settings, **fields})


def make_row(
    outcome: str = "passed",
    case_id: str = "capital",
    model: Model | str = MODEL,
    repetition: int = 1,
    *,
    score: float | None = None,
    metric: float | None = None,
    usage: Usage | None = USAGE,
    seconds: float | None = 1.5,
    message: str | None = None,
    answer: str = "It is London.",
    **case_fields: Any,
) -> dict[str, Any]:
    """One row; an error or a skip has neither run nor evaluation."""
    name = model if isinstance(model, str) else model.model_id
    suffix = name if repetition == 1 else f"{name}-r{repetition}"
    ran = outcome in ("passed", "failed")
    judge = None if score is None else make_judge(score)
    metrics = () if metric is None else (MetricResult(name="exact_match", score=metric),)
    return run_row(
        f"cases/test.yaml::{case_id}[{suffix}]",
        make_case(case_id, **case_fields),
        model,
        repetition,
        make_run(answer, usage=usage or Usage()) if ran else None,
        make_evaluation(outcome, judge=judge, final_score=score, metrics=metrics) if ran else None,
        duration_seconds=seconds,
        reused=False,
        evaluation_reused=False,
        artifact_path="outputs/runs/run_1.json" if ran else None,
        outcome=outcome,
        message=message,
    )
