"""Checks before the first run: problems that end the session, warnings, and the limit of open files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_agentbench.bounded.locks import allow_open_files
from pytest_agentbench.collection.items import PLANNER
from pytest_agentbench.collection.planning import NO_MODEL
from pytest_agentbench.engine.driver import JOB
from pytest_agentbench.engine.job import Job
from pytest_agentbench.engine.lookahead import RunLimits
from pytest_agentbench.errors import AgentbenchError, ConfigError, InfrastructureError
from pytest_agentbench.records.base import AUTO
from pytest_agentbench.store.output_folder import refuse_links

if TYPE_CHECKING:
    from pytest_agentbench.collection.planning import Planner
    from pytest_agentbench.collection.predicted import Predicted
    from pytest_agentbench.options import Settings
    from pytest_agentbench.records.case import Model

_NAMED = 5
_SESSION_FILES = 64
"""Open files of a session, without its runs."""
_RUN_FILES, _PROGRAM_FILES = 4, 12
"""Open files of a run, and of the programs that a run starts."""
_MOST_FILES = 64
"""Open files that each run gets if the system allows so many."""


def find_problems(config: pytest.Config, settings: Settings, items: list[pytest.Item], jobs: list[Job]) -> list[str]:
    """Return the problems that end the whole session: no model, missing keys or packages, a shared store that cannot
    be opened.

    Opens the shared store.
    """
    planner = config.stash[PLANNER]
    # With other tests in the session, as in a project's whole test suite, cases without a model are skipped.
    if len(jobs) == len(items) and all(map(_lacks_model, jobs)):
        return [_describe_no_model(jobs)]
    if problem := _refuse_repeats(config, items):
        return [problem]
    if settings.otel:
        from pytest_agentbench.reports.telemetry.spans import otel_problem

        if (problem := otel_problem(os.environ)) is not None:
            return [problem]
    if any(job.plan.variant is not None for job in jobs):
        from pytest_agentbench.collection.variants import find_variant_problems

        if problems := find_variant_problems(jobs):
            return problems
    if not settings.dry_run and (missing := _list_missing_keys(planner, jobs)):
        return missing
    try:
        if settings.output.is_file():  # checked before a run is paid for that cannot be stored
            return [f"--agentbench-output: found the file {settings.output.name}, expected a folder"]
        refuse_links(settings.output)
        if planner.store.remote is not None:
            planner.store.remote.open()
    except (ConfigError, InfrastructureError) as error:
        return [str(error)]
    return []


def _lacks_model(job: Job) -> bool:
    return job.plan.model_id == NO_MODEL and job.plan.predictions is None


def _describe_no_model(jobs: list[Job]) -> str:
    """Return what to do in a session of cases alone that names no model."""
    from pytest_agentbench.reports.table import and_more

    known = [model.model_id for model in jobs[0].plan.root.models().models]
    declared = f" ({', '.join(known[:_NAMED])}{and_more(len(known), _NAMED)})" if known else ""
    return (
        f"no model was named, so no case can run: name one of models.yaml{declared} or of an endpoint with --model "
        "NAME, or set agentbench_model in the ini file; --model demo answers from the cases' scripts; your own agent "
        "is the fixture agentbench_runner of a conftest.py"
    )


def _list_missing_keys(planner: Planner, jobs: list[Job]) -> list[str]:
    """Return a sentence for each model that the jobs ask and whose key is not set."""
    plans = {job.plan for job in jobs}
    asked = [model for job in jobs for model in job.judges]
    asked += [plan.model for plan in plans if plan.model is not None and not plan.own_agent]
    missing = _unset_keys(planner, asked)
    judges = [judge for plan in plans for judge in plan.judges.values()]
    # Cases are read only if a judge's key is not set: of 10,000 rows that takes seconds
    if _unset_keys(planner, judges).keys() - missing.keys():
        judging = {job.plan for job in jobs if _asks_judges(planner, job)}
        missing |= _unset_keys(planner, (judge for plan in judging for judge in plan.judges.values()))
    return [*missing.values()]


def _unset_keys(planner: Planner, models: Iterable[Model]) -> dict[str, str]:
    """Return a sentence for each model without its key, by the model's id. A replay asks nobody."""
    asked = {model.model_id: model for model in models}
    if not asked:
        return {}
    from pytest_agentbench.models.routes import missing_key

    return {
        name: sentence
        for name, model in asked.items()
        if (model.cassettes or planner.settings.cassettes) != "replay"
        and (sentence := missing_key(model, planner.environ)) is not None
    }


def _asks_judges(planner: Planner, job: Job) -> bool:
    """Return whether the case needs the evaluation profile's judges. A case that cannot be read needs none."""
    from pytest_agentbench.engine.evaluation import verdict_asks
    from pytest_agentbench.engine.grading import graders_of

    try:
        case = job.case()
        graders = graders_of(case, planner.registry.graders)
    except ConfigError:
        return False
    return verdict_asks(case, job.plan.evaluation_profile, graders)


def _refuse_repeats(config: pytest.Config, items: list[pytest.Item]) -> str | None:
    """Return an error for plugins that repeat tests: all repetitions of a case would share one stored run."""
    count = config.getoption("count", 1) if config.pluginmanager.has_plugin("repeat") else 1
    if config.getoption("flake_finder_enable", False):
        option, count = "--flake-finder", config.getoption("flake_runs")
    elif isinstance(count, int) and count > 1:
        option = f"--count {count}"
    else:
        marked = (item for item in items if JOB in item.stash and item.get_closest_marker("repeat") is not None)
        if (item := next(marked, None)) is None or not config.pluginmanager.has_plugin("repeat"):
            return None
        option, count = f"{item.nodeid}: @pytest.mark.repeat", "N"
    return f"{option}: cases have their own repetitions; use --agentbench-repetitions {count} instead"


def find_warnings(jobs: list[Job], predicted: Predicted | None, *, is_idle_metric: bool) -> Iterator[str]:
    """Yield warnings about sandboxes, missing models, and metrics and judges that no case uses."""
    yield from _list_weaknesses(jobs)
    if any(map(_lacks_model, jobs)):
        yield "no model was named, so cases were skipped: name one with --model, or override agentbench_runner"
    if is_idle_metric:
        yield (
            "--agentbench-metric: found no row of a dataset, which alone it decides; name metrics of other cases in "
            "their files"
        )
    yield from _list_idle_judges(jobs)
    if predicted is not None:
        yield from predicted.warnings(max(job.repetition for job in jobs))


def _list_weaknesses(jobs: list[Job]) -> Iterator[str]:
    """Yield a warning for each gap in the isolation by the sandboxes that profiles name."""
    profiles = {id(job.plan.run_profile): job.plan.run_profile for job in jobs}
    warnings = dict[str, None]()
    for profile in profiles.values():
        settings = profile.sandbox_settings
        if settings.type == AUTO:
            continue
        from pytest_agentbench.workspaces.sandboxes.base import provider_of

        if (weakness := provider_of(settings.type).weakness(settings)) is not None:
            warnings[f"sandbox: {settings.type}: {weakness}"] = None
    yield from warnings


def _list_idle_judges(jobs: list[Job]) -> Iterator[str]:
    """Yield a warning for each evaluation profile whose judges no case of the session asks."""
    profiles = {job.plan.evaluation_profile.evaluation_profile_id: job.plan for job in jobs}
    asked = {job.plan.evaluation_profile.evaluation_profile_id for job in jobs if job.judges}
    for name, plan in profiles.items():
        if name not in asked and plan.evaluation_profile.judges:
            from pytest_agentbench.config.field_doubts import list_idle_judges

            yield from list_idle_judges(plan.evaluation_profile)


def bound_by_open_files(limits: RunLimits, jobs: list[Job]) -> list[str]:
    """Reduce `limits.concurrency` to the runs whose files this process can have open. Return a warning about that.

    Counted with 2 and 16 runs in flight: a run has a lock and connections open, a command in a sandbox 5 more files,
    each MCP server 4. The rest of the constants is reserve.
    """
    needed = _SESSION_FILES + _MOST_FILES * limits.concurrency
    allowed = allow_open_files(needed)
    if allowed >= needed:
        return []
    per_run = _RUN_FILES
    if any(map(_starts_programs, jobs)):
        per_run += _PROGRAM_FILES
    most = max(1, (allowed - _SESSION_FILES) // per_run)
    if most >= limits.concurrency:
        return []
    concurrency, limits.concurrency = limits.concurrency, most
    return [
        f"{most} runs are made at once, not {concurrency}: this process may have no more than {allowed} files open; "
        f"allow more (ulimit -n {_SESSION_FILES + per_run * concurrency})"
    ]


def _starts_programs(job: Job) -> bool:
    try:
        case = job.make_case()
    except AgentbenchError:
        return False  # its item reports the error
    plain = case.runner.type == "llm_probe" and not (case.tools or case.mcp_servers or case.verify or case.has_hooks)
    return not plain and job.plan.predictions is None
