"""What all runs of a session share, and which models get no more of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from pytest_agentbench.engine.grading_services import GradingServices
from pytest_agentbench.engine.identities import Identities
from pytest_agentbench.engine.registry import Registry
from pytest_agentbench.engine.servers import fixture_servers
from pytest_agentbench.engine.user_code import DaemonThreads
from pytest_agentbench.engine.verdict import Rechecks
from pytest_agentbench.errors import ConfigError, ProviderError, UnavailableError, as_alike
from pytest_agentbench.models.cassettes import Cassettes
from pytest_agentbench.models.failures import UNREACHABLE
from pytest_agentbench.records.case import McpServer
from pytest_agentbench.runners.base import Runner, adapt
from pytest_agentbench.runners.kinds import RunnerKind, RunnerSession, SessionParts
from pytest_agentbench.store.redaction import Redactor
from pytest_agentbench.tools.mcp.catalogue import Catalogues, SessionServers
from pytest_agentbench.tools.mcp.launching import ServerSandboxes, Turns
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes

if TYPE_CHECKING:
    from pytest_agentbench.engine.forecast import DryRun
    from pytest_agentbench.engine.job import Job, Result


IN_A_ROW = 3
"""So many errors of a model with the same text stop it: one may be the case's."""
_REFUSED = frozenset({"authentication", "permission", "quota"})
"""Codes of errors that no other request of the model's would be spared."""
_CLIP = 200


class ModelStops:
    """Counts the errors of each model in the order in which its runs end. For the engine's loop.

    A model here is one of a plan: the same config root, and where it is the user's own agent, the same fixture.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._rows: dict[Any, tuple[str, int]] = {}
        self._reasons: dict[Any, str] = {}

    def reason(self, job: Job) -> str | None:
        """Return why the job is not to be run, None where it is."""
        return self._reasons.get(_model_of(job))

    def note(self, job: Job, error: BaseException | None) -> None:
        """Count what a run ended with. What the case file or this machine is to blame for is no error of the model."""
        model = _model_of(job)
        if isinstance(error, (ConfigError, UnavailableError)) or model in self._reasons:
            return
        if error is None:
            self._rows.pop(model, None)
            return
        code = error.code if isinstance(error, ProviderError) else None
        if code == UNREACHABLE:
            self._stop(job, str(error))
            return
        if isinstance(error, ProviderError) and error.retryable:
            return  # an outage: requests wait for its end
        text, before = as_alike(str(error)), self._rows.get(model, ("", 0))
        count = before[1] + 1 if before[0] == text else 1
        self._rows[model] = (text, count)
        profile = job.plan.run_profile
        if count < IN_A_ROW:
            return
        if code in _REFUSED:
            self._stop(job, f"{count} errors in a row: {error}")
        elif profile.execution_policy.stop_on_runner_error:
            by = f"execution_policy.stop_on_runner_error of run profile {profile.run_profile_id!r}"
            self._stop(job, f"{count} equal errors in a row ({by}): {error}")

    def _stop(self, job: Job, why: str) -> None:
        line = " ".join(self._redact(why).split())
        self._reasons[_model_of(job)] = f"{job.plan.model_id} is stopped: {line[:_CLIP]}{'…' * (len(line) > _CLIP)}"


def _model_of(job: Job) -> Any:
    return id(job.plan), job.runner_scope if job.plan.own_agent else None


@dataclass(kw_only=True)
class SessionRules:
    """What the session lets its runs do. `on_ended(job, result)` takes each job that has ended, however.

    `drain(reason)` keeps the whole session from starting more runs, and `drained()` is the reason once that is so.
    `coming()` is how many runs are about to begin. With `dry_run` nothing is run, only booked there.
    """

    drain: Callable[[str], None]
    drained: Callable[[], str | None]
    coming: Callable[[], int] = lambda: 0
    on_ended: Callable[[Job, Result], None] | None = None
    reuse_runs: bool = True
    dry_run: DryRun | None = None


class SharedServers:
    """MCP servers that runs share. `catalogues` are the tools that servers list; their programs start in `turns`."""

    def __init__(self, catalogues: Catalogues, sandboxes: Sandboxes) -> None:
        self.catalogues = catalogues
        self.turns = Turns()
        workspace = cache(partial(sandboxes.workspace, None, "mcp-servers"))
        self.running = SessionServers(ServerSandboxes(sandboxes, workspace))
        self._declared: dict[int, tuple[Any, Mapping[str, McpServer]]] = {}

    def of_fixture(self, value: Any) -> Mapping[str, McpServer]:
        """Return the servers that the fixture gives; its value is looked at once. Raises ConfigError."""
        known = self._declared.get(id(value))
        if known is None or known[0] is not value:
            known = self._declared[id(value)] = (value, fixture_servers(value))
        return known[1]


@dataclass(kw_only=True)
class Services(GradingServices):
    """What all runs of a session share, beside what grading needs of it.

    `rules` are what the session lets them do, `servers` its MCP servers; `stops` are the models that get no more runs,
    `rechecks` what stored verdicts are compared with.
    """

    registry: Registry
    sandboxes: Sandboxes
    identities: Identities
    redactor: Redactor
    rules: SessionRules
    catalogues: Catalogues
    cassettes: Cassettes = field(default_factory=Cassettes)
    threads: DaemonThreads = field(default_factory=DaemonThreads)
    rechecks: Rechecks = field(default_factory=Rechecks)
    servers: SharedServers = field(init=False)
    stops: ModelStops = field(init=False)
    _adapted: dict[int, tuple[Any, Runner]] = field(default_factory=dict)
    _runner_sessions: dict[int, tuple[RunnerKind, RunnerSession]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.servers = SharedServers(self.catalogues, self.sandboxes)
        self._runner_sessions = {}
        self.stops = ModelStops(self.redactor.text)

    def adapted(self, agent: Any) -> Runner:
        """Return the user's callable as a runner; its signature is looked at once."""
        # by id: a callable need not be hashable; the pair keeps it alive, so that no other takes its id
        known = self._adapted.get(id(agent))
        if known is None or known[0] is not agent:
            known = self._adapted[id(agent)] = (agent, adapt(agent))
        return known[1]

    def runner_session(self, runner: RunnerKind) -> RunnerSession:
        """Return what the session's runs on a runner share, made when first asked for."""
        if id(runner) not in self._runner_sessions:
            parts = SessionParts(self.sandboxes, self.identities.template, self.threads.run)
            self._runner_sessions[id(runner)] = runner, runner.open(parts)
        return self._runner_sessions[id(runner)][1]

    async def close(self) -> None:
        """End servers that runs share, connections and idle threads. What is needed after that starts anew."""
        try:
            await self.servers.running.close()
            for _, session in self._runner_sessions.values():
                await session.close()
            await super().close()
            await self.sandboxes.close()
            self.threads.close()
        finally:  # whatever waited on this loop can wait on no other
            self._endpoints, self.threads = None, DaemonThreads()
            self.sandboxes = Sandboxes(self.sandboxes.workspaces)
            self.__post_init__()
