"""Decide a check about one turn of a conversation, any turn or each turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from pytest_agentbench.checks.base import CheckContext, Verdict
from pytest_agentbench.checks.combined import Part, join_all, join_any
from pytest_agentbench.records.run_turns import RunTurn, limit_to_turn, split_turns

if TYPE_CHECKING:
    from pytest_agentbench.records.check_specs import TurnChoice

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
    verdict = await decide_in(context._replace(artifact=limit_to_turn(context.artifact, turn)))
    return verdict._replace(message=f"turn {number}: {verdict.message}")
