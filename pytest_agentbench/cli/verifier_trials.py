"""Trials of verifiers by `agentbench validate`: wrong test ids, and verifiers that pass a wrong solution."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from pytest_agentbench.checks.verifying.named_tests import decide_ids
from pytest_agentbench.checks.verifying.run import canary_problems, find_wrong_ids
from pytest_agentbench.cli.findings import FILES, Finding
from pytest_agentbench.cli.output import list_first
from pytest_agentbench.cli.places import find_run_profile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import SessionRoots
from pytest_agentbench.engine.run_plan import case_spec
from pytest_agentbench.errors import AgentbenchError, UnavailableError
from pytest_agentbench.records.case import Case
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec, provider_of
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces


def try_canaries(cases: Sequence[Case], roots: SessionRoots, profile: str | None) -> list[Finding]:
    """Return an error for each case whose verifier passes a wrong solution, tried in sandboxes of the run profile.

    Raises ConfigError if the run profile is wrong.
    """
    if profile is not None:
        for case in cases:
            roots.of(case.path).run_profile(profile)
    return asyncio.run(_try_verifiers(cases, roots, profile))


async def _try_verifiers(cases: Sequence[Case], roots: SessionRoots, profile: str | None) -> list[Finding]:
    findings: list[Finding] = []
    async for sandboxes, case, find_spec in _open_sandboxes(cases, roots, profile):
        try:
            spec = find_spec()
            await sandboxes.prepare(spec)
            findings += [
                _make_finding(case, f"verify: {problem}", is_error=True)
                async for problem in canary_problems(case, sandboxes, spec)
            ]
        except AgentbenchError as error:
            findings.append(_make_finding(case, f"verify: could not be tried: {error}", is_error=True))
    return findings


def check_test_ids(cases: Sequence[Case], roots: SessionRoots, profile: str | None) -> list[Finding]:
    """Return errors for ids of hidden tests that do not exist, and warnings for ids that could not be checked.

    Reading the tests decides most ids. For the others pytest collects the tests in the sandbox of the named run
    profile, and nowhere else, because collecting imports code of the case.
    """
    tested = [case for case in cases if any(verifier.pytest is not None for verifier in case.verify)]
    if tested:
        return asyncio.run(_check_test_ids(tested, roots, profile))
    return []


async def _check_test_ids(cases: Sequence[Case], roots: SessionRoots, profile: str | None) -> list[Finding]:
    findings: list[Finding] = []
    async for sandboxes, case, find_spec in _open_sandboxes(cases, roots, profile):
        for verifier in case.verify:
            if verifier.pytest is None:
                continue
            decisions = decide_ids(case, verifier, verifier.pytest.ids)
            undecided = [test_id for test_id, decision in decisions.items() if decision == "undecided"]
            spec = None
            if undecided:
                try:
                    if profile is None:
                        _require_request(find_spec(), roots.of(case.path))
                    spec = find_spec()
                    await sandboxes.prepare(spec)
                except AgentbenchError as error:
                    findings.append(_describe_unchecked(case, undecided, error))
            # A failed collection must not hide ids that reading alone proves wrong: without `spec` only these count.
            try:
                wrong = await find_wrong_ids(case, verifier, sandboxes, spec, verifier.pytest.ids)
            except (AgentbenchError, OSError) as error:
                findings.append(_describe_unchecked(case, undecided, error))
                wrong = await find_wrong_ids(case, verifier, sandboxes, None, verifier.pytest.ids)
            findings += [_make_finding(case, f"{verifier.check_id}: {problem}", is_error=True) for problem in wrong]
    return findings


def _require_request(spec: SandboxSpec, root: ConfigRoot) -> None:
    """Raise UnavailableError if tests are collected only at the user's request, which names the run profile.

    `validate` starts nothing of a folder that is not trusted, and pulls or builds no image.
    """
    if root.guest is not None:
        raise UnavailableError("they are of a folder that is not trusted; name a run profile with --run-profile")
    if not provider_of(spec.kind).starts_freely:
        raise UnavailableError(f"they need the sandbox {spec.kind}; name its run profile with --run-profile")


def _describe_unchecked(case: Case, ids: Sequence[str], error: Exception) -> Finding:
    named = list_first([repr(test_id) for test_id in ids], 1)
    problem = f"verify: {named} not checked, the tests were not collected: {error}"
    return _make_finding(case, problem, is_error=False)


def _make_finding(case: Case, problem: str, *, is_error: bool) -> Finding:
    return Finding(FILES, f"{case.path}:{case.line}:1", False, problem, needed=is_error)


async def _open_sandboxes(
    cases: Sequence[Case], roots: SessionRoots, profile: str | None
) -> AsyncIterator[tuple[Sandboxes, Case, Callable[[], SandboxSpec]]]:
    """Yield each case with the sandboxes of all cases and a function that returns its own. Close them at the end."""
    workspaces = Workspaces()
    sandboxes = Sandboxes(workspaces)

    def find_spec(case: Case) -> SandboxSpec:
        root = roots.of(case.path)
        return case_spec(sandboxes, root, find_run_profile(root, profile), case)

    try:
        for case in cases:
            yield sandboxes, case, partial(find_spec, case)
    finally:
        await sandboxes.close()
        workspaces.close()
