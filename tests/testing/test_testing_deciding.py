"""Kits for checks, metrics, judges and graders: ours pass, and broken ones are reported."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from pydantic import ConfigDict
from support.tool_use_runs import judgement, run, task, use
from testing.kits_support import NUMBERS, card_case

import pytest_agentbench as ab
from pytest_agentbench.checks.base import verdict
from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
from pytest_agentbench.extensions import find_extension
from pytest_agentbench.metrics.registry import BUILTIN_METRICS, METRICS, asks_model, takes_samples, takes_trace
from pytest_agentbench.records.base import DIMENSIONS
from pytest_agentbench.testing.samples import sample_case, sample_run


def test_typed_checks_pass() -> None:
    fails = sample_run("one\ntwo")
    ab.check_check_spec(find_extension("check", "line_count"), {"lines": 1}, passes=sample_run("one"), fails=fails)
    present = find_extension("check", "openclaw_workspace_file_present")
    ab.check_check_spec(present, {"relative_path": "notes.txt"}, fails=sample_run())


class Tells(ab.CheckSpec):
    """The answer is told whole."""

    kind: Literal["tells"]

    def check(self, context: ab.CheckContext) -> ab.Verdict:
        answer = context.artifact.final_output
        return ab.Verdict("passed" if answer else "failed", "looked", actual=answer)


class Raises(Tells):
    """It fails where there is no answer."""

    def check(self, context: ab.CheckContext) -> ab.Verdict:
        return verdict(context.artifact.final_output.strip() == "", "looked")  # type: ignore[union-attr]


class Silent(Tells):
    """It says nothing."""

    def check(self, context: ab.CheckContext) -> ab.Verdict:
        return verdict(True, "")


class Takes(Tells):
    """It takes any field."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Outside(Tells):
    """It looks at a file of the machine."""

    @property
    def looks_at(self) -> tuple[str, ...]:
        return ("/etc/passwd",)


class Wavers(Tells):
    """It says another thing each time."""

    def check(self, context: ab.CheckContext) -> ab.Verdict:
        return verdict(True, f"looked {next(NUMBERS)} times")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Tells, "characters; use excerpt"),
        (Raises, "raised AttributeError"),
        (Silent, "expected a line of text"),
        (Takes, "an unknown field: returned"),
        (Outside, "not a path below the workspace"),
        (Wavers, "another verdict on the same run"),
        (ab.Grader, "expected a subclass of CheckSpec"),
    ],
)
def test_a_broken_check_is_noticed(kind: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        ab.check_check_spec(kind, {})


def test_a_check_that_decides_otherwise_is_noticed() -> None:
    with pytest.raises(AssertionError, match="expected passed"):
        ab.check_check_spec(find_extension("check", "line_count"), {"lines": 1}, passes=sample_run("one\ntwo"))


OF_TEXTS = [
    name
    for name in BUILTIN_METRICS
    if not (asks_model(METRICS[name]) or takes_samples(METRICS[name]) or takes_trace(METRICS[name]))
]


HEAVY = {"bleu_score", "math_equal", "rouge_score"}
"""Metrics whose libraries take long to be imported."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in HEAVY else []) for name in OF_TEXTS]
)
def test_our_metrics_pass(name: str) -> None:
    answer = "A" if name == "multiple_choice" else "12"
    ab.check_metric(METRICS[name], [(answer, "something else")], right=(answer, answer))


def words(ground_truth: str, prediction: str) -> float:
    return len(prediction.split())


def takes_all(ground_truth: str, prediction: str, **options: Any) -> float:
    return 1.0


def wavers(ground_truth: str, prediction: str) -> float:
    return next(NUMBERS) / 1_000


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (words, "expected a score from 0 to 1"),
        (takes_all, "accepts an unknown option"),
        (wavers, "the score changes"),
        (lambda ground_truth, prediction: float("nan"), "expected a score"),
        (lambda ground_truth, prediction: "right", "expected a number"),
        (lambda ground_truth, prediction: 0.5, "found 0.5, expected 1.0"),
    ],
)
def test_a_broken_metric_is_noticed(metric: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        ab.check_metric(metric, [("a b c", "a b c d")], right=("a", "a"))


SCORE = {"score": 7, "evidence": ["right"]}
SAID = json.dumps({"summary": "Fine.", "dimensions": dict.fromkeys(DIMENSIONS, SCORE), "overall": SCORE})


def judge_that_says(text: Any) -> Any:
    async def ask(messages: Any, judge: Any, case: Any) -> Any:
        return ab.JudgeReply(text) if isinstance(text, str) else text

    return ask


def test_a_judge_passes_that_keeps_the_contract() -> None:
    ab.check_judge(judge_that_says(SAID), model="any")


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        (judge_that_says(SAID.replace("7", "70")), "breaks the contract"),
        (judge_that_says("Fine."), "breaks the contract"),
        (judge_that_says(None), "expected a JudgeReply"),
        (None, "expected `async"),
    ],
)
def test_a_broken_judge_is_noticed(judge: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        ab.check_judge(judge)


def test_graders_pass() -> None:
    grade = ab.check_grader(find_extension("grader", "card"), card_case(), sample_run("far too many words"))
    assert grade.failures == ("brevity: 4 words, expected at most 2",)
    used, judged = run(use("One:tool")), judgement((9, 9, 8, 8, 7, 7))
    job = SimpleNamespace(plan=SimpleNamespace(evaluation_profile=EvaluationProfile.default()))
    ab.check_grader(find_extension("grader", "mcp_task"), task("One"), used, judged=judged, job=job)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("part_name", None, "has no part_name"),
        ("identity", lambda self, services, job, case: {"at": next(NUMBERS)}, "changed between two calls"),
        ("decides", None, "expected a bool"),
        ("compute", lambda self, run: ab.Grade(failures=(f"{next(NUMBERS)}",)), "grade: found"),
    ],
)
def test_a_broken_grader_is_noticed(name: str, value: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grader = find_extension("grader", "card")
    monkeypatch.setattr(f"agentbench_sample.brevity.BrevityGrader.{name}", value)
    with pytest.raises(AssertionError, match=said):
        ab.check_grader(grader, card_case(), sample_run("far too many words"))


class HiddenTest(ab.Grader):
    """Looks in the sandbox for the file that the agent made."""

    wants_sandbox = True

    async def grade(self, request: ab.GradeRequest) -> ab.Grade:
        assert request.sandbox is not None
        assert request.workspace is not None
        ended = await request.sandbox.exec(["cat", "made.txt"], seconds=20)
        return ab.Grade(failures=() if ended.output == "made" else (f"found {ended.output!r}",))


async def make_file(sandbox: ab.Sandbox) -> None:
    await sandbox.put("made.txt", b"made")


LOCAL = RunProfile(schema_version=1, run_profile_id="kit", title="Kit", sandbox="local")


def test_a_grader_in_a_sandbox_passes() -> None:
    grade = ab.check_grader(HiddenTest(), sample_case(), sample_run("made it"), profile=LOCAL, agent=make_file)
    assert grade.failures == ()
    assert ab.check_grader(HiddenTest(), sample_case(), sample_run("made it"), profile=LOCAL).failures != ()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("accepts", ("late",), r"accepts: found \['late'\], expected some of"),
        ("wants_sandbox", "yes", "wants_sandbox: found 'yes', expected a bool"),
    ],
)
def test_a_broken_grader_in_a_sandbox_is_noticed(
    name: str, value: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HiddenTest, name, value)
    with pytest.raises(AssertionError, match=said):
        ab.check_grader(HiddenTest(), sample_case(), sample_run("made it"), profile=LOCAL)
