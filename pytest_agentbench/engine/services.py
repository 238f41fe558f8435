"""What all runs of a session share, and which models get no more of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pytest_agentbench.engine.budget import Part
from pytest_agentbench.engine.identities import Identities
from pytest_agentbench.engine.registry import Registry
from pytest_agentbench.engine.servers import fixture_servers
from pytest_agentbench.engine.user_code import DaemonThreads
from pytest_agentbench.engine.verdict import Rechecks
from pytest_agentbench.errors import ConfigError, ProviderError, UnavailableError, as_alike
from pytest_agentbench.models.cassettes import Cassettes, TapedClient
from pytest_agentbench.models.failures import UNREACHABLE
from pytest_agentbench.packs.openclaw.runs import OpenClawRuns
from pytest_agentbench.records.case import McpServer, Model
from pytest_agentbench.records.run import Usage
from pytest_agentbench.runners.base import Runner, adapt
from pytest_agentbench.store.redaction import Redactor
from pytest_agentbench.tools.mcp.catalogue import Catalogues, SessionServers
from pytest_agentbench.tools.mcp.launching import ServerSandboxes, Turns
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes

if TYPE_CHECKING:
    from pytest_agentbench.engine.forecast import DryRun
    from pytest_agentbench.engine.job import Job, Result
    from pytest_agentbench.models.client import ChatClient, Endpoints
    from pytest_agentbench.models.scripts import Scripts
    from pytest_agentbench.models.tape import Tape


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


class CaseRunner:
    """The default value of the fixture `agentbench_runner`: each case runs as its own file says."""

    def __repr__(self) -> str:
        return "the runner that the case names"


def agent_name(agent: Any) -> str:
    """What reports call a user's own agent: its `model_id` attribute, else its name."""
    for name in (getattr(agent, "model_id", None), getattr(agent, "__name__", None)):
        if isinstance(name, str) and name:
            return str(name)
    return type(agent).__name__


class Shared(Protocol):
    """What a grader's cases share in a session: asked for by its class, made with the session's services."""

    def __init__(self, services: Services) -> None: ...

    async def close(self) -> None:
        """End what it has opened."""


S = TypeVar("S", bound=Shared)


@dataclass
class Services:
    """What all runs of a session share. `endpoints` is made on the engine's loop at first use.

    `on_ended(job, result)` takes each job that has ended, however. `on_spent(part, usages)` books what was paid,
    `over_budget(usage)` is why a run that has used so much already may ask for nothing more. `drain(reason)` keeps the
    whole session from starting more runs, and `drained()` is the reason once that is so. With `dry_run` nothing is run,
    only booked there. `asked_anew` are the keys of kept votes that were asked for again. `coming()` is how many runs
    are about to begin. `catalogues` are the tools of MCP servers, `session_servers` those servers that runs share;
    their programs start in `turns`. `openclaw` is what runs of OpenClaw share. `subjects`
    are the files of all that sources could have scored together. `redactor` hides secrets in what is stored,
    which is below `output`.
    `stops` are the models that get no more runs, `rechecks` what stored verdicts are compared with.
    """

    registry: Registry
    sandboxes: Sandboxes
    scripts: Scripts
    connect: Callable[[], Endpoints]
    on_spent: Callable[[Part, list[Usage]], None]
    drain: Callable[[str], None]
    drained: Callable[[], str | None]
    identities: Identities
    catalogues: Catalogues
    redactor: Redactor
    output: Path
    subjects: tuple[Path, ...] = ()
    over_budget: Callable[[Usage], str | None] = lambda usage: None
    on_ended: Callable[[Job, Result], None] | None = None
    reuse_runs: bool = True
    reuse_evaluations: bool = True
    dry_run: DryRun | None = None
    cassettes: Cassettes = field(default_factory=Cassettes)
    coming: Callable[[], int] = lambda: 0
    asked_anew: set[str] = field(default_factory=set)
    threads: DaemonThreads = field(default_factory=DaemonThreads)
    turns: Turns = field(default_factory=Turns)
    _endpoints: Endpoints | None = None
    _adapted: dict[int, tuple[Any, Runner]] = field(default_factory=dict)
    _servers: dict[int, tuple[Any, Mapping[str, McpServer]]] = field(default_factory=dict)
    session_servers: SessionServers = field(init=False)
    openclaw: OpenClawRuns = field(init=False)
    _shared: dict[Any, Any] = field(default_factory=dict)
    stops: ModelStops = field(init=False)
    rechecks: Rechecks = field(default_factory=Rechecks)

    def __post_init__(self) -> None:
        workspace = cache(partial(self.sandboxes.workspace, None, "mcp-servers"))
        self.session_servers = SessionServers(ServerSandboxes(self.sandboxes, workspace))
        self.openclaw = OpenClawRuns(self.sandboxes, self.identities)
        self._shared = {}
        self.stops = ModelStops(self.redactor.text)

    def client(self, model: Model, tape: Tape | None = None) -> ChatClient:
        """A client for the model, through the tape where that is in use for it."""
        if tape is not None and tape.mode(model.model_id) != "off":
            return TapedClient(model, tape, partial(self.client, model))
        if self._endpoints is None:
            self._endpoints = self.connect()
        return self._endpoints.client(model)

    def describe_pauses(self) -> str:
        """Return which endpoints runs wait for, empty where they wait for none."""
        return self._endpoints.describe_pauses() if self._endpoints is not None else ""

    def adapted(self, agent: Any) -> Runner:
        """The user's callable as a runner; its signature is looked at once."""
        known = self._adapted.get(id(agent))
        if known is None or known[0] is not agent:
            known = self._adapted[id(agent)] = (agent, adapt(agent))
        return known[1]

    def shared(self, kind: type[S]) -> S:
        """Return what a grader's cases share in this session: `kind(services)`, made at the first need, closed last."""
        if kind not in self._shared:
            self._shared[kind] = kind(self)
        found: S = self._shared[kind]
        return found

    def fixture_servers(self, value: Any) -> Mapping[str, McpServer]:
        """The MCP servers that the fixture gives; its value is looked at once. Raises ConfigError."""
        known = self._servers.get(id(value))
        if known is None or known[0] is not value:
            known = self._servers[id(value)] = (value, fixture_servers(value))
        return known[1]

    async def close(self) -> None:
        """Ends servers that runs share, connections and idle threads. What is needed after that starts anew."""
        try:
            await self.session_servers.close()
            await self.openclaw.close()
            for shared in self._shared.values():
                await shared.close()
            if self._endpoints is not None:
                await self._endpoints.close()
            await self.sandboxes.close()
            self.threads.close()
        finally:  # whatever waited on this loop can wait on no other
            self._endpoints, self.threads, self.turns = None, DaemonThreads(), Turns()
            self.sandboxes = Sandboxes(self.sandboxes.workspaces)
            self.__post_init__()
