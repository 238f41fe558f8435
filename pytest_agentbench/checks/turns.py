"""Decide a check about one turn of a conversation, any turn or each turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from pytest_agentbench.checks.base import CheckContext, Verdict
from pytest_agentbench.checks.combined import Part, join_all, join_any
from pytest_agentbench.records.check_specs import Check, reads_file
from pytest_agentbench.records.run import TURN_FILES, RunArtifact
from pytest_agentbench.records.run_turns import RunTurn, limit_to_turn, split_turns

if TYPE_CHECKING:
    from pytest_agentbench.records.case import Case
    from pytest_agentbench.records.check_specs import TurnChoice


def list_file_checks(case: Case, number: int | None = None) -> list[Check]:
    """Return the checks, alone or combined, that may have to read a file as it is after this turn; None: any turn.

    `-1`, `any` and `each` may mean any turn: without fixed turns nobody knows the last one in advance.
    """
    of_turns = [check for check in case.checks if check.turn is not None]
    if number is not None:
        of_turns = [check for check in of_turns if check.turn in (number, -1, "any", "each")]
    return [leaf for check in of_turns for _, leaf in check.leaves if reads_file(leaf.declarative)]


def name_file_check(check: Check) -> str:
    """Return the name of its verdict in a run: the kind with all its fields."""
    assert check.declarative is not None
    return check.declarative.model_dump_json()


def has_turn_files(case: Case, run: RunArtifact) -> bool:
    """Return whether a run has a verdict of each check of files after each turn that succeeded."""
    verdicts = run.metadata.get(TURN_FILES)
    for turn in split_turns(run):
        names = {name_file_check(check) for check in list_file_checks(case, turn.number)}
        # A turn without verdicts ended the run, which keeps its last files
        if names and (verdicts is None or not names <= {*verdicts.get(str(turn.number), names)}):
            return False
    return True


def find_turn_verdict(check: Check, run: RunArtifact, number: int) -> Verdict | None:
    """Return the verdict that a check of a file had after this turn.

    Return None for a turn that ended the run without success: the files are those of the run's end. Raises ValueError
    if the run has no verdict.
    """
    verdicts = run.metadata.get(TURN_FILES)
    if verdicts is not None and str(number) not in verdicts:
        return None
    fields = (verdicts or {}).get(str(number), {}).get(name_file_check(check))
    if fields is None:
        raise ValueError(f"the run has no record of this check after turn {number}: run the case again")
    return Verdict(**fields)


DecideIn = Callable[[CheckContext], Awaitable[Verdict]]
"""Returns the verdict of a check in a context, without raising."""


async def decide_turn(turn: TurnChoice, context: CheckContext, decide_in: DecideIn) -> Verdict:
    """Return the verdict of a check about turns, which looks at the run as if the turn were all of it.

    `any` means the turns that the run reached; a number, `-1` and `each` mean turns of the case, so that a turn that
    the run did not reach fails the check.
    """
    reached = {each.number: each for each in split_turns(context.artifact)}
    if not reached and context.artifact.runner_type == "predictions" and context.artifact.status == "success":
        message = "the prediction has only the last answer, but {answers: [...]} has one for each turn"
        return Verdict("error", message)
    # A case without fixed turns has as many as the run reached
    numbers = _choose_numbers(turn, [*reached], len(context.case.turns) or max(reached, default=1))
    verdicts = [await _decide_one(number, reached.get(number), context, decide_in) for number in numbers]
    if len(verdicts) == 1:
        return verdicts[0]
    parts = [Part(verdict.message, verdict) for verdict in verdicts]
    if turn == "any":
        return join_any(parts, "turn")
    return join_all(parts, "turn")


def _choose_numbers(turn: TurnChoice, reached: Sequence[int], count: int) -> Sequence[int]:
    """Return the numbers of the turns to look at, at least one."""
    if turn == "any":
        return reached or [1]
    if turn == "each":
        return range(1, count + 1)
    if turn == -1:
        return [count]
    return [turn]


async def _decide_one(number: int, turn: RunTurn | None, context: CheckContext, decide_in: DecideIn) -> Verdict:
    if turn is None:
        return Verdict("failed", f"turn {number} was not reached")
    verdict = await decide_in(context._replace(artifact=limit_to_turn(context.artifact, turn), turn=number))
    return verdict._replace(message=f"turn {number}: {verdict.message}")
