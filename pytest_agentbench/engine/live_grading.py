"""Grade a run in its own sandbox: after each turn, and after the agent's end before the sandbox is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from pytest_agentbench.engine.attempt import Attempt
from pytest_agentbench.engine.grading import (
    Grade,
    Grader,
    GradeRequest,
    TurnGrader,
    dump_live_grade,
    find_live_grade,
    name_grade,
)
from pytest_agentbench.errors import AgentbenchError, UnavailableError
from pytest_agentbench.records.run import LIVE_GRADES, RunArtifact
from pytest_agentbench.runners.base import RunContext

if TYPE_CHECKING:
    from pytest_agentbench.runners.conversation import TurnResult


def live_identity(attempt: Attempt) -> dict[str, Any]:
    """Return the parts of the run's fingerprint for graders that grade in its sandbox, by their names.

    Raises UnavailableError for answers that were made elsewhere, because they have no sandbox.
    """
    parts = {"live_grades": attempt.live_graders, "turn_grades": attempt.turn_graders}
    return {part: _identify(attempt, graders) for part, graders in parts.items() if graders}


def _identify(attempt: Attempt, graders: Sequence[Grader]) -> dict[str, Any]:
    names = [name_grade(grader) for grader in graders]
    if attempt.plan.predictions is not None:
        raise UnavailableError(f"{', '.join(names)}: grades runs in their sandbox, and stored answers have none")
    return {
        name: grader.identity(attempt.services, attempt.job, attempt.case)
        for name, grader in zip(names, graders, strict=True)
    }


def has_live_grades(attempt: Attempt, artifact: RunArtifact) -> bool:
    """Return whether a stored run has the grades that only its own sandbox could give."""
    try:
        return all(find_live_grade(grader, artifact) is not None for grader in attempt.live_graders)
    except ValidationError:  # of another version
        return False


async def grade_live(
    attempt: Attempt, context: RunContext, artifact: RunArtifact
) -> tuple[RunArtifact, BaseException | None]:
    """Return the run with the grades of all graders that want its sandbox, and the error that prevented them.

    The caller stores the run, which is paid for, and then raises the error. A run without these grades is made again
    by the next session.
    """
    if artifact.status == "provider_error" and artifact.status not in attempt.case.expects_status:
        return artifact, None  # nobody asks for its grade
    try:
        grades = await _grade_all(attempt, context, artifact)
    except asyncio.CancelledError as error:
        return artifact, error
    except Exception as error:  # noqa: BLE001  # of the grader's own code, too
        return artifact, error
    return artifact.model_copy(update={"metadata": {**artifact.metadata, LIVE_GRADES: grades}}), None


async def _grade_all(attempt: Attempt, context: RunContext, artifact: RunArtifact) -> dict[str, Any]:
    grades: dict[str, Any] = {}
    for grader in attempt.live_graders:
        request = GradeRequest(
            case=attempt.case,
            artifact=artifact,
            services=attempt.services,
            job=attempt.job,
            tape=attempt.tape,
            sandbox=await context.sandbox(),
            workspace=context.workspace,
        )
        grade = await grader.grade(request)
        if grade.errors:
            raise AgentbenchError("; ".join(grade.errors))
        grades[name_grade(grader)] = dump_live_grade(grader, grade)
    return grades


async def grade_turn(graders: Sequence[TurnGrader], context: RunContext, turn: TurnResult) -> bool:
    """Add the graders' grades of a turn to the run's. Return whether one of them ends the conversation.

    Raises the errors of a grader.
    """
    is_last = False
    for grader in graders:
        grade = await grader.after_turn(context.case, await context.sandbox(), turn)
        if grade is None:
            continue
        if grade.errors:
            raise AgentbenchError(f"turn {turn.number}: {'; '.join(grade.errors)}")
        name = name_grade(grader)
        before = context.turn_grades.get(name, Grade())
        metrics = (metric.model_copy(update={"name": f"turn-{turn.number}.{metric.name}"}) for metric in grade.metrics)
        context.turn_grades[name] = Grade(
            metrics=(*before.metrics, *metrics),
            failures=(*before.failures, *(f"turn {turn.number}: {line}" for line in grade.failures)),
        )
        is_last = is_last or grade.ends
    return is_last


def dump_turn_grades(attempt: Attempt, context: RunContext) -> dict[str, Any]:
    """Return the run's metadata on the grades of its turns."""
    graders = {name_grade(grader): grader for grader in attempt.turn_graders}
    return {name: dump_live_grade(graders[name], grade) for name, grade in context.turn_grades.items()}
