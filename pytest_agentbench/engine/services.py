"""Services that the runs of a session share: names, models, sandboxes, and which models get no more runs."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Any

from pytest_agentbench.checks.base import CheckKind
from pytest_agentbench.checks.run import BUILTIN_CHECKS
from pytest_agentbench.config.base import Known
from pytest_agentbench.engine.grading import Grader, GradingServices
from pytest_agentbench.engine.identities import Identities
from pytest_agentbench.engine.job import CHAT_JUDGE
from pytest_agentbench.engine.user_code import DaemonThreads
from pytest_agentbench.errors import UNREACHABLE, ConfigError, ProviderError, UnavailableError, as_alike
from pytest_agentbench.extensions import WithExtensions, extension_names, session_extensions
from pytest_agentbench.metrics.registry import METRICS, Metric
from pytest_agentbench.records.case import CassetteMode
from pytest_agentbench.runners.base import BUILTIN_RUNNERS, Runner
from pytest_agentbench.runners.kinds import RunnerKind, RunnerSession, SessionParts
from pytest_agentbench.secrets.redaction import Redactor
from pytest_agentbench.terminal_text import shorten_text
from pytest_agentbench.tools.builtin import BUILTIN_TOOLS, SEARCH_VARIABLES

if TYPE_CHECKING:
    from pytest_agentbench.engine.forecast import DryRun
    from pytest_agentbench.engine.job import Job, Result
    from pytest_agentbench.engine.servers import SharedServers
    from pytest_agentbench.judging.asking import JudgeBackend
    from pytest_agentbench.models.client import Provider
    from pytest_agentbench.models.routes import Cassettes
    from pytest_agentbench.runners.base import RunContext
    from pytest_agentbench.runners.gateway.listener import Listener
    from pytest_agentbench.tools.base import Search, Tool
    from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
    from pytest_agentbench.workspaces.sessions import Workspaces


@dataclass(frozen=True, eq=False, repr=False)
class Registry:
    """Runners, tools, checks and the like by their names in YAML, and the web search, None without a backend."""

    runners: Mapping[str, Runner]
    tools: Mapping[str, Tool]
    checks: Mapping[str, CheckKind]
    metrics: Mapping[str, Metric]
    judges: Mapping[str, JudgeBackend]
    providers: Mapping[str, Provider]
    graders: Mapping[str, Grader]
    search: Search | None

    def added(self, kind: str, names: Iterable[str | None]) -> dict[str, Any]:
        """Return the things with these names that are not ours: no schema version of ours changes with their code.

        `kind` is `runner`, `check`, `metric`, `judge`, `grader` or `model provider`.
        """
        things, ours, added = self._kinds[kind], self._ours[kind], {}
        for name in names:
            if name is None or name in ours or name not in things:
                continue
            if is_ours(thing := things[name]):
                ours.add(name)  # for good: no other takes the place of one of ours
            else:
                added[name] = thing
        return added

    @cached_property
    def _ours(self) -> Mapping[str, set[str]]:
        return {kind: set() for kind in self._kinds}

    @cached_property
    def _kinds(self) -> Mapping[str, Mapping[str, Any]]:
        return {
            "runner": self.runners,
            "check": self.checks,
            "metric": self.metrics,
            "judge": self.judges,
            "grader": self.graders,
            "model provider": self.providers,
        }

    @cached_property
    def known(self) -> Known:
        """Return the names, for the loader of case files."""
        return Known(
            runners=frozenset(self.runners),
            # files are not checked against built-in runners, which need not be imported for that
            find_runner=lambda name: None if name in BUILTIN_RUNNERS else self.runners.get(name),
            find_check=self.checks.get,
            tools=frozenset(self.tools),
            checks=frozenset(self.checks),
            metrics=frozenset(self.metrics),
            judges=frozenset({CHAT_JUDGE, *self.judges}),
        )


def build_registry(search: Search | None = None) -> Registry:
    """Return the things that are built in or added by packs and the session's plugins, and the session's web search."""
    return Registry(
        runners=WithExtensions("runner", BUILTIN_RUNNERS),
        tools=WithExtensions("tool", BUILTIN_TOOLS),
        checks=WithExtensions("check", BUILTIN_CHECKS),
        metrics=WithExtensions("metric", METRICS),
        judges=WithExtensions("judge", {}),
        providers=WithExtensions("model_provider", {}),
        graders=_find_graders(),
        search=search or _find_search(),
    )


def _find_graders() -> Mapping[str, Grader]:
    """Return the graders to ask about every case: those of plugins, without graders of parts of cases.

    `graders_of` finds the latter by the parts of a case.
    """
    parts = extension_names("case_part")
    return {name: grader for name, grader in session_extensions("grader").items() if name not in parts}


def _find_search() -> Search | None:
    if not any(map(os.environ.get, SEARCH_VARIABLES)):
        return None
    from pytest_agentbench.tools.web_tools import find_search

    return find_search(os.environ)


def is_ours(thing: Any) -> bool:
    """Return whether the thing's code is in this package, under any name."""
    if isinstance(thing, FunctionType):
        module = thing.__globals__.get("__name__")
    else:
        module = thing.__module__ if isinstance(thing, type) else type(thing).__module__
    return str(module).partition(".")[0] == "pytest_agentbench"


IN_A_ROW = 3
"""So many errors of a model with the same text stop it: one may be the case's."""
_REFUSED = frozenset({"authentication", "quota"})
"""Reasons of ends that no other request of the model's would be spared."""
_CLIP = 200


def could_not_run(result: Result) -> bool:
    """Return whether an error kept the run from its end. A failed verdict is no such error."""
    artifact = result.artifact
    return result.error is not None and (artifact is None or artifact.status == "provider_error")


class ModelStops:
    """Counts the errors of each model in the order in which its runs end. For the engine's loop.

    A model here is a plan's: it has one config root, and one fixture if it is the user's own agent.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._rows: dict[Any, tuple[str, int]] = {}
        self._reasons: dict[Any, str] = {}

    def reason(self, job: Job) -> str | None:
        """Return why the job is not run, None if it may run."""
        if self._reasons:
            return self._reasons.get(_model_of(job))
        return None

    def note(self, job: Job, result: Result) -> None:
        """Count the error of a run. Errors by the case file, this machine, a judge or a hook are not the model's."""
        error = result.error if could_not_run(result) else None
        if error is None and not self._rows:  # nearly always
            return
        model = _model_of(job)
        # These errors are not the model's: its next case may succeed
        if isinstance(error, (ConfigError, UnavailableError)) or model in self._reasons:
            return
        if error is None:
            # A run that ended shows that the model works: errors of other runs are then their cases'
            self._rows.pop(model, None)
            return
        if isinstance(error, ProviderError):
            # If the endpoint is down, the client has waited already, and each further run would wait as long. A missing
            # permission of the key and an empty account fail all further runs.
            if error.code == UNREACHABLE or error.reason in _REFUSED:
                self._stop(job, str(error))
                return
            if error.retryable or error.reason == "request_refused":
                return  # requests wait for the end of an outage; other requests may not be refused
        text, before = as_alike(str(error)), self._rows.get(model, ("", 0))
        count = before[1] + 1 if before[0] == text else 1
        self._rows[model] = (text, count)
        profile = job.plan.run_profile
        if count >= IN_A_ROW and profile.execution_policy.stop_on_runner_error:
            by = f"execution_policy.stop_on_runner_error of run profile {profile.run_profile_id!r}"
            self._stop(job, f"{count} equal errors in a row ({by}): {error}")

    def _stop(self, job: Job, why: str) -> None:
        line = " ".join(self._redact(why).split())
        self._reasons[_model_of(job)] = f"{job.plan.model_id} is stopped: {shorten_text(line, _CLIP)}"


def _model_of(job: Job) -> Any:
    return id(job.plan), job.runner_scope if job.plan.own_agent else None


class SharedExclusiveLock:
    """A lock of one event loop that many jobs share, and that one job can hold exclusively."""

    def __init__(self) -> None:
        self._gate = asyncio.Lock()
        self._inside = 0
        self._departure = asyncio.Event()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Run the block after all shared holders have left; shared holders that arrive meanwhile wait."""
        # The gate is held while this waits: with new arrivals `_inside` might never reach 0
        async with self._gate:
            while self._inside:
                self._departure.clear()
                await self._departure.wait()
            yield

    async def __aenter__(self) -> None:
        if self._gate.locked():
            async with self._gate:
                self._inside += 1
        else:
            self._inside += 1

    async def __aexit__(self, *raised: object) -> None:
        self._inside -= 1
        self._departure.set()


@dataclass(eq=False, repr=False, kw_only=True)
class SessionRules:
    """Rules of the session for making runs. `on_ended(job, result)` is called with each job that has ended.

    `drain(reason)` keeps the whole session from starting more runs, and `drained()` returns that reason. `coming()` is
    the number of runs about to begin. With `dry_run` nothing is run, only booked there. With `strict`, requests of
    agents are translated only if a run's settings allow it.
    """

    drain: Callable[[str], None]
    drained: Callable[[], str | None]
    coming: Callable[[], int] = lambda: 0
    on_ended: Callable[[Job, Result], None] | None = None
    reuse_runs: bool = True
    dry_run: DryRun | None = None
    strict: bool = False


@dataclass(eq=False, repr=False, kw_only=True)
class Services(GradingServices):
    """Services that all runs of a session share, in addition to those for grading.

    `workspaces` returns the owner of the runs' folders. Cassettes get `cassette_mode` and `session_id`. `batched`
    allows batches of requests. `without_tools` maps the id() of a plan to the reason why its model gets no requests
    with tools. Runs that change this process (environment variables) hold `process_lock` exclusively. `differing`
    counts stored verdicts that a recomputation no longer confirms. `in_flight` are the runs whose agent works now, for
    `agentbench sessions show`. `makes_runs` is True if the last run was made and
    not found in the store.
    """

    registry: Registry
    workspaces: Callable[[], Workspaces]
    identities: Identities
    redactor: Redactor
    rules: SessionRules
    cassette_mode: CassetteMode = "off"
    session_id: str | None = None
    batched: bool = False
    threads: DaemonThreads = field(default_factory=DaemonThreads)
    differing: int = 0
    makes_runs: bool = False
    without_tools: dict[int, str] = field(default_factory=dict)
    in_flight: dict[Job, RunContext] = field(default_factory=dict)
    stops: ModelStops = field(init=False)
    process_lock: SharedExclusiveLock = field(default_factory=SharedExclusiveLock)
    _sandboxes: Sandboxes | None = None
    _servers: SharedServers | None = None
    _listener: Listener | None = None
    _listener_lock: threading.Lock = field(default_factory=threading.Lock)
    _adapted: dict[int, tuple[Any, Runner]] = field(default_factory=dict)
    _runner_sessions: dict[int, tuple[RunnerKind, RunnerSession]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sandboxes, self._servers, self._listener = None, None, None
        self._runner_sessions = {}
        self.stops = ModelStops(self.redactor.text)

    @property
    def sandboxes(self) -> Sandboxes:
        """Return the session's sandboxes, made when a run first needs a workspace or asks for one."""
        if self._sandboxes is None:
            from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes

            self._sandboxes = Sandboxes(self.workspaces())
        return self._sandboxes

    @cached_property
    def cassettes(self) -> Cassettes:
        """Return the session's cassettes; of most sessions nobody asks for them."""
        from pytest_agentbench.models.routes import Cassettes

        return Cassettes(self.cassette_mode, self.session_id, self.redactor)

    def uses_cassettes(self, job: Job) -> bool:
        """Return whether the session, or a model of the job, has a cassette mode."""
        if self.cassette_mode != "off" or job.plan.names_cassettes:
            return True
        return bool(job.judges) and any(judge.cassettes for judge in job.judges)

    @property
    def servers(self) -> SharedServers:
        """Return the session's MCP servers, made when first asked for."""
        if self._servers is None:
            from pytest_agentbench.engine.servers import SharedServers
            from pytest_agentbench.tools.mcp.catalogue import CATALOGUES, Catalogues

            self._servers = SharedServers(Catalogues(self.output / CATALOGUES, self.redactor), self.sandboxes)
        return self._servers

    def listener(self, loop: asyncio.AbstractEventLoop) -> Listener:
        """Return where agents without a sandbox ask their models, made when first asked for, in any thread."""
        with self._listener_lock:
            if self._listener is None:
                from pytest_agentbench.runners.gateway.listener import Listener

                self._listener = Listener(loop)
        return self._listener

    def adapted(self, agent: Any) -> Runner:
        """Return the user's callable as a runner; its signature is looked at once."""
        # by id: a callable need not be hashable; the pair keeps it alive, so that no other takes its id
        known = self._adapted.get(id(agent))
        if known is None or known[0] is not agent:
            from pytest_agentbench.runners.subjects import adapt

            known = self._adapted[id(agent)] = (agent, adapt(agent))
        return known[1]

    def runner_session(self, runner: RunnerKind) -> RunnerSession:
        """Return the state that the session's runs on a runner share, made at its first use."""
        if id(runner) not in self._runner_sessions:
            parts = SessionParts(self.sandboxes, self.identities.template, self.threads.run)
            self._runner_sessions[id(runner)] = runner, runner.open(parts)
        return self._runner_sessions[id(runner)][1]

    async def close(self) -> None:
        """Close shared servers, connections and idle threads. Later uses start them again."""
        try:
            if self._servers is not None:
                await self._servers.running.close()
            for _, session in self._runner_sessions.values():
                await session.close()
            if self._listener is not None:
                await self._listener.close()
            await super().close()
            if self._sandboxes is not None:
                await self._sandboxes.close()
            self.threads.close()
        finally:  # threads, connections and locks belong to this loop and cannot be used by another
            self._endpoints, self.threads, self.process_lock = None, DaemonThreads(), SharedExclusiveLock()
            self.__post_init__()
