"""Start a session with cases: a builder makes its parts in order, up to the engine that runs cases ahead of pytest."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_agentbench.collection.items import MARKED, OUTPUT, PLANNER, STRICT, deselect, item_name
from pytest_agentbench.collection.preconditions import bound_by_open_files, find_problems, find_warnings
from pytest_agentbench.collection.reporting import CaseReports, Messages, SessionMessages, WorkerMessages
from pytest_agentbench.collection.store_plugins import StoreLayout, StoreWait
from pytest_agentbench.config.root_search import find_project
from pytest_agentbench.engine.budget import Signals, over_budget
from pytest_agentbench.engine.driver import AHEAD, JOB, Origins, RunAhead
from pytest_agentbench.engine.execution import execute
from pytest_agentbench.engine.identities import Identities
from pytest_agentbench.engine.job import Job, Result
from pytest_agentbench.engine.lookahead import LookAhead, RunLimits
from pytest_agentbench.engine.services import Services, SessionRules
from pytest_agentbench.engine.user_code import PlainImports, RunLogHandler, Streams
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.run import Usage
from pytest_agentbench.session import BEGAN
from pytest_agentbench.terminal_text import visible

if TYPE_CHECKING:
    from pytest_agentbench.engine.agent_code import CodeReader
    from pytest_agentbench.engine.limits import WorkerThrottles
    from pytest_agentbench.models.batches.collector import Batches
    from pytest_agentbench.models.client import Endpoints
    from pytest_agentbench.options import Settings
    from pytest_agentbench.reports.progress import Progress, StatusLine
    from pytest_agentbench.reports.telemetry.sending import Telemetry
    from pytest_agentbench.secrets.redaction import Redactor
    from pytest_agentbench.session import SessionReport
    from pytest_agentbench.workspaces.sessions import Workspaces


def select_items(session: pytest.Session, items: list[pytest.Item], *, dry_run: bool) -> None:
    """Attach cases to marked tests, and deselect items: in a dry run all tests that are no cases."""
    planner = session.config.stash[PLANNER]
    if session.config.stash.get(MARKED, False):
        from pytest_agentbench.collection.marks import attach_jobs

        attach_jobs(items)
    try:
        deselect(session.config, items, planner, cases_only=dry_run)
    except ConfigError as error:
        _refuse(session, str(error))
    problem = planner.problem or (planner.predicted and planner.predicted.problem)
    if problem is None and not session.testsfailed:  # an invalid file may declare the variant
        problem = planner.find_unknown_variant()
    if problem:
        _refuse(session, problem)


def start_engine(session: pytest.Session, settings: Settings, report: SessionReport | None) -> None:
    """Start the engine, after -k, -m, --lf and all other deselection. `report` is None in xdist's workers.

    Raises UsageError before any run starts if the session cannot run, for example without a key.
    """
    builder = SessionBuilder(session, settings, report)
    builder.announce_cases()
    left_out = builder.planner.left_out
    if not session.items and not session.testsfailed and left_out:
        _refuse(session, *left_out)  # no other message explains why there is nothing to run
    config = session.config
    if not builder.jobs or config.getoption("collectonly") or config.getoption("setuponly", False):
        return
    if problems := find_problems(config, settings, session.items, builder.jobs):
        _refuse(session, *problems, *left_out)
        return
    try:
        builder.build()
    except ConfigError as error:
        _refuse(session, str(error))


def describe_columns(items: list[pytest.Item]) -> list[str]:
    """Return the line on the difference that the session's columns can show; [] if nothing is compared."""
    jobs = [item.stash[JOB] for item in items if JOB in item.stash]
    if len({id(job.plan) for job in jobs}) < 2:
        return []
    from pytest_agentbench.collection.power import describe_power

    sentence = describe_power(jobs)
    return [] if sentence is None else [f"agentbench: {sentence}"]


class SessionBuilder:
    """Builds the parts of a session with cases. Each step uses parts of earlier steps only.

    The order has one knot: the engine runs jobs with the services, and the services ask the engine about its state.
    So the engine is made first and gets its work in the last step, before its thread starts.
    """

    messages: Messages
    throttles: WorkerThrottles | None
    ahead: RunAhead
    services: Services

    def __init__(self, session: pytest.Session, settings: Settings, report: SessionReport | None) -> None:
        self.session, self.settings, self.report = session, settings, report
        self.config = session.config
        self.planner = session.config.stash[PLANNER]
        self.store = self.planner.store
        self.jobs = [item.stash[JOB] for item in session.items if JOB in item.stash]
        self.channel, self.workers = _find_controller(session.config)
        self.limits = _read_limits(settings, self.jobs, self.workers)
        self.max_cost = settings.max_cost
        self.batched = bool(settings.batch) or any(map(_names_batches, self.jobs))

    def announce_cases(self) -> None:
        """Send the controller the number of cases. The message precedes xdist's own on the same channel."""
        if self.channel is not None:
            self.channel.send(("cases", len(self.jobs), self.limits.concurrency, self._list_models()))

    def _list_models(self) -> list[str]:
        """Return the models of the runs with their variants, in their order."""
        return [*dict.fromkeys(job.plan.column for job in self.jobs)]

    def build(self) -> None:
        """Build all parts and register them with pytest. Raises ConfigError if the session cannot start."""
        limit_warnings = bound_by_open_files(self.limits, self.jobs)
        self.messages = self._make_messages()
        on_ended = self._send_spans()
        self.throttles = self._make_throttles()
        self.ahead = self._make_engine()
        self.services = self._make_services(on_ended)
        self._warn(limit_warnings)
        self._register_plugins()
        self._serve()

    def _make_messages(self) -> Messages:
        if self.report is not None:
            return SessionMessages(self.report)
        return WorkerMessages(self.channel)

    def _send_spans(self) -> Callable[[Job, Result], None] | None:
        if not self.settings.otel or self.settings.dry_run:
            return None
        return send_spans(self.config, _session_id(self.config), self.store.redactor, self.messages)

    def _make_throttles(self) -> WorkerThrottles | None:
        if self.channel is None:
            return None
        from pytest_agentbench.engine.limits import WorkerThrottles

        return WorkerThrottles(self.channel.send)

    def _make_engine(self) -> RunAhead:
        ahead = RunAhead(
            self.session,
            self.limits,
            warn=self.messages.warn,
            channel=self.channel,
            throttles=self.throttles,
            grace=self.settings.grace,
        )
        ahead.shared += {job.plan.predictions for job in self.jobs if job.plan.predictions is not None}
        if isinstance(self.messages, WorkerMessages):
            self.messages.ahead = ahead
        self.config.stash[AHEAD] = ahead
        self.config.add_cleanup(ahead.engine.close)  # here too: an error of a later step leaves no event loop open
        return ahead

    def _make_services(self, on_ended: Callable[[Job, Result], None] | None) -> Services:
        settings, engine = self.settings, self.ahead.engine
        self.store.warn = self.messages.warn
        rules = SessionRules(
            drain=self.messages.drain,
            drained=lambda: engine.drained,
            coming=lambda: engine.coming,
            on_ended=on_ended,
            reuse_runs=not settings.no_reuse,
            strict=settings.strict,
        )
        if settings.dry_run:
            from pytest_agentbench.engine.forecast import DryRun

            rules.dry_run = DryRun()
        return Services(
            registry=self.planner.registry,
            workspaces=_open_workspaces(self.config),
            connect=self._connect,
            on_spent=self.messages.spent,
            over_budget=self._is_over_budget,
            identities=Identities(self._make_code_reader, self.messages.warn),
            redactor=self.store.redactor,
            output=settings.output,
            subjects=tuple(self.planner.subjects),
            reuse_evaluations=not (settings.no_reuse or settings.rejudge),
            cassette_mode=settings.cassettes,
            session_id=_session_id(self.config),
            batched=self.batched,
            rules=rules,
        )

    def _is_over_budget(self, usage: Usage) -> str | None:
        """Return why a run with this usage may send no further request, None if it may."""
        return over_budget(self.max_cost, self.settings.max_tokens, usage)

    def _limit_cost(self, usd: float) -> None:
        self.max_cost = usd

    def _operate(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request of `agentbench sessions` about the runs of this process. Callable from any thread."""
        from pytest_agentbench.collection.operations import Operations

        return Operations(self.ahead, self.services, self.jobs, self._limit_cost).answer(request)

    def _connect(self) -> Endpoints:
        """Return the endpoints of all models; called on the engine's loop when the first model is asked."""
        from pytest_agentbench.models.client import Endpoints
        from pytest_agentbench.models.learning import LEARNED

        shared = None
        if self.throttles is not None:
            shared = functools.partial(self.throttles.of_model, self.limits.total)
        return Endpoints(
            scripts=self.services.scripts,
            concurrency=self.limits.concurrency,
            providers=self.planner.registry.providers,
            shared=shared,
            tell=self._warn_redacted,
            tell_limited=self.messages.limited,
            learned=self.store.output / LEARNED,
            batches=self._make_batches if self.batched else None,
        )

    def _make_batches(self) -> Batches:
        from pytest_agentbench.models.batches.collector import Batches

        return Batches(
            self.settings.output,
            every=self.settings.batch,
            wait=self.settings.batch_wait,
            park=lambda run, waits: self.ahead.engine.park(run, waits=waits),
            foresee=None if self.settings.max_cost is None else self._reserve,
            tell=self._warn_redacted,
        )

    def _reserve(self, usd: float) -> None:
        """Book the expected cost of a batch, in US dollars."""
        self.messages.spent("batch", [Usage(cost_usd=usd, total_tokens=0)])

    def _warn_redacted(self, text: str) -> None:
        self.messages.warn(self.store.redactor.text(text))

    def _make_code_reader(self) -> CodeReader:
        from pytest_agentbench.engine.agent_code import CodeReader

        return CodeReader(_find_code_folder(self.config), self.config.stash[BEGAN])

    def _warn(self, limit_warnings: list[str]) -> None:
        """Report all warnings, and attach the engine to the session's report."""
        planner = self.planner
        if self.report is not None:
            self.report.attach(self.ahead, self.services.rules.dry_run)
            self.report.operate = self._operate
        is_idle = self.settings.metric is not None and not planner.decides_rows
        self.messages.warn(
            *find_warnings(self.jobs, planner.predicted, is_idle_metric=is_idle),
            *limit_warnings,
            *planner.left_out,
            *planner.unasked,
            *planner.doubts,
        )
        if any(job.plan.variant_name is not None for job in self.jobs):
            from pytest_agentbench.collection.variants import describe_variants

            self.messages.add_variants(self.store.redactor.value(describe_variants(self.jobs)))
        if self.report is not None and not self.settings.dry_run:
            self.report.expect(len(self.jobs), self._list_models())

    def _register_plugins(self) -> None:
        """Register the session's plugins, and the steps at its end. pytest runs cleanups in reverse order."""
        config, settings, plugins = self.config, self.settings, self.config.pluginmanager
        logging.getLogger().addHandler(handler := RunLogHandler())
        config.add_cleanup(lambda: logging.getLogger().removeHandler(handler))
        config.add_cleanup(PlainImports().install())
        config.add_cleanup(self.store.close)  # runs after the engine's, which writes to the store
        config.add_cleanup(self.ahead.engine.close)
        config.stash[STRICT], config.stash[OUTPUT] = settings.strict, settings.output
        if settings.dry_run and plugins.has_plugin("lfplugin"):
            plugins.unregister(name="lfplugin")  # it has selected items; it must not store the outcome of a dry run
        plugins.register(Origins(self.services.identities), "agentbench-origins")
        plugins.register(self.ahead, "agentbench-ahead")
        config.add_cleanup((streams := Streams(captured=config.getoption("capture", "no") in ("fd", "sys"))).close)
        streams.guard()
        reports = CaseReports(self.services.workspaces, streams, keep=settings.keep_workspaces)
        plugins.register(reports, "agentbench-case-reports")
        if not settings.dry_run:
            plugins.register(StoreLayout(self.store.documents, len(self.jobs)))
        if self.store.remote is not None:
            plugins.register(StoreWait(self.store.remote, self.messages.unshared))
        Signals(self.messages.ended).install(self.session)
        if self.channel is not None:
            from pytest_agentbench.distributed.shares import ReportPacker

            plugins.register(ReportPacker())

    def _serve(self) -> None:
        """Connect the engine and the services. From here on the controller may send a share."""
        work = functools.partial(execute, self.services)
        self.ahead.operate = self._operate
        self.ahead.serve(work, close=self._close, tick=self._make_progress_view())

    async def _close(self) -> None:
        """Close the services that runs share. Warn of stored documents with a wrong signature: all are counted now."""
        signer = self.store.signer
        if signer is not None and (refused := signer.describe_refused()) is not None:
            self.messages.warn(refused)
        await self.services.close()

    def _make_progress_view(self) -> Callable[[LookAhead | None], None]:
        """Return a function that draws the status line and writes progress to the journal; it does nothing in workers.

        pytest's thread calls it with the engine while it waits, and with None before it goes on.
        """
        report = self.report
        if report is None:
            return lambda engine: None
        status, begun, budget = _open_status_line(self.config), time.perf_counter(), report.open_budget()

        def tick(engine: LookAhead | None) -> None:
            if engine is None:
                if status is not None:
                    status.clear()
                return
            done = engine.ended
            if report.journal is not None:
                running = (item_name(job.case_id, job.plan.column, job.repetition) for job in [*engine.running])
                report.journal.progress(done, len(engine.running), running)
            if report.json_lines is not None:
                report.json_lines.progress(done, len(engine.running), report.known_usd())
            if status is not None:
                status.show(lambda: describe(engine, done))

        def describe(engine: LookAhead, done: int) -> Progress:
            from pytest_agentbench.reports.progress import Progress

            return Progress(
                done=done,
                total=len(self.jobs),
                in_flight=len(engine.running),
                elapsed_seconds=time.perf_counter() - begun,
                cost_usd=budget.spent or None,
                partial_cost=budget.unknown > 0 or budget.unsettled > 0,
                waiting_for=self.services.describe_pauses(),
            )

        return tick


def send_spans(
    config: pytest.Config, session_id: str, redactor: Redactor, messages: Messages
) -> Callable[[Job, Result], None] | None:
    """Return a function that sends the spans of an ended job, on the engine's thread; None if OTEL_SDK_DISABLED is set.

    Raises ConfigError if the SDK refuses the values of the OTEL_* variables.
    """
    from pytest_agentbench.reports.telemetry.spans import is_disabled

    if is_disabled(os.environ):
        return None
    from pytest_agentbench.reports.telemetry.sending import Telemetry

    worker = getattr(config, "workerinput", {}).get("workerid")
    place = f"OpenTelemetry, worker {worker}" if worker is not None else "OpenTelemetry"
    try:
        telemetry = Telemetry(session_id, redactor, lambda problem: messages.warn(f"{place}: {problem}"))
    except Exception as error:  # of any type: the SDK and the exporters that it loads by name read the variables
        raise ConfigError(
            f"--agentbench-otel: the SDK refuses the OTEL_* variables: {redactor.text(str(error))}"
        ) from error
    config.pluginmanager.register(telemetry, "agentbench-telemetry")

    def ended(job: Job, result: Result) -> None:
        try:
            _send_job(telemetry, job, result)
        except Exception as error:  # noqa: BLE001  # a run that is paid for must not fail by its spans
            messages.warn(f"{place}: the spans of {job.case_id} cannot be made: {redactor.text(repr(error))}")

    return ended


def _send_job(telemetry: Telemetry, job: Job, result: Result) -> None:
    """Send the new parts of a job: its run, or only a new verdict on a stored run."""
    artifact, evaluation = result.artifact, result.evaluation
    if artifact is None or result.not_run is not None:
        return
    if result.reused and (evaluation is None or result.evaluation_reused):
        return
    redact = job.plan.model_store.redact_record
    telemetry.run(
        redact(artifact), evaluation and redact(evaluation), job.plan.model or job.plan.author, reused=result.reused
    )


def _find_controller(config: pytest.Config) -> tuple[Any, int]:
    """Return a worker's channel to its controller and the number of workers; (None, 1) in the only process."""
    worker_input = getattr(config, "workerinput", None)
    if worker_input is None:
        return None, 1
    from pytest_agentbench.distributed.shares import CHANNEL
    from pytest_agentbench.engine.limits import steady_socket

    if (channel := worker_input.get(CHANNEL)) is None:
        return None, 1
    steady_socket(channel.gateway)
    return channel, worker_input["workercount"]


def _open_workspaces(config: pytest.Config) -> Callable[[], Workspaces]:
    """Return a function that makes the session's workspaces at its first call, and returns them."""

    @functools.cache
    def open_once() -> Workspaces:
        from pytest_agentbench.workspaces.sessions import Workspaces

        workspaces = Workspaces()
        opened.callback(workspaces.close)
        return workspaces

    opened = contextlib.ExitStack()
    config.add_cleanup(opened.close)  # after the teardown of the last fixture, which may read a run's files
    return open_once


def _read_limits(settings: Settings, jobs: list[Job], workers: int) -> RunLimits:
    profiles = {job.plan.run_profile.run_profile_id: job.plan.run_profile for job in jobs}
    most = {name: profile.execution_policy.max_concurrency for name, profile in profiles.items()}
    if settings.concurrency is not None:
        return RunLimits(settings.concurrency, {}, workers)
    return RunLimits(max(most.values(), default=1), most, workers)


def _names_batches(job: Job) -> bool:
    models = (job.plan.model, *job.plan.judges.values(), *job.judges)
    return any(model is not None and model.batch is not None for model in models)


def _refuse(session: pytest.Session, *reasons: str) -> None:
    """End the session before any run starts. Raises UsageError, except in workers."""
    session.items.clear()  # pytest calls pytest_collection_finish even after an error
    if not hasattr(session.config, "workerinput"):
        raise pytest.UsageError(visible("\n".join(reasons)))
    session.shouldfail = visible("; ".join(reasons))  # xdist treats a usage error in a worker as a crash


def _find_code_folder(config: pytest.Config) -> Path:
    """Return the folder to which paths of agents' sources are relative: the project of the outermost conftest.py.

    So an agent has one identity in all folders that pytest is started in. pytest's rootdir depends on its arguments if
    there is no ini-file.
    """
    names = (name for name, _ in config.pluginmanager.list_name_plugin())
    conftests = [Path(name).parent for name in names if os.path.basename(name) == "conftest.py"]
    folder = min(conftests, key=lambda path: len(path.parts), default=config.rootpath)
    return Path(find_project(str(folder)) or folder)


def _session_id(config: pytest.Config) -> str:
    """Return 12 characters that all workers of a session share, and that no other session has."""
    run_id = getattr(config, "workerinput", {}).get("testrunuid")
    return str(run_id or uuid.uuid4().hex)[:12]


def _open_status_line(config: pytest.Config) -> StatusLine | None:
    """Return the line that shows progress, None if standard output is no terminal."""
    if sys.__stdout__ is None or sys.__stdout__.closed or not sys.__stdout__.isatty():
        return None
    from pytest_agentbench.reports.progress import StatusLine

    status = StatusLine.of_session(config)
    config.add_cleanup(status.close)
    return status
