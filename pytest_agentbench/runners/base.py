"""Define what a runner is, what it is given, records and returns."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self

from pydantic import Field, model_validator

from pytest_agentbench.config.functions import functions_of
from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.errors import AgentbenchError, ConfigError, ProviderError, UnavailableError, UnsupportedError
from pytest_agentbench.extensions import LazyTable
from pytest_agentbench.records.base import Record, RunStatus
from pytest_agentbench.records.case import Case, Model, Role
from pytest_agentbench.records.run import (
    EndDetail,
    EndReason,
    FinalOutputEvent,
    MessageEvent,
    RunError,
    RunnerEvent,
    SandboxUsed,
    ToolCallEvent,
    ToolResultEvent,
    TraceEvent,
    Usage,
)
from pytest_agentbench.runners.asking import Asking
from pytest_agentbench.tools.builtin import BUILTIN_TOOLS

if TYPE_CHECKING:
    from pytest_agentbench.models.client import ChatClient
    from pytest_agentbench.runners.gateway.address import GatewayAddress
    from pytest_agentbench.tools.base import Fetch, Search, Tool
    from pytest_agentbench.tools.mcp.servers import RunServers
    from pytest_agentbench.tools.toolbox import Toolbox
    from pytest_agentbench.workspaces.sandboxes.base import Mount, Sandbox, SandboxSpec
    from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
    from pytest_agentbench.workspaces.workspace import Workspace

MAX_LEVELS = 64
"""How deep what an agent hands over may nest: JSON of 200 levels is written, but not read back."""


class Recorder:
    """Collects one run's trace, usage, request and provider facts. Safe to use from any thread.

    `request` and `provider` are plain dicts that a runner fills: what was asked for, and what answered. `warnings` are
    what a reader of the session's figures has to know of the model.
    """

    __slots__ = ("_began", "_events", "_lock", "_usage", "provider", "request", "warnings")

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._events: list[TraceEvent] = []
        self._lock = threading.Lock()
        self._usage: Usage | None = None
        self.request: dict[str, Any] = {}
        self.provider: dict[str, Any] = {}
        self.warnings: list[str] = []

    @property
    def events(self) -> tuple[TraceEvent, ...]:
        """Return the trace so far, in order."""
        return tuple(self._events)

    @property
    def usage(self) -> Usage:
        """Return the sum of all that was added; all unknown where nothing was."""
        return self._usage or _unknown_usage()

    @property
    def seconds(self) -> float:
        """Return the seconds since the run began."""
        return time.perf_counter() - self._began

    @property
    def output(self) -> str | None:
        """Return the last final output recorded, None where there is none."""
        return next((e.content for e in reversed(self._events) if isinstance(e, FinalOutputEvent)), None)

    def message(self, role: Role, content: str, name: str | None = None) -> None:
        """Record a message the agent was given or wrote."""
        self._add(MessageEvent, role=role, content=clean(content), name=clean(name))

    def tool_call(self, call_id: str, name: str, arguments: dict[str, Any] | None, raw: str | None = None) -> None:
        """Record that the agent called a tool. `arguments` None: its text, `raw`, was no JSON object."""
        self._add(ToolCallEvent, call_id=clean(call_id), name=clean(name), arguments=clean(arguments), raw=clean(raw))

    def tool_result(
        self,
        call_id: str,
        name: str,
        content: str,
        *,
        is_error: bool = False,
        broken: bool = False,
        duration_seconds: float | None = None,
    ) -> None:
        """Record what the tool answered; `broken`: its own code failed."""
        self._add(
            ToolResultEvent,
            call_id=clean(call_id),
            name=clean(name),
            content=clean(content),
            is_error=is_error,
            broken=broken,
            duration_seconds=duration_seconds,
        )

    def event(self, name: str, **data: Any) -> None:
        """Record something the runner did; `data` is JSON-like."""
        self._add(RunnerEvent, name=name, data=clean(data))

    def final_output(self, text: str) -> None:
        """Record the agent's answer."""
        self._add(FinalOutputEvent, content=clean(text))

    def add_usage(self, usage: Usage) -> None:
        """Add tokens and money of one more request. Unknown plus known is unknown."""
        with self._lock:
            self._usage = usage if self._usage is None else self._usage + usage

    def _add(self, event: type[TraceEvent], **fields: Any) -> None:
        at = time.perf_counter() - self._began
        with self._lock:
            # Numbered under the lock: two threads of an agent must not share a number
            self._events.append(event(sequence=len(self._events), at=at, **fields))


@cache
def _unknown_usage() -> Usage:
    return Usage()


def clean(value: Any, levels: int = MAX_LEVELS) -> Any:
    """Return the value as it can be stored and sent: lone surrogates become `?`, and what nests too deep a note."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if not isinstance(value, dict | list | tuple):
        return value
    # Recursion ends here, and with it what could break every reader of the stored run
    if not levels:
        return f"[nested deeper than {MAX_LEVELS}]"
    if isinstance(value, dict):
        return {clean(key): clean(item, levels - 1) for key, item in value.items()}
    return [clean(item, levels - 1) for item in value]


class ReportedCall(Record):
    """A tool call that a user's agent made by itself and reports. `error` says why the call failed.

    A call has a result or an error; with neither, nobody knows how it ended.
    """

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    result: str | None = None
    error: str | None = None

    @model_validator(mode="after")
    def _has_one_end(self) -> Self:
        if self.result is not None and self.error is not None:
            raise ValueError("found a result and an error, expected one of them")
        return self


class RunOutput(Record):
    """Hold what a runner may return instead of plain text. `error` says why `status` is failed.

    `usage` and `tool_calls` are what the runner did outside this package's client and tools.
    """

    output: str | None
    status: Literal["success", "failed"] = "success"
    error: str | None = None
    usage: Usage | None = None
    tool_calls: tuple[ReportedCall, ...] = ()
    metadata: dict[str, Any] = Field(default_factory=dict)


class OpenGateway(Protocol):
    """The gateway of a run that asked for one, until `close`: see `runners.gateway`."""

    @property
    def address(self) -> GatewayAddress:
        """Return where it is."""
        ...

    @property
    def outage(self) -> BaseException | None:
        """Return why nothing more is asked there, None where more may be."""
        ...

    @property
    def fault(self) -> str | None:
        """Return what went wrong in the gateway itself since it was opened."""
        ...

    def find_end(self, *, answered: bool) -> RunEnd | None:
        """Return how the run ended by what was asked there, None where that says nothing. Raises its outage."""
        ...

    def close(self) -> None:
        """Ask the run's model nothing more. On the event loop."""
        ...


@dataclass(eq=False, repr=False, slots=True)
class RunContext:
    """Hold what one run has at hand. `settings` are the merged runner settings; `repetition` counts from 1.

    `open_sandboxes` gives the session's sandboxes, which a run without workspace and commands never asks for.
    `model` and `client` are None where the user's own agent is the subject. `in_thread` runs a plain function off the
    event loop. `expected_sandbox` is what the case's tools will need: the workspace may then be one that was made with
    a container. `sandbox_used` is what was started. `servers` are the MCP servers whose tools are offered, None where
    there are none. `parallel_tools` is the run profile's word on the calls of one reply.
    `prepared` is what the runner itself prepared: `Prepared.data`. `over_budget(usage)` is why a run
    that has used so much may ask its model for nothing more. `trace` may be written by the runner at any time.
    `asking` is what the agent asked of its gateway.
    `strict` is the session's. `open_gateway` is called by whoever first asks for `gateway`, `listen_for` by a
    runner with a Gateway of its own; `variables` are those of the run's task, for what answers it elsewhere.
    """

    case: Case
    open_sandboxes: Callable[[], Sandboxes]
    model: Model | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    client: ChatClient | None = None
    repetition: int = 1
    tools: Mapping[str, Tool] = field(default_factory=lambda: BUILTIN_TOOLS)
    sandbox_spec: Callable[[], SandboxSpec] | None = None
    search: Search | None = None
    fetch: Fetch | None = None
    network: NetworkSettings = field(default_factory=NetworkSettings)
    parallel_tools: Literal["always", "never"] | None = None
    prepared: Any = None
    over_budget: Callable[[Usage], str | None] = lambda usage: None
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread
    trace: Recorder = field(default_factory=Recorder)
    expected_sandbox: SandboxSpec | None = None
    sandbox_used: SandboxUsed | None = None
    made_workspace: Workspace | None = None
    servers: RunServers | None = None
    strict: bool = False
    open_gateway: Callable[[RunContext], OpenGateway] | None = None
    listen_for: Callable[[Any], OpenGateway] | None = None
    variables: contextvars.Context | None = None
    opened_gateway: OpenGateway | None = None
    asking: Asking = field(default_factory=Asking)
    _opening: threading.Lock = field(default_factory=threading.Lock)
    _sandbox: asyncio.Task[Sandbox] | None = None
    _tool_state: dict[str, Any] = field(default_factory=dict)

    @property
    def sandboxes(self) -> Sandboxes:
        """Return the session's sandboxes."""
        return self.open_sandboxes()

    @property
    def workspace(self) -> Workspace:
        """Return the run's own folder, made at first use. Raises SandboxError where it cannot be made."""
        if self.made_workspace is None:
            self.made_workspace = self.sandboxes.workspace(self.expected_sandbox, self.case.case_id)
        return self.made_workspace

    @property
    def gateway(self) -> GatewayAddress:
        """Return where the run's model is asked over HTTP, in any dialect, until the run ends; opened at first use.

        In any thread. Raises ConfigError where there is no model to ask.
        """
        with self._opening:
            if self.opened_gateway is None:
                if self.client is None or self.open_gateway is None:
                    raise ConfigError("context.gateway: found no model to ask; name one with --model")
                self.opened_gateway = self.open_gateway(self)
        return self.opened_gateway.address

    def needs_sandbox(self) -> SandboxSpec:
        """Return what the run's sandbox is to be. Raises UnavailableError where it is not to be had here."""
        if self.sandbox_spec is None:
            raise UnavailableError("this run has no sandbox")
        return self.sandbox_spec()

    async def sandbox(self, mounts: tuple[Mount, ...] = ()) -> Sandbox:
        """Return where the run's commands are executed, started at first use; the engine stops it when the run ends.

        At that first use it gets the `mounts` beside those of its spec. Raises UnavailableError where it is not to be
        had here, SandboxError where it fails.
        """
        if self._sandbox is None:
            spec = self.needs_sandbox()
            # A task and not the sandbox: tools that call at once share one start
            self._sandbox = asyncio.ensure_future(self._start_sandbox(replace(spec, mounts=(*spec.mounts, *mounts))))
        # Shielded: a tool call that is cut off must not cancel the start for the others
        return await asyncio.shield(self._sandbox)

    async def stop_servers(self) -> None:
        """End the servers that are the run's own, if there are any. Never raises."""
        if self.servers is not None:
            await self.servers.stop()

    async def stop_sandbox(self) -> None:
        """End the sandbox and everything that runs in it, if there is one. The workspace stays."""
        if self._sandbox is not None:
            with suppress(AgentbenchError):  # it never started, which whoever asked for it was told
                await (await self._sandbox).stop()
        # No sandbox was started, but a container may have been made ready with the workspace
        elif self.made_workspace is not None:
            self.sandboxes.release(self.made_workspace)

    async def _start_sandbox(self, spec: SandboxSpec) -> Sandbox:
        sandbox = await self.sandboxes.start(spec, self.workspace)
        self.sandbox_used = await self.sandboxes.describe(spec)
        return sandbox

    @property
    def offered(self) -> list[Tool]:
        """Return the tools that the case exposes, of those there are, then those of its servers, then its functions."""
        of_servers = self.servers.as_tools() if self.servers is not None else ()
        of_case = (self.tools[name] for name in self.case.tools if name in self.tools)
        offered = [*of_case, *of_servers]
        if functions := functions_of(self.case.context):
            from pytest_agentbench.tools.base import declare_tool

            offered += map(declare_tool, functions)
        return offered

    def toolbox(self) -> Toolbox:
        """Return all tools that are offered. Raises UnavailableError where one of the tools cannot work here."""
        from pytest_agentbench.tools.base import ToolContext
        from pytest_agentbench.tools.toolbox import Toolbox

        if missing := [name for name in self.case.tools if name not in self.tools]:
            raise UnavailableError(f"no such tool: {', '.join(missing)}; known are {', '.join(sorted(self.tools))}")
        context = ToolContext(
            workspace=lambda: self.workspace,
            sandbox=self.sandbox,
            needs_sandbox=self.needs_sandbox,
            search=self.search,
            fetch=self.fetch,
            network=self.network,
            note=self.trace.event,
            state=self._tool_state,
        )
        return Toolbox(self.offered, context)


RUN: contextvars.ContextVar[RunContext | None] = contextvars.ContextVar("agentbench_run", default=None)
"""The run that a task or thread belongs to."""


class RunEnd(NamedTuple):
    """Hold how a run ended whose runner returned. `error` is present exactly where `status` is not success.

    `reason` and `detail` are those of RunArtifact; None where the runner leaves that to be seen from the rest.
    """

    status: RunStatus
    error: RunError | None = None
    metadata: Mapping[str, Any] = {}
    reason: EndReason | None = None
    detail: EndDetail | None = None


_FAILED_ENDS: Mapping[str, RunStatus] = {
    "filtered": "failed",
    "context_exceeded": "failed",
    "malformed_reply": "invalid",
}
"""Ends of a provider's error that are the model's own."""


def end_by_error(error: ProviderError) -> RunEnd:
    """Return how a run ended that a provider's error ended. Raises UnsupportedError where it cannot be run there."""
    if error.reason == "unsupported":
        raise UnsupportedError(str(error)) from error
    reason: EndReason = error.reason  # type: ignore[assignment]
    detail = error.detail if isinstance(error.detail, EndDetail) else None
    told = RunError(code=error.code, message=str(error), retryable=error.retryable)
    return RunEnd(_FAILED_ENDS.get(reason, "provider_error"), told, reason=reason, detail=detail)


def reason_of(end: RunEnd, trace: Recorder) -> EndReason:
    """Return why a run ended, where its runner does not say it by the rest."""
    if end.reason is not None:
        return end.reason
    if end.status == "success":
        return "answered" if (trace.output or "").strip() else "empty"
    reasons: Mapping[RunStatus, EndReason] = {
        "failed": "agent_failed",
        "timed_out": "timed_out",
        "invalid": "invalid_output",
        "provider_error": "provider_error",
        "success": "answered",
    }
    return reasons[end.status]


Runner = Callable[[Case, RunContext], Awaitable[str | RunOutput | RunEnd | None]]
"""Runs a case. May raise InfrastructureError, and UnavailableError for what is not to be had here."""


def conclude(returned: object, trace: Recorder) -> RunEnd:
    """Write what a runner returned into the trace and say how the run ended. Never raises.

    Text is the final output; None leaves what the runner recorded itself. A RunEnd of a built-in runner stands as it
    is. Anything but these and RunOutput breaks the contract: status `invalid`.
    """
    if isinstance(returned, RunEnd):
        return returned
    if returned is None or isinstance(returned, str):
        _final(returned, trace)
        return RunEnd("success")
    if not isinstance(returned, RunOutput):
        found = f"the runner returned {type(returned).__name__}"
        return RunEnd("invalid", RunError(code="invalid_output", message=f"{found}, expected str, RunOutput or None"))
    for number, call in enumerate(returned.tool_calls, start=1):
        # Ids of our own: those of the agent's framework may be anything, or missing
        call_id = f"reported-{number}"
        trace.tool_call(call_id, call.name, call.arguments)
        ending = call.result if call.error is None else call.error
        if ending is not None:
            trace.tool_result(call_id, call.name, ending, is_error=call.error is not None)
    if returned.usage is not None:
        _add_reported(returned.usage, trace)
    _final(returned.output, trace)
    metadata: dict[str, Any] = clean(returned.metadata)
    if returned.status == "success":
        return RunEnd("success", metadata=metadata)
    message = returned.error or "the agent reported that it failed"
    return RunEnd("failed", RunError(code="agent_failed", message=message), metadata)


def _add_reported(usage: Usage, trace: Recorder) -> None:
    """Add what an agent says that it used; beside what a gateway has counted itself it is no more than a claim."""
    if "usage_source" not in trace.provider:
        trace.add_usage(usage)
        return
    said = {name: getattr(usage, f"{name}_tokens") for name in _COUNTED}
    trace.provider["agent_reported"] = {f"{name}_tokens": count for name, count in said.items()}
    compare_usage("the agent", {name: count for name, count in said.items() if count is not None}, trace)


def compare_usage(agent: str, said: Mapping[str, int], trace: Recorder) -> None:
    """Warn where an agent counted other tokens than its gateway: `input`, `output`, `total`, `reasoning`, `cached`."""
    counted = {name: getattr(trace.usage, f"{name}_tokens") for name in said}
    other = {name: count for name, count in said.items() if counted[name] is not None and counted[name] != count}
    if other:
        trace.event("usage_mismatch", agent=other, seen={name: counted[name] for name in other})
        shown = ", ".join(f"{name} {count:,} for {counted[name]:,}" for name, count in sorted(other.items()))
        trace.warnings.append(f"usage_mismatch: {agent} says that it used other tokens than were seen: {shown}")


_COUNTED = ("input", "output", "total", "reasoning", "cached")


def _final(text: str | None, trace: Recorder) -> None:
    # A runner may have recorded its answer already, and return it besides
    if text is not None and trace.output != text:
        trace.final_output(text)


class CaseRunner:
    """The default value of the fixture `agentbench_runner`: each case runs as its own file says."""

    def __repr__(self) -> str:
        return "the runner that the case names"


def agent_name(agent: Any) -> str:
    """Return what reports call a user's own agent: its `model_id` attribute, else its name."""
    # Texts only: a mock or a proxy has every attribute
    for name in (getattr(agent, "model_id", None), getattr(agent, "__name__", None)):
        if isinstance(name, str) and name:
            return str(name)
    return type(agent).__name__


PROBE = "llm_probe"
"""The runner that asks a chat model."""
BUILTIN_RUNNERS: Mapping[str, Runner] = LazyTable({PROBE: "pytest_agentbench.runners.chat"})
"""`runner.type` of a case -> how it is run, without what packs and plugins add."""
