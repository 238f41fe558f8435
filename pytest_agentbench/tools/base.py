"""The tool, the context that it is called in, and its output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.functions import Function
from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.errors import AgentbenchError

if TYPE_CHECKING:
    from pytest_agentbench.workspaces.sandboxes.base import RemoteFiles, Sandbox
    from pytest_agentbench.workspaces.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Hop:
    """One request of a fetch: its `address` (None: it was not sent), and the status."""

    url: str
    address: str | None
    status: int


@dataclass(frozen=True, slots=True)
class Page:
    """A fetched page: the requests with all redirects, and its text.

    `size` (bytes) and `sha256` (hex) belong to the decompressed body.
    """

    hops: tuple[Hop, ...]
    media_type: str
    size: int
    sha256: str
    text: str


Fetch = Callable[[str], Awaitable[Page]]
"""Fetches the page at a URL. Raises FetchError."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One hit of a web search."""

    title: str
    url: str
    snippet: str = ""


Search = Callable[[str], Awaitable[Sequence[SearchResult]]]
"""A web search from a query to hits, best first."""


def _no_trace(name: str, /, **data: Any) -> None:
    """Do nothing. For tools that are called outside of a run."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The parts of a run that tools may use.

    - `workspace()`: the run's folder, created at first use.
    - `sandbox()`: the sandbox for the run's commands, started at first use.
    - `needs_sandbox()`: raises UnavailableError if there is no sandbox.
    - `search`, `fetch`: None if they are not set up. `network`: the limits of web tools.
    - `note(name, **data)`: adds an event to the run's trace.
    - `state`: data that tools keep between the calls of one run, by tool name. Processes live in the sandbox instead.
    - `copy()`: the copy of the folder on another machine, if a sandbox there has the files, else None.
    """

    workspace: Callable[[], Workspace]
    sandbox: Callable[[], Awaitable[Sandbox]]
    needs_sandbox: Callable[[], object]
    search: Search | None = None
    fetch: Fetch | None = None
    network: NetworkSettings = field(default_factory=NetworkSettings)
    note: Callable[..., None] = _no_trace
    state: dict[str, Any] = field(default_factory=dict)
    copy: Callable[[], RemoteFiles | None] = lambda: None

    async def bring_back(self) -> None:
        """Bring the workspace up to date if a sandbox on another machine uses a copy of it. Raises SandboxError."""
        copy = self.copy()
        if copy is not None:
            await copy.bring_back()


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A tool's output for the model. `is_error` marks a failed call; `seconds` is the tool's own time.

    `broken`: the tool's own code failed, so it is an error of the benchmark and not of the agent. `refused`: the call
    never reached the tool, because there is no such tool or because of the arguments. `sent` is the result of an MCP
    server in its own form if it is more than one text, for agents that speak MCP themselves.
    """

    content: str
    is_error: bool = False
    seconds: float = 0.0
    broken: bool = False
    refused: bool = False
    sent: Mapping[str, Any] | None = None


def always_available(context: ToolContext) -> None:
    """Do nothing. For tools without requirements."""


def require_sandbox(context: ToolContext) -> None:
    """Raise UnavailableError if there is no sandbox. For tools that run commands."""
    context.needs_sandbox()


def object_schema(required: Sequence[str], **properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of arguments: an object with these properties and no others."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Tool:
    """A function that a model may call. `parameters` is the JSON Schema of its arguments, an object.

    - `call`: gets arguments that satisfy the schema. It returns text, or a value that is sent as JSON. The model reads
      an OSError or AgentbenchError of it as an error, but an InfrastructureError ends the run. After any other
      exception the tool counts as broken: the model reads it, too, and the report shows it.
    - `available`: raises UnavailableError if the tool cannot work, so that the case is skipped before any cost.
    - `checks_arguments` False: the tool gets the agent's arguments unchecked.
    - `reads_only`: a call changes nothing that another call could see. If all calls of a reply are such, they run
      concurrently.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    call: Callable[[dict[str, Any], ToolContext], Awaitable[Any]]
    available: Callable[[ToolContext], None] = always_available
    checks_arguments: bool = True
    reads_only: bool = False


async def _refuse_call(arguments: dict[str, Any], context: ToolContext) -> Any:
    raise AgentbenchError("this function is only declared: it has no code to run")


def declare_tool(function: Function) -> Tool:
    """Return a tool that is offered to models and never runs."""
    return Tool(function.name, function.description, function.parameters, _refuse_call, checks_arguments=False)
