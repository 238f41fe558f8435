"""Run the commands of a case around its agent: `setup` before the agent starts, `teardown` after the verdict."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pytest_agentbench.config.documents import make_located_error
from pytest_agentbench.engine.attempt import Attempt
from pytest_agentbench.engine.run_plan import sandbox_spec
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.records.case import Case, CaseCommand
from pytest_agentbench.runners.base import Recorder, RunContext
from pytest_agentbench.terminal_text import shorten_text, visible_line
from pytest_agentbench.workspaces.changes import Snapshot, take_snapshot
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Sandbox
from pytest_agentbench.workspaces.template import copy_tree
from pytest_agentbench.workspaces.workspace import TreeError, Workspace

_MOST_OUTPUT = 16_384
"""Bytes of a command's output that are kept."""
_SHOWN_LINES = 20
"""Last lines of a failed command's output in an error. An item's report cuts longer errors and lines at their ends."""
_SHOWN_CHARACTERS = 200
"""Last characters of each of these lines."""
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
    case, workspace, command = attempt.case, context.workspace, attempt.case.setup
    if command is None:
        return None
    if attempt.run_plan.prepared.sandbox is None:
        # The agent's own sandbox: it finds files outside of the workspace and services as the setup left them
        ended = await _execute(await context.sandbox(), command)
    else:
        ended = await _execute_apart(attempt, workspace, command)
    if (problem := _describe_failure(ended, command)) is not None:
        raise _located(case, command, "setup", f"{problem}; {_quote_end(attempt.services.redactor.text(ended.output))}")
    await context.bring_back()
    workspaces, threads = attempt.services.workspaces(), attempt.services.threads
    copy = workspaces.create(case.case_id)
    lent.push_async_callback(threads.run, partial(workspaces.remove, copy))
    try:
        before = await threads.run(partial(_copy, workspace, copy))
    except (TreeError, OSError) as error:
        raise _located(case, command, "setup", f"the workspace that it left cannot be copied: {error}") from error
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
        _warn(attempt, command, str(error))
        return
    if ended.output:
        # pytest prints a section twice if its name has the word teardown
        attempt.result.texts.add("cleanup", ended.output)
    if (problem := _describe_failure(ended, command)) is not None:
        output = attempt.services.redactor.text(ended.output)
        _warn(attempt, command, f"{problem}; it printed: {output[-_MOST_WARNED:].strip() or 'nothing'}")


def _warn(attempt: Attempt, command: CaseCommand, problem: str) -> None:
    text = visible_line(attempt.services.redactor.text(problem))
    attempt.plan.model_store.warn(
        str(_located(attempt.case, command, "teardown", shorten_text(text, 2 * _MOST_WARNED)))
    )


def _located(case: Case, command: CaseCommand, field: str, problem: str) -> ConfigError:
    if command.file is None:
        return ConfigError(f"{case.path}:{case.line}:1: {field}: {problem}")
    return make_located_error(command.file, [((field,), problem)])


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


def _quote_end(output: str) -> str:
    """Return the end of a command's output, which has the reason of a failure.

    Secrets must be gone from the output: nothing finds one that is cut.
    """
    lines = [line[-_SHOWN_CHARACTERS:] for line in output.strip().splitlines()[-_SHOWN_LINES:]]
    if len(lines) < 2:
        return f"it printed: {''.join(lines) or 'nothing'}"
    return "\n  ".join(["it printed at the end:", *lines])


def _copy(workspace: Workspace, target: Workspace) -> Snapshot:
    copy_tree(workspace.path, target)
    return take_snapshot(str(workspace.path))
