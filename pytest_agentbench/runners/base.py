"""Define what a runner is, what it is given and returns, and a user's own callable as one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import Field

from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.errors import AgentbenchError, ConfigError, UnavailableError
from pytest_agentbench.records.base import Record, RunStatus
from pytest_agentbench.records.case import Case, Model
from pytest_agentbench.records.run import RunError, SandboxUsed, Usage
from pytest_agentbench.runners.recorder import Recorder, clean
from pytest_agentbench.tools.base import Search, Tool, ToolContext
from pytest_agentbench.tools.fetching import Fetch
from pytest_agentbench.tools.mcp.servers import RunServers
from pytest_agentbench.tools.toolbox import BUILTIN_TOOLS, Toolbox
from pytest_agentbench.workspaces.sandboxes.base import Mount, Sandbox, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.workspace import Workspace

if TYPE_CHECKING:
    from pytest_agentbench.models.client import ChatClient


T = TypeVar("T")


class ReportedCall(Record):
    """A tool call that a user's agent made by itself and reports."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    result: str | None = None


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


@dataclass(slots=True)
class RunContext:
    """Hold what one run has at hand. `settings` are the merged runner settings; `repetition` counts from 1.

    `model` and `client` are None where the user's own agent is the subject. `in_thread` runs a plain function off the
    event loop. `expected_sandbox` is what the case's tools will need: the workspace may then be one that was made with
    a container. `sandbox_used` is what was started. `servers` are the MCP servers whose tools are offered, None where
    there are none. `prepared` is what the runner itself prepared: `Prepared.data`. `over_budget(usage)` is why a run
    that has used so much may ask its model for nothing more. `trace` may be written by the runner at any time.
    """

    case: Case
    sandboxes: Sandboxes
    model: Model | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    client: ChatClient | None = None
    repetition: int = 1
    tools: Mapping[str, Tool] = field(default_factory=lambda: BUILTIN_TOOLS)
    sandbox_spec: Callable[[], SandboxSpec] | None = None
    search: Search | None = None
    fetch: Fetch | None = None
    network: NetworkSettings = field(default_factory=NetworkSettings)
    prepared: Any = None
    over_budget: Callable[[Usage], str | None] = lambda usage: None
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread
    trace: Recorder = field(default_factory=Recorder)
    expected_sandbox: SandboxSpec | None = None
    sandbox_used: SandboxUsed | None = None
    made_workspace: Workspace | None = None
    servers: RunServers | None = None
    _sandbox: asyncio.Task[Sandbox] | None = None
    _tool_state: dict[str, Any] = field(default_factory=dict)

    @property
    def workspace(self) -> Workspace:
        """Return the run's own folder, made at first use. Raises SandboxError where it cannot be made."""
        if self.made_workspace is None:
            self.made_workspace = self.sandboxes.workspace(self.expected_sandbox, self.case.case_id)
        return self.made_workspace

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
            self._sandbox = asyncio.ensure_future(self._start_sandbox(replace(spec, mounts=(*spec.mounts, *mounts))))
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
        elif self.made_workspace is not None:
            self.sandboxes.release(self.made_workspace)

    async def _start_sandbox(self, spec: SandboxSpec) -> Sandbox:
        sandbox = await self.sandboxes.start(spec, self.workspace)
        self.sandbox_used = await self.sandboxes.describe(spec)
        return sandbox

    @property
    def offered(self) -> list[Tool]:
        """Return the tools that the case exposes, of those there are, then those of its servers."""
        of_servers = self.servers.as_tools() if self.servers is not None else ()
        return [*(self.tools[name] for name in self.case.tools if name in self.tools), *of_servers]

    def toolbox(self) -> Toolbox:
        """Return all tools that are offered. Raises UnavailableError where one of the tools cannot work here."""
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


@dataclass(frozen=True, slots=True)
class RunEnd:
    """Hold how a run ended whose runner returned. `error` is present exactly where `status` is not success."""

    status: RunStatus
    error: RunError | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


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
        call_id = f"reported-{number}"
        trace.tool_call(call_id, call.name, call.arguments)
        if call.result is not None:
            trace.tool_result(call_id, call.name, call.result)
    if returned.usage is not None:
        trace.add_usage(returned.usage)
    _final(returned.output, trace)
    metadata: dict[str, Any] = clean(returned.metadata)
    if returned.status == "success":
        return RunEnd("success", metadata=metadata)
    message = returned.error or "the agent reported that it failed"
    return RunEnd("failed", RunError(code="agent_failed", message=message), metadata)


def _final(text: str | None, trace: Recorder) -> None:
    if text is not None and trace.output != text:
        trace.final_output(text)


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def adapt(agent: Callable[..., Any]) -> Runner:
    """Make a runner of a callable that takes `(case)` or `(case, context)`; its signature is looked at once, here.

    A coroutine function is awaited on the engine's loop, a plain one runs in a thread (`context.in_thread`). What it
    returns and raises goes through unchanged. A second parameter gets the context if it is named `context` or has no
    default. Raises ConfigError for what cannot be called so.
    """
    if not callable(agent):
        raise ConfigError(f"agentbench_runner: found {type(agent).__name__}, expected a callable; {_EXPECTED}")
    call = _with_context(agent)
    if _is_async(agent):
        return call

    async def in_thread(case: Case, context: RunContext) -> Any:
        result = await context.in_thread(partial(call, case, context))
        return await result if inspect.isawaitable(result) else result

    return in_thread


_EXPECTED = "an agent takes (case) or (case, context)"


def _with_context(agent: Callable[..., Any]) -> Callable[[Case, RunContext], Any]:
    """Return the callable, called with both arguments and passing on those that it takes."""
    try:
        parameters = list(inspect.signature(agent).parameters.values())
    except (TypeError, ValueError):  # builtins that do not tell
        return lambda case, context: agent(case)
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    keywords = [parameter for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    takes_any = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    required = [parameter.name for parameter in positional[2:] + keywords if _is_required(parameter)]
    if (not positional and not takes_any) or set(required) - {"context"}:
        name = getattr(agent, "__name__", type(agent).__name__)
        raise ConfigError(f"agentbench_runner: found {name}{inspect.signature(agent)}; {_EXPECTED}")
    if len(positional) > 1 and (_is_required(positional[1]) or positional[1].name == "context"):
        return agent
    if any(parameter.name == "context" for parameter in positional[2:] + keywords):
        return lambda case, context: agent(case, context=context)
    return lambda case, context: agent(case)


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _is_async(agent: Callable[..., Any]) -> bool:
    while isinstance(agent, partial):
        agent = agent.func
    return inspect.iscoroutinefunction(agent) or inspect.iscoroutinefunction(type(agent).__call__)


class CaseRunner:
    """The default value of the fixture `agentbench_runner`: each case runs as its own file says."""

    def __repr__(self) -> str:
        return "the runner that the case names"


def agent_name(agent: Any) -> str:
    """Return what reports call a user's own agent: its `model_id` attribute, else its name."""
    for name in (getattr(agent, "model_id", None), getattr(agent, "__name__", None)):
        if isinstance(name, str) and name:
            return str(name)
    return type(agent).__name__
