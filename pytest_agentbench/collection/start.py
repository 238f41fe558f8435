"""Start a session with cases: its engine, that runs ahead of the items, its shared store, its spans."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_agentbench.bounded.locks import allow_open_files
from pytest_agentbench.collection.items import MARKED, OUTPUT, PLANNER, STRICT, deselect, item_name
from pytest_agentbench.collection.planning import NO_MODEL
from pytest_agentbench.collection.reporting import CaseReports, Messages, SessionMessages, WorkerMessages
from pytest_agentbench.config.root_search import find_project
from pytest_agentbench.engine.agent_code import CodeReader
from pytest_agentbench.engine.budget import Signals, over_budget
from pytest_agentbench.engine.driver import AHEAD, JOB, Origins, RunAhead
from pytest_agentbench.engine.execution import execute
from pytest_agentbench.engine.identities import Identities
from pytest_agentbench.engine.job import Job, Work
from pytest_agentbench.engine.lookahead import RunLimits
from pytest_agentbench.engine.services import Services, SessionRules
from pytest_agentbench.engine.user_code import PlainImports, RunLogHandler, Streams
from pytest_agentbench.errors import AgentbenchError, ConfigError, InfrastructureError
from pytest_agentbench.records.base import SANDBOXES
from pytest_agentbench.records.run import Usage
from pytest_agentbench.reports.rows import ARTIFACT_PROPERTY
from pytest_agentbench.session import BEGAN
from pytest_agentbench.store.documents import Signer
from pytest_agentbench.store.output_folder import refuse_links
from pytest_agentbench.terminal_text import visible

if TYPE_CHECKING:
    from pytest_agentbench.collection.predicted import Predicted
    from pytest_agentbench.engine.job import Result
    from pytest_agentbench.engine.limits import WorkerThrottles
    from pytest_agentbench.engine.lookahead import LookAhead
    from pytest_agentbench.models.batches.collector import Batches
    from pytest_agentbench.models.client import Endpoints
    from pytest_agentbench.options import Settings
    from pytest_agentbench.reports.progress import Progress, StatusLine
    from pytest_agentbench.reports.telemetry.sending import Telemetry
    from pytest_agentbench.secrets.redaction import Redactor
    from pytest_agentbench.session import SessionReport
    from pytest_agentbench.store.database import Documents
    from pytest_agentbench.store.remote import Remote
    from pytest_agentbench.workspaces.sessions import Workspaces


MOST_LAID_OUT = 1_000
"""Of how many runs at most a session makes files at its end: more would take longer than the database saves."""

_log = logging.getLogger(__name__)


class StoreWait:
    """The wait, at a session's end, until all results are in the shared store; `tell` is told where some are not.

    `reporter` shows what is waited for, where that takes more than a moment; xdist's workers have none.
    """

    def __init__(
        self, remote: Remote, tell: Callable[[str], None], reporter: pytest.TerminalReporter | None = None
    ) -> None:
        self.remote, self.tell, self.reporter = remote, tell, reporter

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, Any, Any]:
        """Registered after the engine, so that nothing is in flight any more when this wrapper goes on."""
        try:
            return (yield)
        finally:
            try:
                problem = self.remote.close(self._say)
            except KeyboardInterrupt:
                self.tell(self.remote.describe_unsent())
                raise
            if problem is not None:
                self.tell(problem)

    def _say(self, text: str) -> None:
        if self.reporter is not None:
            self.reporter.ensure_newline()
            self.reporter.write_line(text)


class StoreLayout:
    """The files of the documented layout, made in the background while the reports are written.

    Of a session of more than `MOST_LAID_OUT` runs they are those of failed runs, whose reports name them.
    """

    def __init__(self, documents: Documents, runs: int) -> None:
        self.documents, self._failed = documents, set[str]()
        if runs <= MOST_LAID_OUT:
            documents.note_use()
        self._maker = threading.Thread(target=self._lay_out, name="agentbench-layout", daemon=True)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, Any, Any]:
        """Begin once nothing is in flight any more."""
        try:
            return (yield)
        finally:
            self._maker.start()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note where a failed run lies."""
        if report.failed and len(self._failed) < MOST_LAID_OUT:
            paths = (str(value) for name, value in report.user_properties if name == ARTIFACT_PROPERTY)
            self._failed.update(path.rpartition("/")[0] for path in paths)

    def pytest_unconfigure(self) -> None:
        """Wait until all are made."""
        if self._maker.ident is not None:
            self._maker.join()

    def _lay_out(self) -> None:
        try:
            self.documents.lay_out_used(self._failed)
        except OSError as error:  # what they would show is in the database
            _log.warning("%s: the files of runs and verdicts could not be made: %s", self.documents.output, error)


def send_spans(
    config: pytest.Config, session_id: str, redactor: Redactor, telling: Messages
) -> Callable[[Job, Result], None] | None:
    """Return what takes each job that has ended, on the engine's thread; None where OTEL_SDK_DISABLED switches spans
    off.

    Raises ConfigError where the SDK refuses what the OTEL_* variables say.
    """
    from pytest_agentbench.reports.telemetry.spans import is_disabled

    if is_disabled(os.environ):
        return None
    from pytest_agentbench.reports.telemetry.sending import Telemetry

    worker = getattr(config, "workerinput", {}).get("workerid")
    where = f"OpenTelemetry, worker {worker}" if worker is not None else "OpenTelemetry"
    try:
        telemetry = Telemetry(session_id, redactor, lambda problem: telling.warn(f"{where}: {problem}"))
    except Exception as error:  # of any kind: the SDK, and what it loads by a name, read the variables
        raise ConfigError(f"the SDK refuses what OTEL_* variables say: {redactor.text(str(error))}") from error
    config.pluginmanager.register(telemetry, "agentbench-telemetry")

    def ended(job: Job, result: Result) -> None:
        try:
            _send_job(telemetry, job, result)
        except Exception as error:  # noqa: BLE001  # a run that is paid for never fails for its spans
            telling.warn(f"{where}: the spans of {job.case_id} cannot be made: {redactor.text(repr(error))}")

    return ended


def _send_job(telemetry: Telemetry, job: Job, result: Result) -> None:
    """Send what is new of the job: its run, or only a verdict on one that was made before."""
    artifact, evaluation = result.artifact, result.evaluation
    if artifact is None or result.not_run is not None:
        return
    if result.reused and (evaluation is None or result.evaluation_reused):
        return
    shown = job.plan.model_store.redact_record
    telemetry.run(
        shown(artifact), evaluation and shown(evaluation), job.plan.model or job.plan.author, reused=result.reused
    )


_SESSION_FILES, _RUN_FILES, _PROGRAM_FILES, _MOST_FILES = 64, 4, 12, 64
"""How many files a session has open, a run, the programs of a run; and what a run gets where there are as many."""


def select_items(session: pytest.Session, items: list[pytest.Item], *, dry_run: bool) -> None:
    """Give marked tests their cases and deselect what is not to run: in a dry run, all that is no case."""
    planner = session.config.stash[PLANNER]
    if session.config.stash.get(MARKED, False):
        from pytest_agentbench.collection.marks import attach_jobs

        attach_jobs(items)
    try:
        deselect(session.config, items, planner, cases_only=dry_run)
    except ConfigError as error:
        _refuse(session, str(error))
    if problem := planner.problem or (planner.predicted and planner.predicted.problem):
        _refuse(session, problem)


def start_engine(session: pytest.Session, settings: Settings, report: SessionReport | None) -> None:
    """Start the engine, once -k, -m, --lf and every other deselection are done. `report` is None in xdist's workers.

    Raises UsageError for what cannot run at all, a missing key for one, before anything does.
    """
    config = session.config
    jobs = [item.stash[JOB] for item in session.items if JOB in item.stash]
    channel, workers = _find_controller(config)
    limits = _read_limits(settings, jobs, workers)
    if channel is not None:
        channel.send(("cases", len(jobs), limits.concurrency))  # precedes xdist's own message on the same wire
    if not session.items and not session.testsfailed and (left_out := config.stash[PLANNER].left_out):
        _refuse(session, *left_out)  # nobody else would say why there is nothing
    if not jobs or config.getoption("collectonly") or config.getoption("setuponly", False):
        return
    if problems := _find_problems(config, settings, session.items, jobs):
        _refuse(session, *problems, *config.stash[PLANNER].left_out)
        return
    narrowed = _bound_by_open_files(limits, jobs)
    telling = SessionMessages(report) if report is not None else WorkerMessages(channel, lambda: config.stash[AHEAD])
    workspaces = _open_workspaces(config)
    throttles = None
    if channel is not None:
        from pytest_agentbench.engine.limits import WorkerThrottles

        throttles = WorkerThrottles(channel.send)
    batched = settings.batch or any(map(_names_batches, jobs))
    services = _make_services(config, settings, workspaces, limits, telling, throttles, batched)
    if settings.otel and not settings.dry_run:
        try:
            services.rules.on_ended = send_spans(config, _session_id(config), services.redactor, telling)
        except ConfigError as error:
            _refuse(session, f"--agentbench-otel: {error}")
            return
    view = _show_progress(config, report, len(jobs), services) if report is not None else _show_nothing
    work: Work = functools.partial(execute, services)
    close = functools.partial(_end_shared, services, config.stash[PLANNER].store.signer, telling)
    ahead = RunAhead(
        session,
        work,
        limits,
        close=close,
        tick=view,
        warn=telling.warn,
        channel=channel,
        throttles=throttles,
        grace=settings.grace,
    )
    predicted = config.stash[PLANNER].predicted
    ahead.shared += {job.plan.predictions for job in jobs if job.plan.predictions is not None}
    if report is not None:
        report.attach(ahead, services.rules.dry_run)
    planner = config.stash[PLANNER]
    is_idle = settings.metric is not None and not planner.decides_rows
    telling.warn(
        *_find_warnings(jobs, predicted, is_idle_metric=is_idle),
        *narrowed,
        *planner.left_out,
        *planner.unasked,
        *planner.doubts,
    )
    if report is not None and not settings.dry_run:
        report.expect(len(jobs))
    _register_plugins(config, settings, ahead, services, telling, len(jobs))
    Signals(telling.ended).install(session)
    if channel is not None:
        from pytest_agentbench.distributed.shares import ReportPacker

        config.pluginmanager.register(ReportPacker())


def _find_controller(config: pytest.Config) -> tuple[Any, int]:
    """Return a worker's channel to its controller and how many workers there are; (None, 1) in the only process."""
    told = getattr(config, "workerinput", None)
    if told is None:
        return None, 1
    from pytest_agentbench.distributed.shares import CHANNEL
    from pytest_agentbench.engine.limits import steady_socket

    if (channel := told.get(CHANNEL)) is None:
        return None, 1
    steady_socket(channel.gateway)
    return channel, told["workercount"]


def _open_workspaces(config: pytest.Config) -> Callable[[], Workspaces]:
    """Return what gives the session's workspaces, made for the first run that needs one."""

    @functools.cache
    def open_them() -> Workspaces:
        from pytest_agentbench.workspaces.sessions import Workspaces

        workspaces = Workspaces()
        opened.callback(workspaces.close)
        return workspaces

    opened = contextlib.ExitStack()
    config.add_cleanup(opened.close)  # after the last fixture is torn down: it may look at what the run left
    return open_them


async def _end_shared(services: Services, signer: Signer | None, telling: Messages) -> None:
    """End what runs share, and tell what of the store was not taken, whose number is known by then."""
    if signer is not None and (said := signer.describe_refused()) is not None:
        telling.warn(said)
    await services.close()


def _find_problems(config: pytest.Config, settings: Settings, items: list[pytest.Item], jobs: list[Job]) -> list[str]:
    """Return what keeps the whole session from running: missing keys or packages, a shared store that cannot be had."""
    planner = config.stash[PLANNER]
    if problem := _refuse_repeats(config, items):
        return [problem]
    if settings.otel:
        from pytest_agentbench.reports.telemetry.spans import otel_problem

        if (problem := otel_problem(os.environ)) is not None:
            return [problem]
    judges = (model for job in jobs for model in job.judges)
    if not settings.dry_run and (missing := planner.missing_keys({job.plan for job in jobs}, judges)):
        return missing
    try:
        if settings.output.is_file():  # before a run is paid for that cannot be kept
            return [f"--agentbench-output: found the file {settings.output.name}, expected a folder"]
        refuse_links(settings.output)
        if planner.store.remote is not None:
            planner.store.remote.open()
    except (ConfigError, InfrastructureError) as error:
        return [str(error)]
    return []


def _refuse_repeats(config: pytest.Config, items: list[pytest.Item]) -> str | None:
    """Say why plugins that multiply tests are refused, where one is asked to: a case's repetitions would be one run."""
    count = config.getoption("count", 1) if config.pluginmanager.has_plugin("repeat") else 1
    if config.getoption("flake_finder_enable", False):
        asked, count = "--flake-finder", config.getoption("flake_runs")
    elif isinstance(count, int) and count > 1:
        asked = f"--count {count}"
    else:
        marked = (item for item in items if JOB in item.stash and item.get_closest_marker("repeat") is not None)
        if (item := next(marked, None)) is None or not config.pluginmanager.has_plugin("repeat"):
            return None
        asked, count = f"{item.nodeid}: @pytest.mark.repeat", "N"
    return f"{asked}: cases have repetitions of their own; say --agentbench-repetitions {count} instead"


def _register_plugins(
    config: pytest.Config, settings: Settings, ahead: RunAhead, services: Services, telling: Messages, runs: int
) -> None:
    """Register what takes part from here on, and what ends with the session."""
    logging.getLogger().addHandler(handler := RunLogHandler())
    config.add_cleanup(lambda: logging.getLogger().removeHandler(handler))
    config.add_cleanup(PlainImports().install())
    store = config.stash[PLANNER].store
    config.add_cleanup(store.close)  # after the engine, which writes to it
    config.add_cleanup(ahead.engine.close)
    config.stash[AHEAD] = ahead
    config.stash[STRICT], config.stash[OUTPUT] = settings.strict, settings.output
    plugins = config.pluginmanager
    if services.rules.dry_run is not None and plugins.has_plugin("lfplugin"):
        plugins.unregister(name="lfplugin")  # it has selected; a dry run is no result that --lf is about
    plugins.register(Origins(services.identities), "agentbench-origins")
    plugins.register(ahead, "agentbench-ahead")
    repetitions = config.stash[PLANNER].repetitions
    config.add_cleanup((streams := Streams(captured=config.getoption("capture", "no") in ("fd", "sys"))).close)
    streams.guard()
    reports = CaseReports(services.workspaces, repetitions, streams, keep=settings.keep_workspaces)
    plugins.register(reports, "agentbench-case-reports")
    if not settings.dry_run:
        plugins.register(StoreLayout(store.documents, runs))
    remote = store.remote
    if remote is not None:
        plugins.register(StoreWait(remote, telling.unshared))


def _find_warnings(jobs: list[Job], predicted: Predicted | None, *, is_idle_metric: bool) -> Iterator[str]:
    sandboxes = [job.plan.run_profile.sandbox_settings for job in jobs]
    if any(each.type == "local" for each in sandboxes):
        yield "sandbox: local: commands of agents run on this machine without isolation"
    for name in sorted({each.type for each in sandboxes} - {*SANDBOXES}):
        from pytest_agentbench.workspaces.sandboxes.base import likeness_of

        if likeness_of(name) == "local":
            yield f"sandbox: {name}: commands of agents run without isolation, as far as its provider says"
    if any(each.type == "bubblewrap" and each.network == "allow" for each in sandboxes):
        from pytest_agentbench.workspaces.sandboxes.bwrap import closes_abstract_sockets

        if not closes_abstract_sockets():
            yield (
                "sandbox: bubblewrap with network: allow: commands reach this machine's abstract unix sockets (D-Bus, "
                "X, agents), which Linux 6.12 with Landlock closes"
            )
    if any(job.plan.model_id == NO_MODEL and job.plan.predictions is None for job in jobs):
        yield "no model was named, so cases were skipped: name one with --model, or override agentbench_runner"
    if is_idle_metric:
        yield (
            "--agentbench-metric: found no row of a dataset, which alone it decides; name metrics of other cases in "
            "their files"
        )
    yield from _list_idle_judges(jobs)
    if predicted is not None:
        yield from predicted.warnings(max(job.repetition for job in jobs))


def _list_idle_judges(jobs: list[Job]) -> Iterator[str]:
    """Yield a warning for each evaluation profile that has judges, which no case of the session asks."""
    profiles = {job.plan.evaluation_profile.evaluation_profile_id: job.plan for job in jobs}
    asked = {job.plan.evaluation_profile.evaluation_profile_id for job in jobs if job.judges}
    for name, plan in profiles.items():
        if name not in asked and plan.evaluation_profile.judges:
            from pytest_agentbench.config.field_doubts import list_idle_judges

            yield from list_idle_judges(plan.evaluation_profile)


def _read_limits(settings: Settings, jobs: list[Job], workers: int) -> RunLimits:
    profiles = {job.plan.run_profile.run_profile_id: job.plan.run_profile for job in jobs}
    most = {name: profile.execution_policy.max_concurrency for name, profile in profiles.items()}
    if settings.concurrency is not None:
        return RunLimits(settings.concurrency, {}, workers)
    return RunLimits(max(most.values(), default=1), most, workers)


def _names_batches(job: Job) -> bool:
    models = (job.plan.model, *job.plan.judges.values(), *job.judges)
    return any(model is not None and model.batch is not None for model in models)


def _bound_by_open_files(limits: RunLimits, jobs: list[Job]) -> list[str]:
    """Let no more runs be in flight than this process can have files open for; returns what to say of that.

    What runs have open was counted at 2 and 16 in flight: a lock and connections, besides that 5 for a command in a
    sandbox and 4 for each MCP server. The rest is room.
    """
    wanted = _SESSION_FILES + _MOST_FILES * limits.concurrency
    allowed = allow_open_files(wanted)
    if allowed >= wanted:
        return []
    each = _RUN_FILES if not any(map(_starts_programs, jobs)) else _RUN_FILES + _PROGRAM_FILES
    most = max(1, (allowed - _SESSION_FILES) // each)
    if most >= limits.concurrency:
        return []
    found, limits.concurrency = limits.concurrency, most
    return [
        f"{most} runs are made at once, not {found}: this process may have no more than {allowed} files open; "
        f"allow more (ulimit -n {_SESSION_FILES + each * found})"
    ]


def _starts_programs(job: Job) -> bool:
    try:
        case = job.case()
    except AgentbenchError:
        return False  # an error of its item
    plain = case.runner.type == "llm_probe" and not (case.tools or case.mcp_servers or case.verify)
    return not plain and job.plan.predictions is None


def _refuse(session: pytest.Session, *reasons: str) -> None:
    """End the session before anything runs."""
    session.items.clear()  # pytest_collection_finish comes all the same
    if not hasattr(session.config, "workerinput"):
        raise pytest.UsageError(visible("\n".join(reasons)))
    session.shouldfail = visible("; ".join(reasons))  # xdist takes a usage error in a worker for a crash


def _find_code_folder(config: pytest.Config) -> Path:
    """Return the folder that paths in what agents hold are told from: an agent is the same wherever pytest is started.

    The project of the outermost conftest.py; pytest's rootdir moves with its arguments where there is no ini-file.
    """
    names = (name for name, _ in config.pluginmanager.list_name_plugin())
    conftests = [Path(name).parent for name in names if os.path.basename(name) == "conftest.py"]
    folder = min(conftests, key=lambda each: len(each.parts), default=config.rootpath)
    return Path(find_project(str(folder)) or folder)


def _make_services(
    config: pytest.Config,
    settings: Settings,
    workspaces: Callable[[], Workspaces],
    limits: RunLimits,
    telling: Messages,
    throttles: WorkerThrottles | None,
    batched: bool,
) -> Services:
    registry, store = config.stash[PLANNER].registry, config.stash[PLANNER].store

    def connect() -> Endpoints:
        from pytest_agentbench.models.client import Endpoints
        from pytest_agentbench.models.learning import LEARNED

        shared = functools.partial(throttles.of_model, limits.total) if throttles is not None else None
        return Endpoints(
            scripts=services.scripts,
            concurrency=limits.concurrency,
            providers=registry.providers,
            shared=shared,
            tell=lambda said: telling.warn(store.redactor.text(said)),
            tell_limited=telling.limited,
            learned=store.output / LEARNED,
            batches=open_batches if batched else None,
        )

    def foresee(usd: float) -> None:
        telling.spent("batch", [Usage(cost_usd=usd, total_tokens=0)])

    def open_batches() -> Batches:
        from pytest_agentbench.models.batches.collector import Batches

        return Batches(
            settings.output,
            every=settings.batch,
            wait=settings.batch_wait,
            park=lambda run, waits: config.stash[AHEAD].engine.park(run, waits=waits),
            foresee=None if settings.max_cost is None else foresee,
            tell=lambda said: telling.warn(store.redactor.text(said)),
        )

    def open_reader() -> CodeReader:
        return CodeReader(_find_code_folder(config), config.stash[BEGAN])

    store.warn = telling.warn
    rules = SessionRules(
        drain=telling.drain,
        drained=lambda: config.stash[AHEAD].engine.drained,
        coming=lambda: config.stash[AHEAD].engine.coming,
        reuse_runs=not settings.no_reuse,
        strict=settings.strict,
    )
    if settings.dry_run:
        from pytest_agentbench.engine.forecast import DryRun

        rules.dry_run = DryRun()
    services = Services(
        registry=registry,
        workspaces=workspaces,
        connect=connect,
        on_spent=telling.spent,
        over_budget=functools.partial(over_budget, settings.max_cost, settings.max_tokens),
        identities=Identities(open_reader, telling.warn),
        redactor=store.redactor,
        output=settings.output,
        subjects=tuple(config.stash[PLANNER].subjects),
        reuse_evaluations=not (settings.no_reuse or settings.rejudge),
        cassette_mode=settings.cassettes,
        session_id=_session_id(config),
        batched=batched,
        rules=rules,
    )
    return services


def _session_id(config: pytest.Config) -> str:
    """Return the same in all workers of a session, and no other session's."""
    named = getattr(config, "workerinput", {}).get("testrunuid")
    return str(named or uuid.uuid4().hex)[:12]


def _show_progress(config: pytest.Config, report: SessionReport, total: int, services: Services) -> Any:
    """Draw the status line while pytest waits, and note in the journal what is under way."""
    status, begun, budget = _open_status_line(config), time.perf_counter(), report.open_budget()

    def tick(engine: LookAhead | None) -> None:
        if engine is None:
            if status is not None:
                status.clear()
            return
        done = max(0, engine.at - 1) + len(engine.done)
        if report.journal is not None:
            running = (item_name(job.case_id, job.plan.model_id, job.repetition) for job in [*engine.running])
            report.journal.progress(done, len(engine.running), running)
        if status is not None:
            status.show(lambda: describe(engine, done))

    def describe(engine: LookAhead, done: int) -> Progress:
        from pytest_agentbench.reports.progress import Progress

        return Progress(
            done=done,
            total=total,
            in_flight=len(engine.running),
            elapsed_seconds=time.perf_counter() - begun,
            cost_usd=budget.spent or None,
            partial_cost=budget.unknown > 0 or budget.unsettled > 0,
            waiting_for=services.describe_pauses(),
        )

    return tick


def _open_status_line(config: pytest.Config) -> StatusLine | None:
    """Return the line that shows progress, None where standard output is no terminal."""
    if sys.__stdout__ is None or sys.__stdout__.closed or not sys.__stdout__.isatty():
        return None
    from pytest_agentbench.reports.progress import StatusLine

    status = StatusLine.of_session(config)
    config.add_cleanup(status.close)
    return status


def _show_nothing(engine: LookAhead | None) -> None:
    """Draw nothing, in workers."""
