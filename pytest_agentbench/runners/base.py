"""The interface of runners: their context, recorder and results."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from pydantic import Field, model_validator

from pytest_agentbench.config.functions import canned_tools_of, functions_of
from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.errors import (
    AgentbenchError,
    ConfigError,
    ProviderError,
    SandboxError,
    UnavailableError,
    UnsupportedError,
)
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
from pytest_agentbench.terminal_text import last_lines
from pytest_agentbench.tools.builtin import BUILTIN_TOOLS

if TYPE_CHECKING:
    from pytest_agentbench.models.client import ChatClient
    from pytest_agentbench.models.clock import RunClock
    from pytest_agentbench.models.messages import ChatReply
    from pytest_agentbench.runners.gateway.address import GatewayAddress
    from pytest_agentbench.tools.base import Fetch, Search, Tool
    from pytest_agentbench.tools.mcp.servers import RunServers
    from pytest_agentbench.tools.toolbox import Toolbox
    from pytest_agentbench.workspaces.sandboxes.base import Mount, Sandbox, SandboxSpec
    from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
    from pytest_agentbench.workspaces.sandboxes.watched_network import WatchedNetwork
    from pytest_agentbench.workspaces.workspace import Workspace

MAX_LEVELS = 64
"""Maximum nesting of values from an agent. Python writes JSON of 200 levels, but cannot read it back."""


class Recorder:
    """Collects one run's trace, usage, request and provider facts. Safe to use from any thread.

    `request` and `provider` are plain dicts that a runner fills with the request's settings and the provider's facts.
    `warnings` are for readers of the session's figures. `turn` is the turn of the conversation that new events belong
    to, from 1, or None.
    """

    __slots__ = ("_began", "_events", "_lock", "_turn_usage", "_usage", "provider", "request", "turn", "warnings")

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._events: list[TraceEvent] = []
        self._lock = threading.Lock()
        self._usage: Usage | None = None
        self._turn_usage: Usage | None = None
        self.request: dict[str, Any] = {}
        self.provider: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.turn: int | None = None

    @property
    def events(self) -> tuple[TraceEvent, ...]:
        """Return the trace so far, in order."""
        return tuple(self._events)

    @property
    def usage(self) -> Usage:
        """Return the sum of all added usage, unknown if none was added."""
        return self._usage or Usage()

    @property
    def turn_usage(self) -> Usage:
        """Return the usage that was added since the current turn began, unknown if none was added."""
        return self._turn_usage or Usage()

    @property
    def seconds(self) -> float:
        """Return the seconds since the run began."""
        return time.perf_counter() - self._began

    @property
    def output(self) -> str | None:
        """Return the last final output, or None."""
        return next((e.content for e in reversed(self._events) if isinstance(e, FinalOutputEvent)), None)

    def message(self, role: Role, content: str, name: str | None = None) -> None:
        """Record a message that the agent received or wrote."""
        self._add(MessageEvent, role=role, content=clean(content), name=clean(name))

    def tool_call(
        self, call_id: str, name: str, arguments: dict[str, Any] | None, raw: str | None = None, **facts: Any
    ) -> None:
        """Record a tool call of the agent. `raw` is the text of its arguments, recorded only if `arguments` is None.

        `facts` are further fields of the event.
        """
        if arguments is not None:
            raw = None
        fields = {"call_id": call_id, "name": name, "arguments": arguments, "raw": raw, **facts}
        self._add(ToolCallEvent, **clean(fields))

    def tool_result(
        self,
        call_id: str,
        name: str,
        content: str,
        *,
        is_error: bool = False,
        broken: bool = False,
        refused: bool = False,
        duration_seconds: float | None = None,
        shown: str | None = None,
    ) -> None:
        """Record the result of a tool. `broken`: the tool's own code failed; `refused`: it was not called.

        `shown` is the text that the agent's model got instead.
        """
        self._add(
            ToolResultEvent,
            call_id=clean(call_id),
            name=clean(name),
            content=clean(content),
            is_error=is_error,
            broken=broken,
            refused=refused,
            duration_seconds=duration_seconds,
            shown=clean(shown),
        )

    def amend(self, kind: type[ToolCallEvent | ToolResultEvent], call_id: str, **fields: Any) -> None:
        """Set fields of the event that a call has of this kind, which must exist."""
        with self._lock:
            place = next(
                number
                for number in reversed(range(len(self._events)))
                if isinstance(event := self._events[number], kind) and event.call_id == call_id
            )
            self._events[place] = self._events[place].model_copy(update=clean(fields))

    def event(self, name: str, /, **data: Any) -> None:
        """Record an action of the runner; `data` is JSON-like, with any names, `name` too."""
        self._add(RunnerEvent, name=name, data=clean(data))

    def final_output(self, text: str) -> None:
        """Record the agent's answer."""
        self._add(FinalOutputEvent, content=clean(text))

    def add_usage(self, usage: Usage) -> None:
        """Add tokens and money of one more request. Unknown plus known is unknown."""
        with self._lock:
            self._usage = usage if self._usage is None else self._usage + usage
            if self.turn is not None:
                self._turn_usage = usage if self._turn_usage is None else self._turn_usage + usage

    def begin_turn(self, number: int) -> None:
        """Begin a turn of the conversation: later events and usage belong to it."""
        with self._lock:
            self.turn, self._turn_usage = number, None

    def _add(self, event: type[TraceEvent], **fields: Any) -> None:
        at = time.perf_counter() - self._began
        with self._lock:
            # Numbered under the lock: two threads of an agent must not share a number
            self._events.append(event(sequence=len(self._events), at=at, turn=self.turn, **fields))


def clean(value: Any, levels: int = MAX_LEVELS) -> Any:
    """Return the value in a form that can be stored. Lone surrogates become `?`, and too deep values become a note."""
    if isinstance(value, str):
        if value.isascii():
            return value
        return value.encode("utf-8", "replace").decode("utf-8")
    if not isinstance(value, dict | list | tuple):
        return value
    # The recursion ends here: deeper values could break readers of the stored run
    if not levels:
        return f"[nested deeper than {MAX_LEVELS}]"
    if isinstance(value, dict):
        return {clean(key): clean(item, levels - 1) for key, item in value.items()}
    return [clean(item, levels - 1) for item in value]


def quote_last_lines(output: str) -> str:
    """Return the last lines of a program's output as a part of a message, an empty text without any."""
    if text := clean(last_lines(output)):
        return f"; its last lines:\n{text}"
    return ""


class ReportedCall(Record):
    """A tool call that a user's agent made itself and reports. `error` is the reason if the call failed.

    A call has a result or an error. With neither its end is unknown.
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
    """Result of a runner, instead of plain text. `error` is the reason if `status` is failed.

    `usage` and `tool_calls` count only work outside of this package's client and tools.
    """

    output: str | None
    status: Literal["success", "failed"] = "success"
    error: str | None = None
    usage: Usage | None = None
    tool_calls: tuple[ReportedCall, ...] = ()
    metadata: dict[str, Any] = Field(default_factory=dict)


class RoleClient(Protocol):
    """The client of a model that plays a role in a run next to the run's own model, such as a simulated user."""

    @property
    def model(self) -> Model:
        """Return the model that plays the role."""
        ...

    @property
    def usage(self) -> Usage | None:
        """Return the sum of the usage of all requests, None before the first one."""
        ...

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        parameters: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """Return one chat completion, and add its usage.

        `parameters` are further fields of the request; they take precedence over the model's own. Raises ProviderError
        if there is no usable reply: the run then ends with an error that is not the agent's failure.
        """
        ...


class UserTurns(Protocol):
    """The user's side of a conversation, for an agent that keeps the conversation itself."""

    async def turn(self, answer: str | RunOutput) -> str | None:
        """Hand over the answer to the last message, and return the next one; None if the conversation is over."""
        ...

    def turn_sync(self, answer: str | RunOutput) -> str | None:
        """Do the same in a thread of its own."""
        ...


class OpenGateway(Protocol):
    """The gateway of a run that asked for one, until `close`: see `runners.gateway`."""

    @property
    def address(self) -> GatewayAddress:
        """Return the address."""
        ...

    @property
    def outage(self) -> BaseException | None:
        """Return the reason why no further request is allowed, or None."""
        ...

    @property
    def fault(self) -> str | None:
        """Return the error of the gateway itself since it was opened, or None."""
        ...

    def find_end(self, *, answered: bool) -> RunEnd | None:
        """Return how the run ended according to its requests, or None if they decide nothing. Raises the run's
        outage.
        """
        ...

    def close(self) -> None:
        """Refuse all further requests. On the event loop."""
        ...


@dataclass(eq=False, repr=False, slots=True)
class RunContext:
    """The context of one run.

    - `settings`: the merged runner settings. `repetition` counts from 1. `strict` is the session's.
    - `model`, `client`: None if the subject is the user's own agent.
    - `roles`: the clients of the run's further models by role, for `client_for`.
    - `open_sandboxes`: returns the session's sandboxes. A run without workspace and commands never calls it.
    - `expected_sandbox`: the sandbox that the case's tools will need. It may have been made with the workspace.
    - `sandbox_used`: the sandbox that was started.
    - `servers`: the MCP servers whose tools are offered, or None.
    - `parallel_tools`: the run profile's setting for several calls in one reply.
    - `prepared`: `Prepared.data` of the runner.
    - `over_budget(usage)`: the reason why a run with this usage may send no further request, or None.
    - `in_thread`: runs a plain function off the event loop.
    - `trace`: the runner may write it at any time. `asking` records the agent's requests to its gateway.
    - `open_gateway`: called at the first use of `gateway`. `listen_for`: for a runner with its own Gateway.
    - `variables`: the context variables of the run's task, for code that answers its requests in other tasks.
    - `turn_grades`: the grades of the run's turns, by the names of their graders.
    - `turn_files`: the verdicts of checks of files after the run's turns, by number; None: no such checks.
    - `user`: the user's side of the conversation, None if the case has no turns.

    Agents may call the properties in any thread. `_opening` guards the gateway. The sandbox belongs to the event loop.
    """

    case: Case
    open_sandboxes: Callable[[], Sandboxes]
    model: Model | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    client: ChatClient | None = None
    roles: Mapping[str, RoleClient] = field(default_factory=dict)
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
    turn_grades: dict[str, Any] = field(default_factory=dict)
    turn_files: dict[str, Any] | None = None
    user: UserTurns | None = None
    opened_gateway: OpenGateway | None = None
    asking: Asking = field(default_factory=Asking)
    _opening: threading.Lock = field(default_factory=threading.Lock)
    _sandbox: asyncio.Task[Sandbox] | None = None
    _network: WatchedNetwork | None = None
    _tool_state: dict[str, Any] = field(default_factory=dict)

    @property
    def sandboxes(self) -> Sandboxes:
        """Return the session's sandboxes."""
        return self.open_sandboxes()

    @property
    def workspace(self) -> Workspace:
        """Return the run's folder, created at first use. Raises SandboxError if it cannot be created."""
        if self.made_workspace is None:
            self.made_workspace = self.sandboxes.workspace(self.expected_sandbox, self.case.case_id)
        return self.made_workspace

    @property
    def gateway(self) -> GatewayAddress:
        """Return the run's gateway for model requests over HTTP, until the run ends. It is opened at first use.

        In any thread. Raises ConfigError if the run has no model.
        """
        with self._opening:
            if self.opened_gateway is None:
                if self.client is None or self.open_gateway is None:
                    raise ConfigError("context.gateway: found no model to ask; name one with --model")
                self.opened_gateway = self.open_gateway(self)
        return self.opened_gateway.address

    def client_for(self, role: str) -> RoleClient:
        """Return the client of the model that plays a role in the run, such as a simulated user.

        Raises ConfigError if the runner does not declare the role.
        """
        if (client := self.roles.get(role)) is None:
            declared = ", ".join(self.roles) or "none"
            raise ConfigError(
                f"context.client_for: found the role {role!r}, expected one that the runner declares ({declared}); add "
                "it to the runner's `model_roles`"
            )
        return client

    async def turn(self, answer: str | RunOutput) -> str | None:
        """Hand over the agent's answer, and return the user's next message; None if the conversation is over.

        The first message is `case.messages[-1].content`. A case without turns is over after the first answer.
        """
        if self.user is not None:
            return await self.user.turn(answer)
        self._answer_alone(answer)
        return None

    def turn_sync(self, answer: str | RunOutput) -> str | None:
        """Do the same as `turn`, in an agent that is a plain function."""
        if self.user is not None:
            return self.user.turn_sync(answer)
        self._answer_alone(answer)
        return None

    def _answer_alone(self, answer: str | RunOutput) -> None:
        end = conclude(answer, self.trace)
        if end.error is not None:
            raise ValueError(f"context.turn: found no answer ({end.error.message}); return a failure from the agent")

    def needs_sandbox(self) -> SandboxSpec:
        """Return the specification of the run's sandbox. Raises UnavailableError if it is unavailable here."""
        if self.sandbox_spec is None:
            raise UnavailableError("this run has no sandbox")
        return self.sandbox_spec()

    async def sandbox(self, mounts: tuple[Mount, ...] = ()) -> Sandbox:
        """Return the sandbox for the run's commands, started at first use. The engine stops it when the run ends.

        The first call may add `mounts`. Raises UnavailableError if the sandbox is unavailable here, SandboxError if it
        fails.
        """
        if self._sandbox is None:
            spec = self.needs_sandbox()
            # A task and not the sandbox, so that concurrent tool calls share one start
            self._sandbox = asyncio.ensure_future(self._start_sandbox(replace(spec, mounts=(*spec.mounts, *mounts))))
        # Shielded: the cancellation of one tool call must not cancel the start for the others
        return await asyncio.shield(self._sandbox)

    async def bring_back(self) -> None:
        """Bring the workspace up to date if its sandbox is on another machine. Raises SandboxError."""
        if self.made_workspace is not None:
            await self.sandboxes.bring_back(self.made_workspace)

    async def stop_servers(self) -> None:
        """Stop the run's own MCP servers, if any. Never raises."""
        if self.servers is not None:
            await self.servers.stop()

    async def stop_sandbox(self) -> None:
        """Stop the sandbox with all its processes, if there is one. The workspace stays."""
        if self._sandbox is not None:
            with suppress(AgentbenchError):  # it never started, and the caller of `sandbox` got the error
                await (await self._sandbox).stop()
            if self._network is not None:
                await self.in_thread(self._network.stop)
        # No sandbox was started, but a container may have been created with the workspace
        elif self.made_workspace is not None:
            self.sandboxes.release(self.made_workspace)

    def note_hosts(self) -> None:
        """Record the attempts to reach other hosts, if the run's network was watched."""
        if self._network is not None:
            self.trace.event("other_hosts", hosts=dict(Counter(self._network.attempts)))

    async def _start_sandbox(self, spec: SandboxSpec) -> Sandbox:
        if spec.watched:
            from pytest_agentbench.workspaces.sandboxes.watched_network import WatchedNetwork

            try:
                self._network = await self.in_thread(WatchedNetwork.start)
            except OSError as error:
                raise SandboxError(f"network: watch: {error}") from error
            spec = replace(spec, joins=self._network.joins)
        sandbox = await self.sandboxes.start(spec, self.workspace, case=self.case)
        self.sandbox_used = await self.sandboxes.describe(spec)
        return sandbox

    @property
    def offered(self) -> list[Tool]:
        """Return the tools of `runnable`, then those of the case's skills, then declared functions."""
        offered = self.runnable
        if self.case.skills:
            from pytest_agentbench.tools.skills import make_skill_tool

            offered.append(make_skill_tool(self.case.skills))
        if functions := functions_of(self.case.context):
            from pytest_agentbench.tools.base import declare_tool

            offered += map(declare_tool, functions)
        return offered

    @property
    def runnable(self) -> list[Tool]:
        """Return the case's known and canned tools, then those of its servers."""
        tools = [self.tools[name] for name in self.case.tools if name in self.tools]
        if canned := canned_tools_of(self.case.context):
            from pytest_agentbench.tools.canned import make_canned_tool

            tools += map(make_canned_tool, canned)
        if self.servers is not None:
            tools += self.servers.as_tools()
        return tools

    def toolbox(self, tools: Iterable[Tool] | None = None) -> Toolbox:
        """Return a toolbox of the tools, by default of all that are offered. Raises UnavailableError if a tool cannot
        work here.
        """
        from pytest_agentbench.tools.base import ToolContext
        from pytest_agentbench.tools.toolbox import Toolbox

        if missing := [name for name in self.case.tools if name not in self.tools]:
            raise UnavailableError(f"no such tool: {', '.join(missing)}; known are {', '.join(sorted(self.tools))}")
        context = ToolContext(
            workspace=lambda: self.workspace,
            copy=lambda: self.sandboxes.copy_of(self.workspace),
            sandbox=self.sandbox,
            needs_sandbox=self.needs_sandbox,
            search=self.search,
            fetch=self.fetch,
            network=self.network,
            note=self.trace.event,
            state=self._tool_state,
        )
        return Toolbox(self.offered if tools is None else tools, context)


RUN: contextvars.ContextVar[RunContext | None] = contextvars.ContextVar("agentbench_run", default=None)
"""The run that a task or thread belongs to."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of a run. `error` is set if and only if `status` is not success.

    The RunArtifact gets `reason` and `detail`. If `reason` is None, `reason_of` derives it.
    """

    status: RunStatus
    error: RunError | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    reason: EndReason | None = None
    detail: EndDetail | None = None


def make_end(status: RunStatus, code: str, message: str) -> RunEnd:
    """Return the end of a run without success, with an error."""
    return RunEnd(status, RunError(code=code, message=message))


_FAILED_ENDS: Mapping[str, RunStatus] = {
    "filtered": "failed",
    "context_exceeded": "failed",
    "malformed_reply": "invalid",
}
"""Statuses for provider errors that the model itself caused."""


def end_by_error(error: ProviderError) -> RunEnd:
    """Return the end of a run that a provider's error ended. Raises UnsupportedError if the error is `unsupported`."""
    if error.reason == "unsupported":
        raise UnsupportedError(str(error)) from error
    reason: EndReason = error.reason  # type: ignore[assignment]
    detail = error.detail if isinstance(error.detail, EndDetail) else None
    run_error = RunError(code=error.code, message=str(error), retryable=error.retryable)
    return RunEnd(_FAILED_ENDS.get(reason, "provider_error"), run_error, reason=reason, detail=detail)


def end_by_time(code: str, limit: str, clock: RunClock) -> RunEnd:
    """Return the end of a run that a time limit ended. It is the provider's error if its last request failed.

    `limit` is the name of the limit in messages, with its value.
    """
    if clock.trouble is None:
        return make_end("timed_out", code, f"no answer within {limit}")
    message = f"the model's endpoint still failed at the end of {limit}: {clock.trouble}"
    return end_by_error(ProviderError(message, code="timeout", retryable=True))


def reason_of(end: RunEnd, trace: Recorder) -> EndReason:
    """Return why a run ended: the runner's reason, else one derived from status and output."""
    if end.reason is not None:
        return end.reason
    if end.status == "success":
        if (trace.output or "").strip():
            return "answered"
        return "empty"
    reasons: Mapping[RunStatus, EndReason] = {
        "failed": "agent_failed",
        "timed_out": "timed_out",
        "invalid": "invalid_output",
        "provider_error": "provider_error",
        "success": "answered",
    }
    return reasons[end.status]


Runner = Callable[[Case, RunContext], Awaitable[str | RunOutput | RunEnd | None]]
"""Runs a case. May raise InfrastructureError, and UnavailableError for missing requirements."""


def conclude(returned: object, trace: Recorder) -> RunEnd:
    """Write a runner's result into the trace and return how the run ended. Never raises.

    A text is the final output. None keeps the runner's own records. A RunEnd is returned unchanged. A value of another
    type than these and RunOutput ends the run with the status `invalid`.
    """
    if isinstance(returned, RunEnd):
        return returned
    if returned is None or isinstance(returned, str):
        _final(returned, trace)
        return RunEnd("success")
    if not isinstance(returned, RunOutput):
        message = f"the runner returned {type(returned).__name__}, expected str, RunOutput or None"
        return make_end("invalid", "invalid_output", message)
    end = record_report(returned, trace)
    _final(returned.output, trace)
    return end


def record_report(returned: RunOutput, trace: Recorder) -> RunEnd:
    """Write the tool calls and the usage that an agent reports into the trace, and return how it ended."""
    place = "" if trace.turn is None else f"{trace.turn}-"
    for number, call in enumerate(returned.tool_calls, start=1):
        # Generated ids: the ids of the agent's framework may be duplicates, or missing
        call_id = f"reported-{place}{number}"
        trace.tool_call(call_id, call.name, call.arguments)
        ending = call.result if call.error is None else call.error
        if ending is not None:
            trace.tool_result(call_id, call.name, ending, is_error=call.error is not None)
    if returned.usage is not None:
        _add_reported(returned.usage, trace)
    metadata: dict[str, Any] = clean(returned.metadata)
    if returned.status == "success":
        return RunEnd("success", metadata=metadata)
    message = returned.error or "the agent reported that it failed"
    return RunEnd("failed", RunError(code="agent_failed", message=message), metadata)


def _add_reported(usage: Usage, trace: Recorder) -> None:
    """Add the usage that an agent reports. If a gateway has counted, only compare the two."""
    if "usage_source" not in trace.provider:
        trace.add_usage(usage)
        return
    counts = {name: getattr(usage, f"{name}_tokens") for name in _COUNTED}
    trace.provider["agent_reported"] = {f"{name}_tokens": count for name, count in counts.items()}
    compare_usage("the agent", {name: count for name, count in counts.items() if count is not None}, trace)


def compare_usage(agent: str, reported: Mapping[str, int], trace: Recorder) -> None:
    """Warn if an agent's token counts (`input`, `output`, `total`, `reasoning`, `cached`) differ from its gateway's."""
    counted = {name: getattr(trace.usage, f"{name}_tokens") for name in reported}
    other = {name: count for name, count in reported.items() if counted[name] is not None and counted[name] != count}
    if other:
        trace.event("usage_mismatch", agent=other, seen={name: counted[name] for name in other})
        shown = ", ".join(f"{name} {count:,} for {counted[name]:,}" for name, count in sorted(other.items()))
        trace.warnings.append(f"usage_mismatch: {agent} reports other token counts than its gateway: {shown}")


_COUNTED = ("input", "output", "total", "reasoning", "cached")


def _final(text: str | None, trace: Recorder) -> None:
    # A runner may have recorded its answer already, and return it as well
    if text is not None and trace.output != text:
        trace.final_output(text)


class CaseRunner:
    """The default value of the fixture `agentbench_runner`: each case has the runner of its file."""

    def __repr__(self) -> str:
        return "the runner that the case names"


def agent_name(agent: Any) -> str:
    """Return the name of a user's own agent in reports: its `model_id` attribute, else its name."""
    # Only texts count, because a mock or a proxy has every attribute
    for name in (getattr(agent, "model_id", None), getattr(agent, "__name__", None)):
        if isinstance(name, str) and name:
            return str(name)
    return type(agent).__name__


PROBE = "llm_probe"
"""The runner that asks a chat model."""
BUILTIN_RUNNERS: Mapping[str, Runner] = LazyTable({PROBE: "pytest_agentbench.runners.probe"})
"""Built-in runners by `runner.type`. Packs and plugins add others."""
