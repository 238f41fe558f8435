"""An exception of a user's check or metric is an error of the case, not the agent's failure or the session's end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_agentbench.checks.base import CheckContext, Unmet
from pytest_agentbench.checks.run import BUILTIN_CHECKS, run_checks
from pytest_agentbench.config.profiles import SecurityPolicy
from pytest_agentbench.errors import is_failure
from pytest_agentbench.metrics.registry import MetricContext, measure, measure_async, measure_trace
from pytest_agentbench.records.case import Case, MetricSpec, RunnerSpec
from pytest_agentbench.records.evaluation import CheckResult
from pytest_agentbench.records.run import RunArtifact

FAILURES: dict[str, BaseException] = {
    "TypeError: bad": TypeError("bad"),
    "KeyError: 'k'": KeyError("k"),
    "AssertionError: no": AssertionError("no"),
    "RecursionError: deep": RecursionError("deep"),
    "TimeoutError: late": TimeoutError("late"),
    "SystemExit: 3": SystemExit(3),
    "CancelledError: its own": asyncio.CancelledError("its own"),
    "Failed: by hand": pytest.fail.Exception("by hand"),
    "Skipped: by hand": pytest.skip.Exception("by hand"),
}
ENDS = [KeyboardInterrupt(), GeneratorExit()]
SPEC = MetricSpec(name="own", threshold=1.0)


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*args: object, **options: object) -> None:
        raise error

    return fail


def raising_later(error: BaseException) -> Callable[..., Any]:
    async def fail(*args: object, **options: object) -> None:
        raise error

    return fail


def run_check(function: Callable[..., Any], kind: str = "own", **fields: Any) -> CheckResult:
    declared = {"check_id": "c", "declarative": {"kind": kind, **fields}}
    case = Case(
        case_id="a",
        title="A",
        path=Path("test.yaml"),
        runner=RunnerSpec(type="llm_probe"),
        checks=(cast(Any, declared),),
    )
    artifact = RunArtifact.model_validate(
        {
            "run_id": "r",
            "case_id": "a",
            "runner_type": "llm_probe",
            "model": {},
            "repetition": 1,
            "status": "success",
            "started_at": datetime.now(UTC),
            "duration_seconds": 1.0,
            "trace": [{"type": "final_output", "content": "x", "sequence": 0, "at": 0.0}],
        }
    )
    context = CheckContext(case, artifact, None, {"own": function})
    [result] = asyncio.run(run_checks(context, SecurityPolicy(), {**BUILTIN_CHECKS, "own": function}))
    return result


@pytest.mark.parametrize("make", [raising, raising_later])
@pytest.mark.parametrize("said", FAILURES)
def test_an_exception_of_a_check_is_its_error(said: str, make: Callable[[BaseException], Callable[..., Any]]) -> None:
    result = run_check(make(FAILURES[said]))
    assert (result.outcome, result.message) == ("error", said)


def test_an_unmet_check_is_a_failure_of_the_agent() -> None:
    assert run_check(raising(Unmet("nothing there"))).outcome == "failed"


@pytest.mark.parametrize("said", FAILURES)
def test_an_exception_of_a_checks_metric_is_the_error_of_the_check(said: str) -> None:
    result = run_check(raising(FAILURES[said]), kind="metric", name="own", reference="x", threshold=1.0)
    assert (result.outcome, result.message) == ("error", f"ValueError: {said}")


@pytest.mark.parametrize("said", FAILURES)
def test_an_exception_of_a_metric_is_its_error_and_gives_no_score(said: str) -> None:
    context = MetricContext(case_id="a", question="", client=cast(Any, None))
    function, later = raising(FAILURES[said]), raising_later(FAILURES[said])
    results = [
        measure(SPEC, "a", "b", {"own": function}),
        measure_trace(SPEC, cast(Case, None), cast(RunArtifact, None), {"own": function}),
        asyncio.run(measure_async(SPEC, "a", "b", {"own": function}, context)),
        asyncio.run(measure_async(SPEC, "a", "b", {"own": later}, context)),
    ]
    assert {(result.error, result.score, result.passed) for result in results} == {(said, None, None)}


@pytest.mark.parametrize("value", [None, "1", float("nan"), 1.01, -0.01, [1.0]])
def test_a_value_that_is_not_a_score_is_an_error_of_the_metric(value: object) -> None:
    result = measure(SPEC, "a", "b", {"own": lambda gold, output: value})
    assert (result.score, result.passed) == (None, None)
    assert result.error == f"metric 'own' returned {value!r}, expected a number from 0 to 1"


@pytest.mark.parametrize("error", ENDS)
def test_exceptions_that_end_the_session_are_propagated(error: BaseException) -> None:
    with pytest.raises(type(error)):
        measure(SPEC, "a", "b", {"own": raising(error)})


def test_a_cancelled_task_ends_though_a_metric_runs() -> None:
    async def main() -> None:
        waits = asyncio.Event()

        async def metric(gold: str, output: str, *, context: MetricContext) -> float:
            waits.set()
            await asyncio.Event().wait()
            return 1.0

        context = MetricContext(case_id="a", question="", client=cast(Any, None))
        task = asyncio.create_task(measure_async(SPEC, "a", "b", {"own": metric}, context))
        await waits.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_cancelled_error_outside_a_loop_is_a_failure() -> None:
    assert is_failure(asyncio.CancelledError())
