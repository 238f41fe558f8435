"""The tool, the context that it is called in, and its output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.functions import Function
from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.errors import AgentbenchError

if TYPE_CHECKING:
    from pytest_agentbench.workspaces.sandboxes.base import Sandbox
    from pytest_agentbench.workspaces.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Hop:
    """One request on the way to a page: the `address` that was connected to (None: nobody was asked), the status."""

    url: str
    address: str | None
    status: int


@dataclass(frozen=True, slots=True)
class Page:
    """A fetched page: every request that led to it, its own the last, and its text.

    `size` (bytes) and `sha256` (hex) are of the body as it came, without a transfer's compression.
    """

    hops: tuple[Hop, ...]
    media_type: str
    size: int
    sha256: str
    text: str


Fetch = Callable[[str], Awaitable[Page]]
"""Gets the page at a URL. Raises FetchError."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One hit of a web search."""

    title: str
    url: str
    snippet: str = ""


Search = Callable[[str], Awaitable[Sequence[SearchResult]]]
"""A web search: the query in, the hits out, best first."""


def _no_trace(name: str, **data: Any) -> None:
    """Do nothing: for tools that are called outside of a run."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The parts of a run that tools may use. `workspace` gives the run's folder, made at first use.

    `sandbox` gives where the run's commands are executed, started at first use; `needs_sandbox` raises UnavailableError
    where that is not to be had. `search` and `fetch` are None where they are not set up; `network` says what web tools
    may reach. `note` adds an event of that name to the run's trace. `state` is what tools keep between the calls of one
    run, by their names; what has to end with the run lives in its sandbox.
    """

    workspace: Callable[[], Workspace]
    sandbox: Callable[[], Awaitable[Sandbox]]
    needs_sandbox: Callable[[], object]
    search: Search | None = None
    fetch: Fetch | None = None
    network: NetworkSettings = field(default_factory=NetworkSettings)
    note: Callable[..., None] = _no_trace
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The text that the model gets to read. `is_error` marks a call that failed; `seconds` is the tool's own time.

    `broken` says that the tool's own code is to blame, and neither agent nor world: an error of the benchmark.
    """

    content: str
    is_error: bool = False
    seconds: float = 0.0
    broken: bool = False


def always_available(context: ToolContext) -> None:
    """Pass, for tools that need nothing of their surroundings."""


def require_sandbox(context: ToolContext) -> None:
    """Raise UnavailableError where there is no sandbox, for tools that run commands."""
    context.needs_sandbox()


def object_schema(required: Sequence[str], **properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of arguments: an object with these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Tool:
    """A function that a model may call. `parameters` is the JSON Schema of its arguments, an object.

    `call` gets arguments that satisfy the schema and returns text, or a value that is sent as JSON. An OSError or
    AgentbenchError that it raises is an error for the model to read, but for InfrastructureError, which ends the run;
    any other says that the tool broke: the model reads it too, and the report tells of it. `available` raises
    UnavailableError where the tool cannot work at all, so that the case is skipped before it costs anything. Without
    `checks_arguments` the tool gets them as the agent sent them, and looks at them itself. `reads_only` says that a
    call changes nothing that another one could see: calls of one reply run side by side where all of them are such.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    call: Callable[[dict[str, Any], ToolContext], Awaitable[Any]]
    available: Callable[[ToolContext], None] = always_available
    checks_arguments: bool = True
    reads_only: bool = False


async def _refuse_call(arguments: dict[str, Any], context: ToolContext) -> Any:
    raise AgentbenchError("this function is only declared: nothing runs it")


def declare_tool(function: Function) -> Tool:
    """Return a tool that models see and nothing runs."""
    return Tool(function.name, function.description, function.parameters, _refuse_call, checks_arguments=False)
