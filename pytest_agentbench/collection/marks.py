"""Hand-written tests that name a case: `@pytest.mark.agentbench("case_id")`, or the path of a test.yaml."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_agentbench.collection.items import MARKED, PLAN_PARAM, PLANNER, fetch_result
from pytest_agentbench.collection.planning import Planner
from pytest_agentbench.config.base import suggest
from pytest_agentbench.config.root_search import climb
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.engine.driver import JOB, overrides_runner
from pytest_agentbench.engine.job import Job, Plan
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import Case, Model
from pytest_agentbench.sources.case_source import IndexedCase
from pytest_agentbench.sources.discovery import find_source
from pytest_agentbench.sources.test_yaml import CASE_FILES, TEST_YAML

if TYPE_CHECKING:
    from pytest_agentbench.public import Run

MARK = "agentbench"
_NO_PLAN = pytest.param(
    None, id="none", marks=pytest.mark.skip("profiles or models are wrong: see the collection error")
)


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Make one test per model and repetition, with the ids that cases have. Raises CollectError for a wrong mark."""
    mark = metafunc.definition.get_closest_marker(MARK)
    if mark is None or not {"agentbench_run", "agentbench_case", "agentbench_model"} & set(metafunc.fixturenames):
        return
    planner = metafunc.config.stash[PLANNER]
    path = metafunc.definition.path
    own_agent = any(map(overrides_runner, (metafunc.cls, metafunc.module))) or planner.has_own_agent(path)
    try:
        plans = planner.plans(_find_root(planner, path), own_agent=own_agent)
        case = _find_case(planner, path, mark, plans)
        # A guest's case runs by the guest's plans, which may only be tighter, also for a test of another folder
        if (root := planner.root(case.path)).is_guest:
            plans = planner.plans(root, own_agent=own_agent)
        judges = planner.metric_judges(plans, case.metrics, f"{case.path}:{case.line}:1")
    except ConfigError as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {error}") from None
    draws = []
    for plan, asked in zip(plans, judges, strict=True):
        count = planner.repetitions(plan)
        draws += [
            pytest.param((case, plan, n, count, asked), id=f"{plan.column}-r{n}" if n > 1 else plan.column)
            for n in range(1, count + 1)
        ]
    metafunc.config.stash[MARKED] = True
    metafunc.fixturenames.append(PLAN_PARAM)
    metafunc.parametrize(PLAN_PARAM, draws or [_NO_PLAN], indirect=True)


def attach_jobs(items: list[pytest.Item]) -> None:
    """Attach jobs to marked tests, so that their runs start ahead like the runs of cases."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        draw = callspec and callspec.params.get(PLAN_PARAM)
        if draw is not None:
            item.stash[JOB] = _make_job(*draw)


def _make_job(case: Case, plan: Plan, repetition: int, repetitions: int, judges: tuple[Model, ...]) -> Job:
    return Job(case.case_id, case.tags, lambda: case, plan, repetition, repetitions, by_hand=True, judges=judges)


def _find_case(planner: Planner, test_file: Path, mark: pytest.Mark, plans: list[Plan]) -> Case:
    """Return the case that a mark names. Raises ConfigError if there is no such case."""
    if len(mark.args) != 1 or mark.kwargs:
        raise ConfigError(f"@pytest.mark.{MARK}: found {mark.args}, expected one case id or path of a test.yaml")
    name, root = str(mark.args[0]), _find_root(planner, test_file)
    path = test_file.parent / name
    path = next((file for name in CASE_FILES if (file := path / name).is_file()), path)
    if path.is_file():
        return planner.case_of(TEST_YAML, path, None, plans)
    known = planner.cases(root)
    if name in known:
        return _load_case(planner, known[name], plans)
    raise ConfigError(f"@pytest.mark.{MARK}: no case {name!r} below {root.path}{suggest(name, known)}")


def _load_case(planner: Planner, found: IndexedCase, plans: list[Plan]) -> Case:
    source = find_source(found.path, planner.root(found.path).path)
    if source is None:
        raise ConfigError(f"@pytest.mark.{MARK}: {found.path} holds no cases any more")
    if source.not_by_hand is not None:
        raise ConfigError(
            f"@pytest.mark.{MARK}: {found.case_id!r} is {source.not_by_hand} of {found.path}; its thresholds decide "
            "it, expected another case"
        )
    return planner.case_of(source, found.path, found.case_id, plans)


def finished_run(item: pytest.Item, runner: Any, servers: Any) -> Run:
    """Return the run of a marked test. Raises the reason for a missing result."""
    __tracebackhide__ = True
    if JOB not in item.stash:
        raise pytest.UsageError(f'{item.nodeid}: agentbench_run needs @pytest.mark.{MARK}("case_id" or a path)')
    result = fetch_result(item, runner, servers)
    assert result.case is not None
    assert result.artifact is not None
    from pytest_agentbench.public import Run

    return Run(result.case, result.artifact, result.evaluation, result.workspace)


def _find_root(planner: Planner, test_file: Path) -> ConfigRoot:
    """Return the config root of a test file: one above it, or the `cases` folder next to it or above it."""
    here = str(test_file.parent)
    for folder in climb(here, planner.roots.top_of(here)):
        if os.path.isdir(f"{folder}/cases"):
            return planner.root(Path(folder, "cases", test_file.name))
    return planner.root(test_file)
