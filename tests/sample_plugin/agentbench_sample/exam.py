"""Part and grader: tests of a case that run in the agent's own sandbox, at the end of the run and after each turn.

    exam:
      tests: {written: test -s notes.txt}
      each_turn: {small: test $(wc -l < notes.txt) -lt 9}

A test is a command for the shell, which passes with the exit status 0. The agent does not see it. A sandbox that fails
is an error of the run, and no failed test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_agentbench import (
    Case,
    CasePart,
    Grade,
    GradeRequest,
    GradingServices,
    Job,
    MetricResult,
    Sandbox,
    TurnGrader,
    TurnResult,
)

SECONDS = 60.0
"""Maximum seconds of a test."""


class Exam(CasePart):
    """The tests of a case, by their names."""

    is_section = True

    tests: dict[str, str] | None = None
    """Commands after the agent has ended."""
    each_turn: dict[str, str] | None = None
    """Commands after each turn of a conversation."""


class ExamGrader(TurnGrader):
    """Fails runs and turns whose tests fail."""

    wants_sandbox = True
    decides = True

    def applies(self, case: Case) -> bool:
        """Return whether the case has tests."""
        return case.part(Exam) is not None

    def identity(self, services: GradingServices, job: Job, case: Case) -> Mapping[str, Any]:
        """Return the version of how tests are run. Other tests are another part of the case, and so another run."""
        return {"exam": {"version": 1}}

    async def grade(self, request: GradeRequest) -> Grade:
        """Return the share of the tests that pass in the sandbox as the agent left it."""
        assert request.sandbox is not None
        tests = _exam(request.case).tests
        if not tests:
            return Grade()
        failures = await _run_tests(request.sandbox, tests)
        share = 1 - len(failures) / len(tests)
        metric = MetricResult(name="exam", score=share)
        return Grade(metrics=(metric,), failures=failures, final_score=10 * share, is_final=True)

    async def after_turn(self, case: Case, sandbox: Sandbox, turn: TurnResult) -> Grade | None:
        """Return the tests that fail after a turn."""
        return Grade(failures=await _run_tests(sandbox, _exam(case).each_turn or {}))


def _exam(case: Case) -> Exam:
    return case.part(Exam) or Exam()


async def _run_tests(sandbox: Sandbox, tests: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line for each test that fails. Raises SandboxError."""
    failures = []
    for name, command in tests.items():
        done = await sandbox.exec(["sh", "-c", command], seconds=SECONDS)
        if done.exit_code != 0:
            end = f"exit status {done.exit_code}" if done.killed is None else f"killed for its {done.killed}"
            failures.append(" ".join(f"exam: {name}: {end} {done.output}".split()))
    return tuple(failures)


EXAM = ExamGrader()
