"""Make random reports of sessions that never ran: many runs of several models with every part of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from pytest_agentbench.records.case import Case, Message, Model, RunnerSpec
from pytest_agentbench.records.evaluation import CheckResult, Evaluation, JudgeResult, MetricResult
from pytest_agentbench.records.run import FinalOutputEvent, RunArtifact, RunError, Usage
from pytest_agentbench.reports.gate import Counts, apply_gate
from pytest_agentbench.reports.report import build_report
from pytest_agentbench.reports.rows import run_row

MODELS = (
    Model(model_id="gpt4o", requested_model="gpt-4o", label="GPT-4o"),
    Model(model_id="claude", requested_model="claude-sonnet-4", label="Claude Sonnet 4"),
    Model(model_id="qwen3-32b", requested_model="qwen3-32b"),
    Model(model_id="demo", requested_model="demo", scripted=True),
)
SKILL = {"gpt4o": 0.78, "claude": 0.86, "qwen3-32b": 0.55, "demo": 0.95}
PRICE = {"gpt4o": 0.012, "claude": 0.021, "qwen3-32b": 0.0018, "demo": 0.0}
TAGS = ("smoke", "files", "web", "shell", "german", "long-context", "arithmetic", "mcp")
FAILURES = (
    "check has-answer: the answer does not hold 'Paris'",
    "check report-written: the file report.md is missing from the workspace",
    "judge overall: the answer is right but two steps of the task were skipped (and 1 more)",
    "run status: expected success, got timed_out (run_timeout): the run took more than 120 s",
    "metric exact_match: scored 0.25, at least 0.5 is wanted",
)
SESSION = {
    "started_at": "2026-11-22T09:30:00+00:00",
    "duration_seconds": 734.2,
    "exit_status": 1,
    "command": ["cases/", "--model", "gpt4o", "--model", "claude", "--agentbench-fail-under", "0.8"],
    "versions": {"pytest-agentbench": "0.1.0", "pytest": "9.2.0", "python": "3.11.9"},
    "project": "support-bot",
    "profiles": {"run": "standard", "evaluation": "default", "suite": None},
    "warnings": [
        "judge costs are incomplete: 3 replies told no usage",
        "commands run without isolation (sandbox: local)",
    ],
}


def random_report(
    cases: int = 20, models: Sequence[Model] = MODELS, repetitions: int = 3, seed: int = 7
) -> dict[str, Any]:
    """Return a report of `cases` x models x repetitions runs; the same for the same arguments."""
    rows = list(random_rows(cases, models, repetitions, seed))
    verdict = apply_gate(Counts.of(row["outcome"] for row in rows), 0.8)
    return build_report(rows, {**SESSION, "gate": verdict.as_dict()}, {"run": 1.82, "judge": None})


def random_rows(cases: int, models: Sequence[Model], repetitions: int, seed: int = 7) -> Iterator[dict[str, Any]]:
    """Return the rows of such a report, models within cases."""
    random = Random(seed)
    for number in range(cases):
        tags = tuple(random.sample(TAGS, random.randint(1, 3)))
        dataset = "capitals" if number % 5 == 4 else None
        case = Case(
            case_id=f"{random.choice(('write', 'find', 'sum', 'plan', 'translate'))}-{number:04}",
            title="",
            path=Path("cases/test.yaml"),
            runner=RunnerSpec(type="llm_probe"),
            tags=tags,
            dataset=dataset,
            metadata={"difficulty": ("easy", "hard")[number % 2], "region": "EU" if number % 3 else "Asia"},
            must_pass=number % 17 == 3,
            messages=(Message(role="user", content=_sentence(f"Question {number}:", Random(number), 14) + "?"),),
            reference=f"answer {number}",
        )
        difficulty = random.gauss(0, 0.25)
        for model in models:
            for repetition in range(1, repetitions + 1):
                luck = random.random() + difficulty
                yield _row(case, model, repetition, _outcome(luck, SKILL.get(model.model_id, 0.7)), random)


def _outcome(luck: float, skill: float) -> str:
    if luck > 1.12:
        return "error"
    if luck < -0.42:
        return "skipped"
    return "passed" if luck < skill else "failed"


def _row(case: Case, model: Model, repetition: int, outcome: str, random: Random) -> dict[str, Any]:
    ran = outcome in ("passed", "failed")
    failure = random.choice(FAILURES) if outcome == "failed" else None
    message = {
        "error": "ProviderError (rate_limit): 429 from api.example: too many requests",
        "skipped": "needs docker",
    }
    suffix = model.model_id if repetition == 1 else f"{model.model_id}-r{repetition}"
    folder = f"cases/{case.dataset or 'files'}/{case.case_id}"
    row = run_row(
        f"{folder}/test.yaml::{case.case_id}[{suffix}]",
        case,
        model,
        repetition,
        _run(case, model, repetition, failure, random) if ran else None,
        _evaluation(case, outcome, failure, random) if ran else None,
        duration_seconds=None if outcome == "skipped" else round(random.lognormvariate(2, 0.8), 2),
        reused=random.random() < 0.2,
        evaluation_reused=True,
        artifact_path=f"outputs/runs/{model.model_id}/{case.case_id}/run_{repetition}.json" if ran else None,
        outcome=outcome,
        message=failure or message.get(outcome),
    )
    return {**row, "judge_votes": _votes(row["final_score"], random)} if ran else row


def _votes(score: float, random: Random) -> list[dict[str, Any]]:
    """Return three votes each of two judges."""
    return [
        {
            "judge": judge,
            "source": "judge",
            "model": model,
            "scripted": False,
            "scores": [min(10.0, max(0.0, random.gauss(score, noise))) for _ in range(3)],
            "pass_at": 5.0,
            "profile": "default",
            "order": "shuffled",
        }
        for judge, model, noise in (("strict", "gpt-4.1", 0.6), ("lenient", "claude-opus-4", 1.4))
    ]


def _run(case: Case, model: Model, repetition: int, failure: str | None, random: Random) -> RunArtifact:
    timed_out = failure is not None and "timed_out" in failure
    tokens = int(random.lognormvariate(8, 0.6))
    return RunArtifact(
        run_id=f"{case.case_id}-{repetition}",
        case_id=case.case_id,
        runner_type="llm_probe",
        model={"model_id": model.model_id},
        repetition=repetition,
        status="timed_out" if timed_out else "success",
        error=RunError(code="run_timeout", message="the run took more than 120 s") if timed_out else None,
        started_at=datetime(2026, 11, 22, 9, 30, tzinfo=UTC),
        duration_seconds=1.5,
        fingerprint=f"{random.getrandbits(256):064x}",
        trace=(FinalOutputEvent(sequence=0, at=1.0, content=_answer(case, model, repetition)),),
        usage=Usage(
            input_tokens=tokens,
            output_tokens=tokens // 9,
            total_tokens=tokens + tokens // 9,
            cost_usd=PRICE.get(model.model_id, 0.01) * random.lognormvariate(0, 0.5),
        ),
    )


WORDS = ("parcel", "order", "refund", "invoice", "warranty", "returns", "shipping", "address", "customer", "ticket")


def _sentence(start: str, random: Random, words: int) -> str:
    return " ".join((start, *random.choices(WORDS, k=words)))


def _answer(case: Case, model: Model, repetition: int) -> str:
    random = Random(f"{case.case_id} {model.model_id} {repetition}")
    return _sentence(f"{case.reference} of {model.model_id}:", random, random.randint(5, 90)) + "."


def _evaluation(case: Case, outcome: str, failure: str | None, random: Random) -> Evaluation:
    passed = outcome == "passed"
    score = min(10.0, max(0.0, random.gauss(8.2 if passed else 4.5, 1.2)))
    named = failure is not None and failure.startswith("check has-answer")
    checks = (
        CheckResult(
            check_id="has-answer",
            kind="regex_match",
            outcome="failed" if named else "passed",
            message="the answer does not hold 'Paris'" if named else "found",
        ),
        CheckResult(check_id="no-error", kind="status_is", outcome="passed", message="success"),
    )
    judge = JudgeResult(
        method="mean",
        pass_threshold=0.5,
        overall=score,
        sampled=1,
        iterations=(),
        dimensions={"task": score, "process": min(10.0, score + 0.6), "autonomy": 9.0},
        passed=score >= 5,
        usage=Usage(cost_usd=0.002),
    )
    metric = MetricResult(name="exact_match", score=1.0 if passed else 0.25)
    return Evaluation(
        case_id=case.case_id, outcome=outcome, checks=checks, metrics=(metric,), judge=judge, final_score=score
    )  # type: ignore[arg-type]
