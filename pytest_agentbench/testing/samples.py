"""Small records for kits to try implementations with, and functions that report a broken contract."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.identity.fingerprints import canonical_json
from pytest_agentbench.records.case import Case, Message, Model, RunnerSpec
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.records.run import FinalOutputEvent, RunArtifact
from pytest_agentbench.reports.report import build_report
from pytest_agentbench.reports.rows import run_row

T = TypeVar("T")

MODEL = Model(model_id="demo", requested_model="demo", scripted=True)
LONG = "word " * 20_000
"""An answer that no report could show whole."""


def expect(condition: object, message: str) -> None:
    """Raise AssertionError with the message unless the condition holds, also under `python -O`."""
    if not condition:
        raise AssertionError(message)


def expect_name(name: str, what: str) -> None:
    """Expect a name that YAML, entry points and command lines can hold without quotes."""
    expect(name and name == name.strip() and name.isprintable(), f"{what}: found {name!r}, expected a name")


def expect_line(text: object, what: str) -> None:
    """Expect one line of text that is not empty."""
    expect(
        isinstance(text, str) and text.strip() and "\n" not in text, f"{what}: found {text!r}, expected a line of text"
    )


def expect_refusal(call: Callable[[], object], what: str, *errors: type[Exception]) -> None:
    """Expect one of the errors (default: AgentbenchError) with a message, and no other."""
    expected = errors or (AgentbenchError,)
    names = " or ".join(error.__name__ for error in expected)
    try:
        returned = call()
    except expected as error:
        expect(
            str(error).strip(), f"{what}: {type(error).__name__} has no message, expected a description of the error"
        )
    except Exception as error:
        raise AssertionError(f"{what}: raised {type(error).__name__} ({error}), expected {names}") from error
    else:
        raise AssertionError(f"{what}: returned {returned!r}, expected {names}")


def expect_identity(make: Callable[[], Any], what: str) -> None:
    """Expect the same identity each time, with string keys, which fingerprints can be made of."""
    first = make()
    expect(all(isinstance(key, str) and key for key in first), f"{what}: its keys are {[*first]!r}, expected names")
    try:
        written = canonical_json(dict(first))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{what}: no fingerprint can be made of {first!r}: {error}") from error
    again = canonical_json(dict(make()))
    expect(written == again, f"{what}: it changed between two calls, so that no stored run is found again")


def sample_case(**fields: Any) -> Case:
    """Return a case with one question, for kits. `fields` replace its own."""
    defaults: dict[str, Any] = {
        "case_id": "sample",
        "title": "Sample",
        "path": Path("cases/sample/test.yaml"),
        "runner": RunnerSpec(type="llm_probe"),
        "messages": (Message(role="user", content="Which is the largest planet?"),),
    }
    return Case(**{**defaults, **fields})


def sample_run(output: str | None = "Jupiter", **fields: Any) -> RunArtifact:
    """Return a run that ended with the answer `output`, None: without one. For kits; `fields` replace its own."""
    trace = () if output is None else (FinalOutputEvent(sequence=0, at=0.5, content=output),)
    defaults: dict[str, Any] = {
        "run_id": "r1",
        "case_id": "sample",
        "runner_type": "llm_probe",
        "model": {"model_id": "demo"},
        "repetition": 1,
        "status": "success",
        "started_at": datetime(2026, 1, 2, tzinfo=UTC),
        "duration_seconds": 1.0,
        "fingerprint": "ab12",
        "trace": trace,
    }
    return RunArtifact(**{**defaults, **fields})


def sample_row(case: Case, evaluation: Evaluation) -> dict[str, Any]:
    """Return the row of report.json of a run with that verdict."""
    return run_row(
        f"cases/test.yaml::{case.case_id}[demo]",
        case,
        MODEL,
        1,
        sample_run(),
        evaluation,
        duration_seconds=1.0,
        reused=False,
        evaluation_reused=False,
        artifact_path=None,
        outcome=evaluation.outcome,
        message=None,
    )


def sample_report(*rows: dict[str, Any]) -> dict[str, Any]:
    """Return a report of these rows; without one of a run that passed and of one that failed."""
    verdicts = (Evaluation(case_id="sample", outcome="passed"), Evaluation(case_id="sample", outcome="failed"))
    return build_report(rows or [sample_row(sample_case(), verdict) for verdict in verdicts], {})


async def expect_error(call: Awaitable[object], what: str, *errors: type[Exception]) -> None:
    """Fail unless the call raises one of the errors."""
    names = " or ".join(error.__name__ for error in errors)
    try:
        returned = await call
    except errors:
        return
    except Exception as error:
        raise AssertionError(f"{what}: raised {type(error).__name__} ({error}), expected {names}") from error
    raise AssertionError(f"{what}: returned {returned!r}, expected {names}")
