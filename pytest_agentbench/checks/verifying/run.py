"""Run verifiers on a copy of an agent's files, and try them on solutions that are known to be wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from pytest_agentbench.checks.base import CheckContext, Verdict
from pytest_agentbench.checks.verifying.apart import SolutionServer, serve_solution
from pytest_agentbench.checks.verifying.named_tests import (
    Collected,
    collected_of,
    decide_collected,
    decide_ids,
    describe_missing,
    holds_tests,
    list_tests,
)
from pytest_agentbench.checks.verifying.staging import (
    Content,
    copy_workspace,
    hidden_content,
    put_answer,
    stage_workspace,
)
from pytest_agentbench.checks.verifying.verifiers import (
    choose_python,
    collect_tests,
    ids_without_tests,
    plain_environment,
    run_command,
    run_tests,
)
from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.records.case import Case, Verifier
from pytest_agentbench.records.evaluation import CheckResult
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.sandboxes.base import Sandbox, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.template import fill_workspace
from pytest_agentbench.workspaces.workspace import TreeError, Workspace

T = TypeVar("T")
VERIFY = "verify"
"""The kind of their results."""


async def run_verifiers(context: CheckContext, sandboxes: Sandboxes, spec: SandboxSpec) -> tuple[CheckResult, ...]:
    """Return the results of the case's verifiers in its order, each from a fresh sandbox by `spec`, without network.

    The agent's work is `passed` or `failed`; a verifier that could not decide is an `error`. Never raises.
    """
    return tuple(
        [_result(verifier, await _verify(context, sandboxes, spec, verifier)) for verifier in context.case.verify]
    )


def no_workspace_results(case: Case) -> tuple[CheckResult, ...]:
    """Return the results for predictions, which have no workspace."""
    skipped = Verdict("error", "predictions contain only answers: there is no workspace to verify")
    return tuple(_result(verifier, skipped) for verifier in case.verify)


async def _verify(context: CheckContext, sandboxes: Sandboxes, spec: SandboxSpec, verifier: Verifier) -> Verdict:
    async def decide(sandbox: Sandbox, python: str, environment: Mapping[str, str]) -> Verdict:
        if verifier.pytest is not None:
            return await run_tests(verifier, sandbox, python, environment)
        return await run_command(verifier, sandbox, environment)

    try:
        async with AsyncExitStack() as folders:
            target = _folder(context, sandboxes, folders)
            solution = _folder(context, sandboxes, folders) if verifier.apart else None
            try:
                hidden: Content = await context.in_thread(partial(_fill, context, verifier, target, solution))
            except (TreeError, PathRefusedError) as error:
                return Verdict("failed", f"the run's files cannot be copied for a verifier: {error}")
            result = await _run(context.case, verifier, sandboxes, spec, target, solution, decide)
            await sandboxes.bring_back(target)
            changed = await context.in_thread(partial(_find_tampering, verifier, target, hidden))
        if result.outcome == "failed" and (
            mistakes := await _find_mistakes(context, sandboxes, spec, verifier, result)
        ):
            return Verdict("error", f"the case is wrong: {'; '.join(mistakes)}", outputs=result.outputs)
    except (AgentbenchError, OSError) as error:
        return Verdict("error", f"{type(error).__name__}: {error}")
    # Changed hidden files make a pass worthless; a failure stays one.
    if changed is None or result.outcome != "passed":
        return result
    return Verdict("failed", f"{changed} while the verifier ran", outputs=result.outputs)


async def _find_mistakes(
    context: CheckContext, sandboxes: Sandboxes, spec: SandboxSpec, verifier: Verifier, result: Verdict
) -> list[str]:
    """Return sentences about tests that did not run because no test has their id."""
    if verifier.pytest is None or "tests" not in result.outputs:
        return []
    ids = ids_without_tests(verifier.pytest, result.outputs["tests"])
    try:
        if ids:
            return await find_wrong_ids(context.case, verifier, sandboxes, spec, ids)
        return []
    except (AgentbenchError, OSError):
        return []  # the tests cannot be collected: nothing is known of the case, and the agent has failed


async def find_wrong_ids(
    case: Case, verifier: Verifier, sandboxes: Sandboxes, spec: SandboxSpec | None, ids: Sequence[str]
) -> list[str]:
    """Return sentences about a verifier's ids that match no test, independent of the agent.

    Ids that the source does not decide are compared with the tests that pytest collects in a sandbox, from the initial
    workspace. Without a `spec` such ids count as correct. Raises AgentbenchError and OSError if the sandbox fails.
    """
    decided = await asyncio.to_thread(decide_ids, case, verifier, ids)
    missing = [test_id for test_id in ids if decided[test_id] == "missing"]
    undecided = [test_id for test_id in ids if decided[test_id] == "undecided"]
    tests: tuple[str, ...] = ()
    if undecided and spec is not None:
        collected = await _collect(case, verifier, sandboxes, spec)
        missing += [test_id for test_id in undecided if decide_collected(test_id, collected) == "missing"]
        tests = collected.tests
    assert verifier.pytest is not None
    if not missing:
        return []
    return describe_missing(verifier.pytest, missing, {*tests, *await asyncio.to_thread(list_tests, case, verifier)})


async def _collect(case: Case, verifier: Verifier, sandboxes: Sandboxes, spec: SandboxSpec) -> Collected:
    """Return the tests that pytest collects without an agent's work. Raises SandboxError, ConfigError and OSError."""
    assert verifier.pytest is not None
    names = [*verifier.pytest.ids, *(file.target for file in verifier.files if holds_tests(file))]

    async def collect(sandbox: Sandbox, python: str, environment: Mapping[str, str]) -> Collected:
        return collected_of(await collect_tests(verifier, sandbox, python, environment, names))

    async with AsyncExitStack() as folders:
        context = await _begin(case, case.workspace, sandboxes, folders)
        target = _folder(context, sandboxes, folders)
        solution = _folder(context, sandboxes, folders) if verifier.apart else None
        await context.in_thread(partial(_fill, context, verifier, target, solution))
        return await _run(case, verifier, sandboxes, spec, target, solution, collect)


def _folder(context: CheckContext, sandboxes: Sandboxes, folders: AsyncExitStack) -> Workspace:
    """Make a fresh one, removed with the others."""
    folder = sandboxes.workspaces.create(context.case.case_id)
    folders.push_async_callback(context.in_thread, partial(sandboxes.workspaces.remove, folder))
    return folder


def _fill(context: CheckContext, verifier: Verifier, target: Workspace, solution: Workspace | None) -> Content:
    """Fill the verifier's folder and, if it is separate, the solution's. Return the digests of the hidden files."""
    answer = context.artifact.final_output or ""
    if solution is None:
        return stage_workspace(context.case, verifier, context.workspace, target, answer)
    if context.workspace is not None:
        copy_workspace(context.workspace, solution)
    put_answer(verifier, answer, solution)
    return stage_workspace(context.case, verifier, None, target)


async def _run(
    case: Case,
    verifier: Verifier,
    sandboxes: Sandboxes,
    spec: SandboxSpec,
    target: Workspace,
    solution: Workspace | None,
    ask: Callable[[Sandbox, str, Mapping[str, str]], Awaitable[T]],
) -> T:
    """Return the result of `ask` on the verifier's sandbox, its Python and environment.

    The sandbox has ended when this returns. Raises SandboxError.
    """
    python, spec = choose_python(spec)
    async with AsyncExitStack() as running:
        server: SolutionServer | None = None
        if solution is not None:
            apart = await sandboxes.start(spec, solution, role="verifier", case=case)
            running.push_async_callback(apart.stop)
            server = SolutionServer(apart, python, verifier.timeout_seconds)
            spec = replace(spec, compose=None)  # its services run next to the solution
        sandbox = await sandboxes.start(spec, target, role="verifier", case=case)
        running.push_async_callback(sandbox.stop)
        environment = plain_environment(sandbox)
        if server is not None:
            environment |= await running.enter_async_context(serve_solution(server, sandbox))
        result = await ask(sandbox, python, environment)
        if server is not None and server.trouble is not None:
            raise server.trouble
    return result


def _find_tampering(verifier: Verifier, target: Workspace, hidden: Content) -> str | None:
    """Return how a hidden file was changed, or None if all are unchanged."""
    try:
        now = hidden_content(verifier, target)
    except TreeError as error:
        return f"the hidden files were changed ({error})"
    changed = next((path for path, content in hidden.items() if now.get(path) != content), None)
    if changed is None:
        return None
    return f"the hidden file {changed} was changed"


def _result(verifier: Verifier, result: Verdict) -> CheckResult:
    return CheckResult(
        check_id=verifier.check_id,
        kind=VERIFY,
        dimensions=("task",),
        outcome=result.outcome,
        message=result.message,
        expected=result.expected,
        actual=result.actual,
        outputs={"graded": _grading_note(verifier), **result.outputs},
    )


def _grading_note(verifier: Verifier) -> str:
    """Return the solution's place during grading: another sandbox, the verifier's sandbox, or the tests' process."""
    if verifier.apart:
        return "apart"
    if verifier.pytest is not None and verifier.pytest.pythonpath:
        return "in process"
    return "beside"


async def canary_problems(case: Case, sandboxes: Sandboxes, spec: SandboxSpec) -> AsyncIterator[str]:
    """Yield sentences about the verifiers of a case that do not fail its stubs, of which each has to fail one at least.

    A stub is the folder that a verifier names as its `canary`, else the workspace that the agent would begin with.
    Raises ConfigError and SandboxError for a stub that cannot be copied.
    """
    stubs: dict[Path | None, list[Verifier]] = {}
    for verifier in case.verify:
        stubs.setdefault(verifier.canary or case.workspace, []).append(verifier)
    for stub, verifiers in stubs.items():
        verdicts = await _verdicts(case.model_copy(update={"verify": tuple(verifiers)}), stub, sandboxes, spec)
        where = "an empty workspace" if stub is None else f"the stub {stub}"
        for result in verdicts:
            if result.outcome not in ("passed", "failed"):
                yield f"{result.check_id} could not be tried on {where}: {result.message}"
        if all(result.outcome == "passed" for result in verdicts):
            names = ", ".join(result.check_id for result in verdicts)
            yield f"{names} passed on {where}, which is known to be wrong: a run passes without any work"


async def _verdicts(case: Case, stub: Path | None, sandboxes: Sandboxes, spec: SandboxSpec) -> tuple[CheckResult, ...]:
    async with AsyncExitStack() as folders:
        return await run_verifiers(await _begin(case, stub, sandboxes, folders), sandboxes, spec)


async def _begin(case: Case, stub: Path | None, sandboxes: Sandboxes, folders: AsyncExitStack) -> CheckContext:
    """Return the context of a run in which no agent has done anything: its workspace is a copy of the stub."""
    workspace = sandboxes.workspaces.create(case.case_id)
    folders.push_async_callback(asyncio.to_thread, partial(sandboxes.workspaces.remove, workspace))
    if stub is not None:
        await asyncio.to_thread(partial(fill_workspace, workspace, stub))
    return CheckContext(case, _no_run(case), workspace, {})


def _no_run(case: Case) -> RunArtifact:
    return RunArtifact(
        run_id="canary",
        case_id=case.case_id,
        runner_type=case.runner.type,
        model={},
        repetition=1,
        status="success",
        started_at=datetime.now(UTC),
        duration_seconds=0.0,
    )
