"""Examination of this machine for the cases below a path."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pytest_agentbench.cli.doctor_findings import Models, examine_servers
from pytest_agentbench.cli.doctor_needs import Cases, Needs, cases_below, find_needs, has_hooks, skip_for_images
from pytest_agentbench.cli.doctor_sandboxes import examine_sandboxes, list_sandbox_actions
from pytest_agentbench.cli.findings import Finding
from pytest_agentbench.cli.output import list_first
from pytest_agentbench.cli.places import session_roots
from pytest_agentbench.cli.stand_ins import known_from_conftests
from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
from pytest_agentbench.config.root_search import holds_configuration
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import SessionRoots
from pytest_agentbench.engine.services import Registry, build_registry
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import check_own_names, list_problems
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

_PACKAGES = ("pytest-agentbench", "pytest", "openai", "docker")
_SHOWN = 3


async def examine(
    path: Path, profile: str | None, output: Path, announce: Callable[[Sequence[str]], None] | None = None
) -> list[Finding]:
    """Return all findings for the cases below a path. Raises ConfigError for profiles that cannot be read.

    With `announce`, which gets the list of planned actions first, endpoints are asked and programs of files are
    started.
    """
    roots = session_roots([path])
    with known_from_conftests([path], roots):
        return await _examine(path, roots, profile, output, announce)


async def _examine(
    path: Path, roots: SessionRoots, profile: str | None, output: Path, announce: Callable[[Sequence[str]], None] | None
) -> list[Finding]:
    root = roots.around(path)
    if not holds_configuration(str(root.path)):
        root = roots.main
    run_profiles = _read_run_profiles(root, profile)
    evaluation_profiles = _read_evaluation_profiles(root, profile)
    # Built without pytest, so additions of conftest files are missing.
    registry, workspaces = build_registry(), Workspaces()
    found, models, live = cases_below(path, roots), Models(root, evaluation_profiles), announce is not None
    sandboxes = Sandboxes(workspaces, starts_engines=False)
    try:
        needs = await _find_needs(found, run_profiles, root, sandboxes, registry)
        if announce is not None:
            announce([*list_sandbox_actions(run_profiles, needs), *models.actions()])
            # Built again with engines, because the engines that work decide about the sandboxes of cases.
            sandboxes = Sandboxes(workspaces)
            needs = await _find_needs(found, run_profiles, root, sandboxes, registry)
        hooks = any(has_hooks(found.cases, each) for each in evaluation_profiles)
        tried = await examine_sandboxes(run_profiles, needs, sandboxes, hooks=hooks, live=live)
    finally:
        await sandboxes.close()
        workspaces.close()
    return [
        *_report_versions(),
        *tried,
        Finding("cases", "configuration root", None, roots.describe()),
        *_report_cases(path, found, run_profiles, needs),
        *examine_servers(found.cases, root, run_profiles),
        *await models.examine(live=live),
        _report_search(registry.search is not None),
        *_report_places(output, run_profiles),
    ]


async def _find_needs(
    found: Cases, profiles: Sequence[RunProfile], root: ConfigRoot, sandboxes: Sandboxes, registry: Registry
) -> list[Needs]:
    needs = [find_needs(found.cases, each, root, sandboxes, registry) for each in profiles]
    for need in needs:
        await skip_for_images(need, sandboxes)
    return needs


def _read_run_profiles(root: ConfigRoot, name: str | None) -> list[RunProfile]:
    if name is not None:
        return [root.run_profile(name)]
    return [root.run_profile(str(path)) for path in _list_profile_files(root, "run_profiles")] or [RunProfile.default()]


def _read_evaluation_profiles(root: ConfigRoot, name: str | None) -> list[EvaluationProfile]:
    if name is None:
        return [root.evaluation_profile(str(path)) for path in _list_profile_files(root, "evaluation_profiles")]
    try:
        return [root.evaluation_profile(name)]
    except ConfigError:
        # One name covers both kinds of profile, and a root may have only run profiles.
        if not _list_profile_files(root, "evaluation_profiles"):
            return []
        raise


def _list_profile_files(root: ConfigRoot, folder: str) -> list[Path]:
    return sorted(path for path in (root.path / folder).glob("*.*") if path.suffix in (".yaml", ".yml"))


def _report_versions() -> Iterator[Finding]:
    system = f"{platform.python_version()} on {platform.system()} {platform.release()} ({platform.machine()})"
    yield Finding("versions", "python", None, system)
    for name in _PACKAGES:
        try:
            yield Finding("versions", name, None, version(name))
        except PackageNotFoundError:
            yield Finding("versions", name, False, f"not installed: pip install {name}")
    check_own_names()
    for problem in list_problems():
        yield Finding("versions", "packs", False, problem)


def _report_cases(
    path: Path, found: Cases, profiles: Sequence[RunProfile], needs: Sequence[Needs]
) -> Iterator[Finding]:
    area = "cases"
    if found.problems:
        said = f"{len(found.problems)} cannot be read; `agentbench validate` gives the reasons"
        yield Finding(area, "files", False, said, needed=True)
    elif not found.cases:
        yield Finding(area, "files", None, f"none to look at below {path}; name the folder that your cases are in")
        return
    for profile, need in zip(profiles, needs, strict=True):
        skipped = sum(map(len, need.skipped.values()))
        counted = f"{len(found.cases) - skipped} of {len(found.cases)} cases can run"
        yield Finding(area, f"profile {profile.run_profile_id}", not skipped, counted)
        for reason, ids in need.skipped.items():
            yield Finding(area, f"skipped: {list_first(ids, _SHOWN)}", False, reason, needed=True)


def _report_search(works: bool) -> Finding:
    variables = "AGENTBENCH_SEARXNG_URL, BRAVE_API_KEY or TAVILY_API_KEY"
    if works:
        return Finding("web", "web_search", True, f"a backend is set by one of {variables}")
    return Finding("web", "web_search", False, f"no backend; set {variables} for cases that use it")


def _report_places(output: Path, profiles: Sequence[RunProfile]) -> Iterator[Finding]:
    temporary = tempfile.gettempdir()
    free, needed_mb = shutil.disk_usage(temporary).free, max(each.sandbox_settings.workspace_mb for each in profiles)
    space = f"{temporary}: {free / 2**30:.1f} GB free"
    if free < needed_mb * 2**20:
        space += f", and one run's workspace may take {needed_mb} MB; make room, or set TMPDIR to another folder"
    yield Finding("places", "temporary folder", free >= needed_mb * 2**20, space, needed=True)
    text = str(output)
    if (problem := _find_write_problem(output)) is not None:
        text += f": {problem}; name another with --agentbench-output"
    yield Finding("places", "store", problem is None, text, needed=True)


def _find_write_problem(output: Path) -> str | None:
    """Return why no file can be written below the folder, or below its nearest existing parent; None if one can."""
    folder = output.absolute()
    # A session makes missing folders, so the nearest existing one decides.
    while not folder.exists():
        folder = folder.parent
    try:
        # Write a file instead of reading permission bits, which ignore root, ACLs and read-only mounts.
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or type(error).__name__
