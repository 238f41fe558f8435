"""The start of a session with cases: from collected items to an engine that runs ahead of them."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_agentbench.collection.files import PLANNER
from pytest_agentbench.collection.items import OUTPUT, STRICT
from pytest_agentbench.collection.marked import attach_jobs
from pytest_agentbench.collection.planning import NO_MODEL
from pytest_agentbench.collection.reporting import CaseReports
from pytest_agentbench.collection.selecting import deselect
from pytest_agentbench.engine import (
    AHEAD,
    CHANNEL,
    JOB,
    Budget,
    Job,
    LookAhead,
    RunAhead,
    RunLogHandler,
    Services,
    execute,
)
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.reports import Progress, StatusLine
from pytest_agentbench.workspaces import Workspaces

if TYPE_CHECKING:
    from pytest_agentbench.collection.predicted import Predicted
    from pytest_agentbench.models import Endpoints
    from pytest_agentbench.options import Settings
    from pytest_agentbench.session import SessionReport


def choose(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Gives marked tests their cases and deselects what is not to run."""
    planner = session.config.stash[PLANNER]
    attach_jobs(items)
    try:
        deselect(session.config, items, planner)
    except ConfigError as error:
        _refuse(session, str(error))
    if problem := planner.problem or (planner.predicted and planner.predicted.problem):
        _refuse(session, problem)


def begin(session: pytest.Session, settings: Settings, report: SessionReport | None) -> None:
    """Here -k, -m, --lf and every other deselection are done. `report` is None in xdist's workers.

    Raises UsageError for a missing key, before anything runs.
    """
    config = session.config
    jobs = [item.stash[JOB] for item in session.items if JOB in item.stash]
    channel = getattr(config, "workerinput", {}).get(CHANNEL)
    workers = config.workerinput["workercount"] if channel is not None else 1  # type: ignore[attr-defined]
    concurrency = max(1, _concurrency(settings, jobs) // workers)
    if channel is not None:
        channel.send(("cases", len(jobs), concurrency))  # precedes xdist's own message on the same wire
    if not jobs or config.getoption("collectonly") or config.getoption("setuponly", False):
        return
    judges = (model for job in jobs for model in job.judges)
    if missing := config.stash[PLANNER].missing_keys({job.plan for job in jobs}, judges):
        _refuse(session, *missing)
        return
    predicted = config.stash[PLANNER].predicted
    budget, workspaces = Budget(settings.max_cost), Workspaces()
    config.add_cleanup(workspaces.close)  # after the last fixture is torn down: it may look at what the run left
    services = _services(config, settings, workspaces, budget, workers, channel, report, concurrency)
    view = _view(config, budget, len(jobs)) if report is not None else _unseen
    ahead = RunAhead(
        session, functools.partial(execute, services), concurrency, close=services.close, tick=view, channel=channel
    )
    if predicted is not None:
        ahead.shared.append(predicted.predictions)
    warnings = list(_warnings(jobs, predicted))
    if report is not None:
        report.budget = budget
        report.warnings += warnings
    elif channel is not None and warnings:
        channel.send(("warnings", warnings))
    logging.getLogger().addHandler(handler := RunLogHandler())
    config.add_cleanup(lambda: logging.getLogger().removeHandler(handler))
    config.add_cleanup(ahead.engine.close)
    config.stash[AHEAD] = ahead
    config.stash[STRICT], config.stash[OUTPUT] = settings.strict, settings.output
    config.pluginmanager.register(ahead, "agentbench-ahead")
    config.pluginmanager.register(CaseReports(workspaces), "agentbench-case-reports")


def _warnings(jobs: list[Job], predicted: Predicted | None) -> Iterator[str]:
    if any(job.plan.run_profile.sandbox == "local" for job in jobs):
        yield "sandbox: local: commands of agents run on this machine without isolation"
    if any(job.plan.model_id == NO_MODEL and job.plan.predictions is None for job in jobs):
        yield "no model was named, so cases were skipped: name one with --model, or override agentbench_runner"
    if predicted is not None:
        yield from predicted.warnings(max(job.repetition for job in jobs))


def _concurrency(settings: Settings, jobs: list[Job]) -> int:
    profiles = {id(job.plan): job.plan.run_profile.execution_policy.max_concurrency for job in jobs}
    return settings.concurrency or max(profiles.values(), default=1)


def _refuse(session: pytest.Session, *reasons: str) -> None:
    """Ends the session before anything runs."""
    session.items.clear()  # pytest_collection_finish comes all the same
    if not hasattr(session.config, "workerinput"):
        raise pytest.UsageError("\n".join(reasons))
    session.shouldfail = "; ".join(reasons)  # xdist takes a usage error in a worker for a crash


def _services(
    config: pytest.Config,
    settings: Settings,
    workspaces: Workspaces,
    budget: Budget,
    workers: int,
    channel: Any,
    report: SessionReport | None,
    concurrency: int,
) -> Services:
    from pytest_agentbench.models import Scripts

    registry, scripts = config.stash[PLANNER].registry, Scripts()

    def connect() -> Endpoints:
        from pytest_agentbench.models import Endpoints

        return Endpoints(
            share=workers, scripts=scripts, concurrency=concurrency * workers, providers=registry.providers
        )

    def spent(costs: list[float | None]) -> None:
        if channel is not None:
            for cost in costs if budget.max_cost is not None else ():
                channel.send(("spent", cost))
        elif reason := budget.spend(*costs):
            if report is not None:
                report.halted = reason
            config.stash[AHEAD].halt(reason)

    reuse = not settings.no_reuse
    return Services(
        registry,
        workspaces,
        scripts,
        connect,
        spent,
        reuse_runs=reuse,
        reuse_evaluations=reuse and not settings.rejudge,
    )


def _view(config: pytest.Config, budget: Budget, total: int) -> Any:
    """Draws the status line while pytest waits."""
    status, begun = StatusLine.of_session(config), time.perf_counter()
    config.add_cleanup(status.close)

    def tick(engine: LookAhead | None) -> None:
        if engine is None:
            status.clear()
            return
        status.show(
            lambda: Progress(
                done=max(0, engine.at - 1) + len(engine.done),
                total=total,
                in_flight=len(engine.running),
                elapsed_seconds=time.perf_counter() - begun,
                cost_usd=budget.spent or None,
                partial_cost=budget.unknown > 0,
            )
        )

    return tick


def _unseen(engine: LookAhead | None) -> None:
    """Workers draw nothing."""
