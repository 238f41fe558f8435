"""Verifiers: what decides a run after the agent has stopped, each in a sandbox of its own on a copy of what it left."""

from __future__ import annotations

from functools import partial

from pytest_agentbench.checks.base import CheckContext, Verdict
from pytest_agentbench.checks.verifying.command import run_command
from pytest_agentbench.checks.verifying.staging import Content, hidden_content, stage
from pytest_agentbench.checks.verifying.tests import python_of, run_tests
from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.records import Case, CheckResult, Verifier
from pytest_agentbench.workspaces import PathRefusedError, Sandboxes, SandboxSpec, TreeError, Workspace

VERIFY = "verify"
"""The kind of their results."""


async def run_verifiers(context: CheckContext, sandboxes: Sandboxes, spec: SandboxSpec) -> tuple[CheckResult, ...]:
    """The results of the case's verifiers, in its order, each from a fresh sandbox as `spec` says, without network.

    What the agent's work comes to is `passed` or `failed`; `error` is what kept a verifier from telling. Never raises.
    """
    return tuple([_result(each, await _verify(context, sandboxes, spec, each)) for each in context.case.verify])


def no_workspace(case: Case) -> tuple[CheckResult, ...]:
    """The results where the answers are predictions."""
    found = Verdict("error", "predictions are answers only: there is no workspace to verify")
    return tuple(_result(verifier, found) for verifier in case.verify)


async def _verify(context: CheckContext, sandboxes: Sandboxes, spec: SandboxSpec, verifier: Verifier) -> Verdict:
    target: Workspace | None = None
    try:
        target = sandboxes.workspaces.create(context.case.case_id)
        try:
            fill = partial(stage, context.case, verifier, context.workspace, target)
            hidden: Content = await context.in_thread(fill)
        except (TreeError, PathRefusedError) as error:
            return Verdict("failed", f"what the run left cannot be copied for a verifier: {error}")
        python, prepared = python_of(spec)
        sandbox = await sandboxes.start(prepared, target)
        try:
            found = await (run_tests(verifier, sandbox, python) if verifier.pytest else run_command(verifier, sandbox))
        finally:
            await sandbox.stop()
        if found.outcome != "passed":
            return found
        changed = await context.in_thread(partial(_changed, verifier, target, hidden))
        return (
            found if changed is None else Verdict("failed", f"{changed} while the verifier ran", outputs=found.outputs)
        )
    except (AgentbenchError, OSError) as error:
        return Verdict("error", f"{type(error).__name__}: {error}")
    finally:
        if target is not None:
            await context.in_thread(partial(sandboxes.workspaces.remove, target))


def _changed(verifier: Verifier, target: Workspace, hidden: Content) -> str | None:
    """What became of a hidden file that is not what it was, None where all are."""
    try:
        now = hidden_content(verifier, target)
    except TreeError as error:
        return f"the hidden files were changed ({error})"
    changed = next((path for path, content in hidden.items() if now.get(path) != content), None)
    return None if changed is None else f"the hidden file {changed} was changed"


def _result(verifier: Verifier, found: Verdict) -> CheckResult:
    return CheckResult(
        check_id=verifier.check_id,
        kind=VERIFY,
        dimensions=("task",),
        outcome=found.outcome,
        message=found.message,
        expected=found.expected,
        actual=found.actual,
        outputs=found.outputs,
    )
