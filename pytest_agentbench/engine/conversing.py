"""Make the runner of a run with a conversation: its agent, its driver, its limits and the graders of its turns."""

from __future__ import annotations

from functools import partial
from typing import Any

from pytest_agentbench.checks.turns import list_file_checks
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.engine.attempt import Attempt
from pytest_agentbench.engine.case_drivers import require_conversation
from pytest_agentbench.engine.conversations import TurnLimits, drive_turns, hold_conversation
from pytest_agentbench.engine.live_grading import grade_turn
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.conversations import merge_limits
from pytest_agentbench.runners.base import CaseRunner, RunContext, RunEnd, Runner
from pytest_agentbench.runners.conversation import Converse, TurnResult
from pytest_agentbench.runners.kinds import RunnerKind


def find_limits(case: Case, profile: RunProfile, runner: Runner) -> TurnLimits:
    """Return the limits of a case's conversation. For a runner with limits of its own only those that files set."""
    limits = merge_limits(profile.conversation, case.conversation)
    fields = limits.model_dump(exclude_unset=getattr(runner, "limits_itself", False))
    return TurnLimits(fields.get("turn_timeout_seconds"), fields.get("max_turns"), fields.get("max_steps"))


def make_conversing(attempt: Attempt) -> Runner:
    """Return the runner of a run with turns or with a driver.

    Raises ConfigError for a runner that cannot hold the conversation.
    """
    run_plan, case, agent = attempt.run_plan, attempt.case, attempt.values.agent
    converse, has_file_checks = _find_converse(run_plan.runner, agent), bool(list_file_checks(case))
    if converse is None:
        require_conversation(run_plan.runner if isinstance(agent, CaseRunner) else agent, run_plan.runner_type, case)
        if has_file_checks:
            raise ConfigError(
                f"{case.path}:{case.line}:1: a check reads a file after a turn, and the runner {run_plan.runner_type} "
                "goes through the turns itself; leave out the check's `turn`"
            )
        return run_plan.runner  # it goes through the turns itself
    limits = find_limits(case, attempt.plan.run_profile, run_plan.runner)
    driver = drive_turns if run_plan.driver is None else run_plan.driver.drive
    graders = attempt.turn_graders

    async def hold(case: Case, context: RunContext) -> RunEnd:
        context.turn_files = {} if has_file_checks else None

        async def after_turn(turn: TurnResult) -> bool:
            if has_file_checks:
                from pytest_agentbench.engine.turn_files import decide_turn_files

                await decide_turn_files(attempt, context, turn.number)  # first, because graders may change files
            return await grade_turn(graders, context, turn)

        return await hold_conversation(converse, driver, limits, case, context, after_turn)

    return hold


def _find_converse(runner: Runner, agent: Any) -> Converse | None:
    if isinstance(agent, CaseRunner | RunnerKind):
        converse: Converse | None = getattr(runner if isinstance(agent, CaseRunner) else agent, "converse", None)
        return converse
    from pytest_agentbench.runners.own_conversations import converse_with

    return partial(converse_with, agent, runner)
