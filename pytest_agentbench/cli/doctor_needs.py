"""Needs of cases on a machine under a profile, found as a session finds them; nothing is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.cli.places import list_case_files
from pytest_agentbench.errors import CodeNotRun, ConfigError, UnavailableError
from pytest_agentbench.extensions import load_extensions
from pytest_agentbench.sources.case_source import SourceCase, SourceRequest
from pytest_agentbench.sources.discovery import open_source

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
    from pytest_agentbench.config.roots import ConfigRoot
    from pytest_agentbench.config.session_roots import SessionRoots
    from pytest_agentbench.engine.services import Registry
    from pytest_agentbench.records.case import Case
    from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
    from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes


@dataclass
class Cases:
    """The cases below a path; of a file whose cases need the same its first."""

    cases: list[Case] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PackNeeds:
    """Needs of a pack on a machine: the field `doctor_needs` of a Pack.

    `sandboxes(case, profile, sandboxes)` returns the sandboxes that the pack's runs of a case use in addition to the
    one of the case's tools. It raises UnavailableError if the case would be skipped. `engines(profile)` returns the
    programs, or kinds of sandbox, that make its containers.
    """

    sandboxes: Callable[[Case, RunProfile, Sandboxes], Iterable[SandboxSpec]] = lambda case, profile, sandboxes: ()
    engines: Callable[[RunProfile], Iterable[str]] = lambda profile: ()


@dataclass
class Needs:
    """Needs of the cases under one run profile: sandboxes, and why cases would be skipped, each with case ids."""

    sandboxes: dict[SandboxSpec, list[str]] = field(default_factory=dict)
    skipped: dict[str, list[str]] = field(default_factory=dict)


def cases_below(path: Path, roots: SessionRoots) -> Cases:
    """Return the cases below a path that can be read. `problems` holds the errors of the others."""
    cases = Cases()
    try:
        paths = [*list_case_files(path)]
    except ConfigError as error:
        cases.problems.append(str(error))
        return cases
    for file in paths:
        root = roots.of(file)
        try:
            cases.cases += _read_first_cases(file, root)
        # Rows that need code of the project are read by sessions only: nothing is run here.
        except CodeNotRun:
            continue
        except ConfigError as error:
            cases.problems.append(str(error))
    return cases


def _read_first_cases(file: Path, root: ConfigRoot) -> Iterator[Case]:
    opened = open_source(file, SourceRequest(root))
    if opened.is_remote:
        return  # the doctor downloads nothing
    for row in opened.rows():
        if isinstance(row, SourceCase):
            yield row.make()
            if opened.alike:  # all rows of a dataset need the same, so the first one of 100,000 is enough
                return


def find_needs(
    cases: Sequence[Case], profile: RunProfile, root: ConfigRoot, sandboxes: Sandboxes, registry: Registry
) -> Needs:
    """Return the needs of the cases under the profile. Tools and runners of plugins are assumed to work."""
    from pytest_agentbench.runners.agents.runs import ProgramRuns

    needs, programs = Needs(), ProgramRuns(sandboxes)
    for case in cases:
        specs: set[SandboxSpec] = set()
        try:
            is_program = case.runner.type in ("agent", "command")
            if is_program and (place := programs.prepare_case(case, root, profile).sandbox) is not None:
                specs.add(place())
            _collect_needs(case, profile, sandboxes, registry, specs)
        # An agent that nobody knows, too
        except (UnavailableError, ConfigError) as error:
            needs.skipped.setdefault(str(error), []).append(case.case_id)
        for spec in specs:
            needs.sandboxes.setdefault(spec, []).append(case.case_id)
    return needs


async def skip_for_images(needs: Needs, sandboxes: Sandboxes) -> None:
    """Add the cases that would be skipped for want of an image that no session pulls. Raises SandboxError."""
    from pytest_agentbench.workspaces.sandboxes.base import provider_of
    from pytest_agentbench.workspaces.sandboxes.images import is_local

    for spec, ids in needs.sandboxes.items():
        # Asked once for each sandbox, not for each case.
        is_built_here = spec.image is not None and is_local(spec.image)
        if is_built_here and provider_of(spec.kind).images() is not None and sandboxes.may_ask(spec):
            try:
                await sandboxes.prepare(spec)
            except UnavailableError as error:
                known = {case_id for skipped in needs.skipped.values() for case_id in skipped}
                needs.skipped.setdefault(str(error), []).extend(case_id for case_id in ids if case_id not in known)


def _collect_needs(
    case: Case, profile: RunProfile, sandboxes: Sandboxes, registry: Registry, wanted: set[SandboxSpec]
) -> None:
    """Add the sandboxes of the case to `wanted`. Raises UnavailableError if the case would be skipped."""
    import asyncio

    from pytest_agentbench.runners.base import RunContext
    from pytest_agentbench.tools.fetching import make_web_fetch

    def sandbox() -> SandboxSpec:
        spec = sandboxes.spec(profile.sandbox_settings, case.sandbox)
        wanted.add(spec)
        return spec

    packs: Iterable[PackNeeds] = load_extensions("doctor").values()
    for pack in packs:
        wanted.update(pack.sandboxes(case, profile, sandboxes))
    # Tools of conftest files are not known here, so they are taken to work.
    known = tuple(tool for tool in case.tools if tool in registry.tools)
    context = RunContext(
        case=case.model_copy(update={"tools": known}),
        open_sandboxes=lambda: sandboxes,
        tools=registry.tools,
        sandbox_spec=sandbox,
        search=registry.search,
        fetch=make_web_fetch(profile.network, asyncio.to_thread),
        network=profile.network,
    )
    # A run makes the same call, which raises if the case has to be skipped.
    context.toolbox()
    if case.verify or case.has_hooks:
        sandbox()


def has_hooks(cases: Sequence[Case], profile: EvaluationProfile) -> bool:
    """Return whether the profile runs Python hooks of the cases, without network."""
    policy = profile.security_policy
    allowed = policy.allow_local_python_hooks and policy.network_access == "deny"
    return allowed and any(check.python_hook is not None for case in cases for check in case.checks)
