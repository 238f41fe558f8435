"""Make an output folder with invented runs, their verdicts, and the report on them, for pages that show runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_agentbench.records.case import Case, Model, RunnerSpec
from pytest_agentbench.records.evaluation import (
    CheckResult,
    Evaluation,
    ExpectationVerdict,
    JudgeIteration,
    JudgeResult,
    JudgeVerdict,
    MetricResult,
    Scored,
)
from pytest_agentbench.records.run import (
    FileChange,
    FileFacts,
    FinalOutputEvent,
    MessageEvent,
    RunArtifact,
    RunnerEvent,
    ToolCallEvent,
    ToolResultEvent,
    TraceEvent,
    Usage,
)
from pytest_agentbench.reports.report import build_report
from pytest_agentbench.reports.rows import run_row

GPT = Model(model_id="gpt4o", requested_model="gpt-4o", label="GPT-4o")
CLAUDE = Model(model_id="claude", requested_model="claude-sonnet-4", label="Claude Sonnet 4")
USAGE = Usage(
    input_tokens=18_250,
    output_tokens=1_312,
    total_tokens=19_562,
    reasoning_tokens=640,
    cached_tokens=9_984,
    cost_usd=0.0412,
)


@dataclass
class StoredRuns:
    """Runs below `output`, stored when they are added; `rows` are those of report.json."""

    output: Path
    command: Sequence[str] = ("cases/", "--model", "gpt4o", "--agentbench-profile", "standard")
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def report(self) -> dict[str, Any]:
        """Return the report on all added runs."""
        return build_report(self.rows, {"command": list(self.command)})

    def add(
        self,
        case_id: str = "fix-slugify",
        model: Model = GPT,
        repetition: int = 1,
        *,
        trace: Sequence[TraceEvent] = (),
        evaluation: Evaluation | None = None,
        outcome: str = "passed",
        message: str | None = None,
        tags: tuple[str, ...] = ("coding", "smoke"),
        case: Mapping[str, Any] = MappingProxyType({}),
        **run: Any,
    ) -> str:
        """Store a run, and its verdict if given. `case` has further fields of the case. Return the node id."""
        place = f"suit_default/profile/{model.model_id}/{len(self.rows)}"
        artifact = RunArtifact(
            run_id=f"run-{len(self.rows)}",
            case_id=case_id,
            runner_type="llm_probe",
            model={"model_id": model.model_id, "requested_model": model.requested_model},
            repetition=repetition,
            fingerprint=f"{len(self.rows):064x}",
            **{
                "status": "success",
                "started_at": datetime(2026, 11, 22, 9, 30, tzinfo=UTC),
                "duration_seconds": max([1.5, *(event.at for event in trace)]),
                "usage": USAGE,
                **run,
            },
            trace=tuple(event.model_copy(update={"sequence": at}) for at, event in enumerate(trace)),
        )
        paths = {"artifact": f"runs/{place}/run_{repetition}.json", "evaluation": None}
        self.write(paths["artifact"], artifact.model_dump_json())
        if evaluation is not None:
            evaluation = evaluation.model_copy(update={"run_id": artifact.run_id})
            paths["evaluation"] = f"evaluations/{place}/final_result_{repetition}.json"
            self.write(paths["evaluation"], evaluation.model_dump_json())
        runner = RunnerSpec(type="llm_probe")
        subject = Case(case_id=case_id, title=case_id, path=Path("test.yaml"), runner=runner, tags=tags, **case)
        suffix = model.model_id if repetition == 1 else f"{model.model_id}-r{repetition}"
        row = run_row(
            f"cases/{case_id}/test.yaml::{case_id}[{suffix}]",
            subject,
            model,
            repetition,
            artifact,
            evaluation,
            duration_seconds=artifact.duration_seconds,
            reused=False,
            evaluation_reused=False,
            artifact_path=paths["artifact"],
            evaluation_path=paths["evaluation"],
            outcome=outcome,
            message=message,
        )
        self.rows.append(row)
        nodeid: str = row["nodeid"]
        return nodeid

    def write(self, path: str | None, text: str) -> None:
        """Write a file below the output folder."""
        place = self.output / (path or "")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


def said(role: str, content: str, at: float = 0.0) -> MessageEvent:
    return MessageEvent(sequence=0, at=at, role=role, content=content)  # type: ignore[arg-type]


def called(name: str, arguments: dict[str, Any] | None, at: float, call_id: str = "c1", **fields: Any) -> ToolCallEvent:
    return ToolCallEvent(sequence=0, at=at, call_id=call_id, name=name, arguments=arguments, **fields)


def told(name: str, content: str, at: float, call_id: str = "c1", **fields: Any) -> ToolResultEvent:
    return ToolResultEvent(sequence=0, at=at, call_id=call_id, name=name, content=content, **fields)


def asked(number: int, at: float, took: float, **reply: Any) -> tuple[RunnerEvent, RunnerEvent]:
    """Return a request and its reply."""
    request = RunnerEvent(sequence=0, at=at, name="request", data={"number": number, "messages": 2 * number})
    data = {"number": number, "attempts": 1, "seconds": took, **reply}
    return request, RunnerEvent(sequence=0, at=at + took, name="reply", data=data)


def answered(content: str, at: float) -> FinalOutputEvent:
    return FinalOutputEvent(sequence=0, at=at, content=content)


def verdict(outcome: str = "passed", **fields: Any) -> Evaluation:
    return Evaluation(case_id="case", outcome=outcome, evaluation_profile_id="standard", **fields)  # type: ignore[arg-type]


def judged(scores: Sequence[float], evidence: str = "It ran the tests after the change.", **fields: Any) -> JudgeResult:
    """Return a judge with one iteration for each overall score."""
    iterations = tuple(_iteration(score, at, evidence) for at, score in enumerate(scores, 1))
    mean = sum(scores) / len(scores)
    settings = {"unmet_hard": (), "summary": "The bug is fixed, but a test that fails was left in place.", **fields}
    return JudgeResult(
        method="mean",
        pass_threshold=0.6,
        overall=mean,
        dimensions={"task": mean, "process": min(10.0, mean + 1), "autonomy": 9.0},
        spread={"task": 0.8, "process": 0.4, "autonomy": 0.0},
        failed_dimensions=("task",) if mean < 6 else (),
        passed=mean >= 6,
        expectations=0.5,
        sampled=len(scores),
        iterations=iterations,
        usage=Usage(input_tokens=4_200, output_tokens=610, total_tokens=4_810, cost_usd=0.009),
        **settings,
    )


def _iteration(score: float, at: int, evidence: str) -> JudgeIteration:
    expectations = (
        ExpectationVerdict(kind="hard", index=0, met=0.0, evidence="slugify('Straße') still gives 'strae'"),
        ExpectationVerdict(kind="soft", index=0, met=1.0, evidence="The change is four lines."),
    )
    return JudgeIteration(
        judge_run_id="main",
        judge_id="strict",
        model="gpt-4.1",
        repetition=at,
        status="success",
        verdict=JudgeVerdict(
            summary=f"Vote {at}: mostly done.",
            dimensions={
                "task": Scored(score=score, evidence=(evidence, "The test for umlauts still fails.")),
                "process": Scored(score=min(10.0, score + 1), evidence=("It read the file before it wrote to it.",)),
                "autonomy": Scored(score=9.0),
            },
            overall=Scored(score=score, evidence=(evidence,)),
            expectations=expectations,
        ),
        usage=Usage(input_tokens=1_400, output_tokens=203, total_tokens=1_603, cost_usd=0.003),
        duration_seconds=2.4,
    )


SLUGIFY_DIFF = "\n".join(
    (
        "@@ -1,9 +1,11 @@",
        " import re",
        "+import unicodedata",
        " ",
        " ",
        " def slugify(text):",
        "-    text = text.lower()",
        '-    return re.sub(r"[^a-z0-9]+", "-", text)',
        '+    text = unicodedata.normalize("NFKD", text.lower())',
        '+    text = text.encode("ascii", "ignore").decode()',
        '+    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")',
        " ",
        " ",
        " def title(text):",
        "",
    )
)

CHECKS = (
    CheckResult(
        check_id="hidden-tests",
        kind="tests_pass",
        outcome="failed",
        message="2 of 14 tests failed: test_umlauts, test_sharp_s",
        expected="14 tests pass",
        actual="12 passed, 2 failed\n\nE  AssertionError: assert 'strae' == 'strasse'\nE    - strasse\nE    + strae",
        outputs={"passed": 12, "failed": ["test_umlauts", "test_sharp_s"]},
    ),
    CheckResult(check_id="no-network", kind="tool_not_called", outcome="passed", message="0 calls of fetch"),
    CheckResult(
        check_id="answer-names-file",
        kind="regex_match",
        outcome="passed",
        message="the final output matches",
        expected=r"slugs?\.py",
        actual="I changed text/slugs.py …",
    ),
)

METRICS = (
    MetricResult(name="token_f1", score=0.61, threshold=0.5, passed=True, details={"precision": 0.7, "recall": 0.54}),
    MetricResult(
        name="llm_correctness",
        score=0.33,
        threshold=0.5,
        passed=False,
        details={
            "reason": "Two of three votes find the answer for 'ß' wrong.",
            "votes": [{"correct": False}, {"correct": True}, {"correct": False}],
            "agreement": 0.33,
        },
    ),
    MetricResult(name="json_match", score=None, error="the reference is no JSON: Expecting value, line 1"),
)

CHANGES = (
    FileChange(
        path="text/slugs.py",
        change="modified",
        before=FileFacts(kind="file", mode=0o644, size=412),
        after=FileFacts(kind="file", mode=0o644, size=538),
        diff=SLUGIFY_DIFF,
    ),
    FileChange(
        path="notes.md",
        change="added",
        after=FileFacts(kind="file", mode=0o644, size=58),
        diff="@@ -0,0 +1,2 @@\n+# Notes\n+Umlauts: done.\n",
    ),
    FileChange(path="build", change="removed", before=FileFacts(kind="folder", mode=0o755)),
)


def coding_trace(last: str, *, tests_again: bool = True) -> list[TraceEvent]:
    """Return the trace of an agent that repairs a function."""
    asking = "slugify() loses umlauts: `slugify('Über uns')` gives `ber-uns`. It should give `uber-uns`. Fix it."
    source = "import re\n\n\ndef slugify(text):\n    text = text.lower()\n"
    written = {"path": "text/slugs.py", "content": SLUGIFY_DIFF.replace("+", " "), "overwrite": True}
    retry = {"number": 3, "reason": "429 too many requests", "delay_seconds": 0.5}
    listing = "text/\n  __init__.py\n  slugs.py\ntests/\n  test_slugs.py\n"
    failure = "\n".join(f"tests/test_slugs.py::test_{n} {'PASSED' if n % 5 else 'FAILED'}" for n in range(40))
    again = (
        (
            *asked(4, 9.1, 2.2),
            called("exec_shell", {"command": "python -m pytest -q"}, 11.3, "c5"),
            told("exec_shell", "12 passed, 2 failed in 0.41s\nexit status 1", 13.6, "c5", duration_seconds=2.3),
        )
        if tests_again
        else ()
    )
    return [
        said("system", "You repair Python code. Use your tools; do not guess.\nRun the tests before you answer."),
        said("user", asking),
        *asked(1, 0.01, 1.9),
        called("list_files", {}, 1.92, "c1"),
        called("read_file", {"path": "text/slugs.py"}, 1.92, "c2"),
        told("list_files", listing, 1.95, "c1", duration_seconds=0.01),
        told("read_file", source, 2.1, "c2", duration_seconds=0.02),
        *asked(2, 2.12, 2.6),
        said("assistant", "The expression drops everything that is not ASCII. I normalise first.", 4.72),
        called("write_file", written, 4.73, "c3"),
        told("write_file", "wrote 538 characters to text/slugs.py", 4.9, "c3", duration_seconds=0.12),
        *asked(3, 4.92, 1.6, attempts=2),
        RunnerEvent(sequence=0, at=5.5, name="retry", data=retry),
        called("exec_shell", {"command": "python -m pytest -q", "timeout": 60}, 6.52, "c4", schema_valid=False),
        told("exec_shell", failure, 9.05, "c4", is_error=True, duration_seconds=2.5),
        *again,
        answered(last, 14.0),
    ]


ANSWER = """I changed `text/slugs.py`:

1. The text is normalised to NFKD, so that `ü` becomes `u` and a combining mark.
2. What is not ASCII is dropped after that.
3. Dashes at the ends are removed.

Two tests still fail: `test_umlauts` and `test_sharp_s` expect `ß` to become `ss`."""
