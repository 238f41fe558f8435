"""Verifiers tried on what is known to be wrong: one that passes there decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pytest_agentbench.checks.base import CheckContext
from pytest_agentbench.checks.verifying.run import run_verifiers
from pytest_agentbench.records import Case, CheckResult, RunArtifact, Verifier
from pytest_agentbench.workspaces import Sandboxes, SandboxSpec, fill


async def canary_problems(case: Case, sandboxes: Sandboxes, spec: SandboxSpec) -> AsyncIterator[str]:
    """Yield sentences about the verifiers of a case that do not fail its stubs, of which each has to fail one at least.

    A stub is the folder that a verifier names as its `canary`, else the workspace that the agent would begin with.
    Raises ConfigError and SandboxError for a stub that cannot be copied.
    """
    stubs: dict[Path | None, list[Verifier]] = {}
    for verifier in case.verify:
        stubs.setdefault(verifier.canary or case.workspace, []).append(verifier)
    for stub, verifiers in stubs.items():
        found = await _verdicts(case.model_copy(update={"verify": tuple(verifiers)}), stub, sandboxes, spec)
        where = "an empty workspace" if stub is None else f"the stub {stub}"
        for result in found:
            if result.outcome not in ("passed", "failed"):
                yield f"{result.check_id} could not be tried on {where}: {result.message}"
        if all(result.outcome == "passed" for result in found):
            names = ", ".join(result.check_id for result in found)
            yield f"{names} passed on {where}, which is known to be wrong: a run passes without any work"


async def _verdicts(case: Case, stub: Path | None, sandboxes: Sandboxes, spec: SandboxSpec) -> tuple[CheckResult, ...]:
    workspace = sandboxes.workspaces.create(case.case_id)
    try:
        if stub is not None:
            await asyncio.to_thread(partial(fill, workspace, stub))
        return await run_verifiers(CheckContext(case, _no_run(case), workspace, {}), sandboxes, spec)
    finally:
        await asyncio.to_thread(partial(sandboxes.workspaces.remove, workspace))


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
