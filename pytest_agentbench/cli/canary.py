"""What `agentbench validate --canary` tries: the verifiers of cases, on solutions that are known to be wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pytest_agentbench.checks.verifying.canary import canary_problems
from pytest_agentbench.cli.list import cases_below
from pytest_agentbench.config import RunProfile, SessionRoots
from pytest_agentbench.engine.sandboxing import case_spec
from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.records import Case
from pytest_agentbench.workspaces import Sandboxes, Workspaces


def try_canaries(paths: list[Path], roots: SessionRoots, profile: str | None) -> tuple[list[str], int]:
    """Return problems as lines for people, and how many cases were tried, in sandboxes of the run profile of that name.

    Raises ConfigError for a profile that is wrong. What cannot be loaded is left to the other checks.
    """
    cases = [case for case in cases_below(paths, []) if case.verify]
    return asyncio.run(_try(cases, roots, profile)), len(cases)


async def _try(cases: list[Case], roots: SessionRoots, profile: str | None) -> list[str]:
    workspaces = Workspaces()
    sandboxes = Sandboxes(workspaces)
    problems: list[str] = []
    try:
        for case in cases:
            root = roots.of(case.path)
            chosen = RunProfile.default() if profile is None else root.run_profile(profile)
            place = f"{case.path}:{case.line}:1: verify: "
            try:
                spec = case_spec(sandboxes, root, chosen, case)
                await sandboxes.prepare(spec)
                problems += [place + problem async for problem in canary_problems(case, sandboxes, spec)]
            except AgentbenchError as error:
                problems.append(f"{place}could not be tried: {error}")
    finally:
        await sandboxes.close()
        workspaces.close()
    return problems
