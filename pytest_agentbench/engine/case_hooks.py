"""Run the commands of a case around its agent: `setup` before the agent starts, `teardown` after the verdict."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pytest_agentbench.engine.attempt import Attempt
from pytest_agentbench.engine.run_plan import sandbox_spec
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.records.case import CaseCommand
from pytest_agentbench.runners.base import Recorder, RunContext
from pytest_agentbench.terminal_text import shorten_text, visible_line
from pytest_agentbench.workspaces.changes import Snapshot, take_snapshot
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Sandbox
from pytest_agentbench.workspaces.template import copy_tree
from pytest_agentbench.workspaces.workspace import TreeError, Workspace

_MOST_OUTPUT = 16_384
"""Bytes of a command's output that are kept."""
_MOST_SHOWN = 2_000
"""Characters of a failed command's output in an error."""
_MOST_WARNED = 300
"""Characters of a failed command's output in a warning."""


@dataclass(frozen=True, slots=True)
class SetUp:
    """A finished setup. `before` are the facts of the workspace that it left, `folder` is a copy of that workspace."""

    ended: ExecResult
    before: Snapshot
    folder: Path

    def record(self, trace: Recorder) -> None:
        """Add the command's end and output to the run's trace."""
        trace.event("setup", exit_code=self.ended.exit_code, seconds=self.ended.seconds, output=self.ended.output)


async def set_up(attempt: Attempt, context: RunContext, lent: AsyncExitStack) -> SetUp | None:
    """Create the run's workspace and run the case's setup in it; None for a case without one.

    `lent` removes the copy of the workspace. Raises ConfigError if the command fails, so that no agent is started;
    UnavailableError and SandboxError as sandboxes do.
    """
    case, workspace = attempt.case, context.workspace
    if case.setup is None:
        return None
    if attempt.run_plan.prepared.sandbox is None:
        # The agent's own sandbox: it finds files outside of the workspace and services as the setup left them
        ended = await _execute(await context.sandbox(), case.setup)
    else:
        ended = await _execute_apart(attempt, workspace, case.setup)
    place = f"{case.path}:{case.line}:1: setup"
    if (problem := _describe_failure(ended, case.setup)) is not None:
        raise ConfigError(f"{place}: {problem}; it printed: {_last(ended, _MOST_SHOWN)}")
    workspaces, threads = attempt.services.workspaces(), attempt.services.threads
    copy = workspaces.create(case.case_id)
    lent.push_async_callback(threads.run, partial(workspaces.remove, copy))
    try:
        before = await threads.run(partial(_copy, workspace, copy))
    except (TreeError, OSError) as error:
        raise ConfigError(f"{place}: the workspace that it left cannot be copied: {error}") from error
    return SetUp(ended, before, copy.path)


async def tear_down(attempt: Attempt, command: CaseCommand) -> None:
    """Run the case's teardown in the run's workspace, in a new sandbox. A failure is a warning of the session.

    Do nothing if the run did not begin: then the case was skipped, and there is nothing to clean up.
    """
    workspace = attempt.result.workspace
    if workspace is None:
        return
    try:
        ended = await _execute_apart(attempt, workspace, command)
    except (AgentbenchError, OSError) as error:
        _warn(attempt, str(error))
        return
    if ended.output:
        attempt.result.texts.add("teardown", ended.output)
    if (problem := _describe_failure(ended, command)) is not None:
        _warn(attempt, f"{problem}; it printed: {_last(ended, _MOST_WARNED)}")


def _warn(attempt: Attempt, problem: str) -> None:
    text = visible_line(attempt.services.redactor.text(problem))
    case = attempt.case
    attempt.plan.model_store.warn(f"{case.path}:{case.line}: teardown: {shorten_text(text, 2 * _MOST_WARNED)}")


async def _execute_apart(attempt: Attempt, workspace: Workspace, command: CaseCommand) -> ExecResult:
    """Run the command in a sandbox of its own, of the kind that the case's verifiers get."""
    sandbox = await attempt.services.sandboxes.start(sandbox_spec(attempt), workspace, role="hook", case=attempt.case)
    try:
        return await _execute(sandbox, command)
    finally:
        await sandbox.stop()


async def _execute(sandbox: Sandbox, command: CaseCommand) -> ExecResult:
    return await sandbox.exec(command.command, seconds=command.timeout_seconds, output_limit=_MOST_OUTPUT)


def _describe_failure(ended: ExecResult, command: CaseCommand) -> str | None:
    """Return how the command failed, or None."""
    if ended.killed == "time-out":
        return f"the command had not ended after timeout_seconds ({command.timeout_seconds:g} s)"
    if ended.killed is not None:
        return f"the command broke the sandbox's limit of {ended.killed}"
    if ended.exit_code != 0:
        return f"the command ended with exit code {ended.exit_code}, expected 0"
    return None


def _last(ended: ExecResult, characters: int) -> str:
    """Return the end of the command's output."""
    return ended.output[-characters:].strip() or "nothing"


def _copy(workspace: Workspace, target: Workspace) -> Snapshot:
    copy_tree(workspace.path, target)
    return take_snapshot(str(workspace.path))
