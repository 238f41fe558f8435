"""What `agentbench validate` finds by running verifiers: wrong test ids, and verifiers that pass a wrong solution."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path

from pytest_agentbench.checks.verifying.named_tests import decide_ids
from pytest_agentbench.checks.verifying.run import canary_problems, find_wrong_ids
from pytest_agentbench.cli.list import cases_below
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import SessionRoots
from pytest_agentbench.engine.subject import case_spec
from pytest_agentbench.errors import AgentbenchError, UnavailableError
from pytest_agentbench.records.case import Case
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec, likeness_of
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces


def try_canaries(paths: list[Path], roots: SessionRoots, profile: str | None) -> tuple[list[str], int]:
    """Return problems as lines for people, and how many cases were tried, in sandboxes of the run profile of that name.

    Raises ConfigError for a profile that is wrong. What cannot be loaded is left to the other checks.
    """
    cases = [case for case in cases_below(paths, []) if case.verify]
    if profile is not None:
        for case in cases:
            roots.of(case.path).run_profile(profile)
    return asyncio.run(_try_verifiers(cases, roots, profile)), len(cases)


async def _try_verifiers(cases: list[Case], roots: SessionRoots, profile: str | None) -> list[str]:
    problems: list[str] = []
    async for sandboxes, case, find_spec in _each(cases, roots, profile):
        place = f"{_place(case)}: verify: "
        try:
            spec = find_spec()
            await sandboxes.prepare(spec)
            problems += [place + problem async for problem in canary_problems(case, sandboxes, spec)]
        except AgentbenchError as error:
            problems.append(f"{place}could not be tried: {error}")
    return problems


def check_test_ids(cases: Sequence[Case], roots: SessionRoots, profile: str | None) -> tuple[list[str], list[str]]:
    """Return errors and warnings about the ids of tests that pytest runs as verifiers, as lines for people.

    Reading the tests decides most ids. For the others pytest collects the tests, in the sandbox of the run profile of
    that name and nowhere else: collecting imports code of the case. A warning names the ids that could not be checked.
    """
    return asyncio.run(_check_test_ids(cases, roots, profile))


async def _check_test_ids(
    cases: Sequence[Case], roots: SessionRoots, profile: str | None
) -> tuple[list[str], list[str]]:
    errors: list[str] = []
    warnings: list[str] = []
    async for sandboxes, case, find_spec in _each(cases, roots, profile):
        for verifier in case.verify:
            if verifier.pytest is None:
                continue
            decided = decide_ids(case, verifier, verifier.pytest.ids)
            undecided = [test_id for test_id, decision in decided.items() if decision == "undecided"]
            spec = None
            if undecided:
                try:
                    if profile is None:
                        _require_request(find_spec(), roots.of(case.path))
                    spec = find_spec()
                    await sandboxes.prepare(spec)
                except AgentbenchError as error:
                    warnings.append(_describe_unchecked(case, undecided, error))
            try:
                wrong = await find_wrong_ids(case, verifier, sandboxes, spec, verifier.pytest.ids)
            except (AgentbenchError, OSError) as error:
                warnings.append(_describe_unchecked(case, undecided, error))
                wrong = await find_wrong_ids(case, verifier, sandboxes, None, verifier.pytest.ids)
            errors += [f"{_place(case)}: {verifier.check_id}: {sentence}" for sentence in wrong]
    return errors, warnings


def _require_request(spec: SandboxSpec, root: ConfigRoot) -> None:
    """Raise UnavailableError if tests are collected only at the user's request, which names the run profile.

    `validate` starts nothing of a folder that is not trusted, and pulls or builds no image.
    """
    if root.guest is not None:
        raise UnavailableError("they are of a folder that is not trusted; name a run profile with --run-profile")
    if likeness_of(spec.kind) == "docker":
        raise UnavailableError("they need a container; name its run profile with --run-profile")


def _describe_unchecked(case: Case, ids: Sequence[str], error: Exception) -> str:
    more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
    return f"{_place(case)}: warning: verify: {ids[0]!r}{more} not checked, the tests were not collected: {error}"


def _place(case: Case) -> str:
    return f"{case.path}:{case.line}:1"


async def _each(
    cases: Sequence[Case], roots: SessionRoots, profile: str | None
) -> AsyncIterator[tuple[Sandboxes, Case, Callable[[], SandboxSpec]]]:
    """Yield each case with the sandboxes of all and what finds its own; they are closed at the end."""
    workspaces = Workspaces()
    sandboxes = Sandboxes(workspaces)

    def find_spec(case: Case) -> SandboxSpec:
        root = roots.of(case.path)
        return case_spec(sandboxes, root, RunProfile.default() if profile is None else root.run_profile(profile), case)

    try:
        for case in cases:
            yield sandboxes, case, partial(find_spec, case)
    finally:
        await sandboxes.close()
        workspaces.close()
