"""What a tool is, and what it is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.workspaces import Sandbox, Workspace


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One hit of a web search."""

    title: str
    url: str
    snippet: str = ""


Search = Callable[[str], Awaitable[Sequence[SearchResult]]]
"""A web search: the query in, the hits out, best first."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What tools may use of a run. `workspace` gives the run's folder, made at first use.

    `sandbox` gives where the run's commands are executed, started at first use; `needs_sandbox` raises UnavailableError
    where that is not to be had. `search` is None where no web search is set up.
    """

    workspace: Callable[[], Workspace]
    sandbox: Callable[[], Awaitable[Sandbox]]
    needs_sandbox: Callable[[], object]
    search: Search | None = None


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What the model gets to read. `is_error` marks a call that failed; `seconds` is the tool's own time."""

    content: str
    is_error: bool = False
    seconds: float = 0.0


def always_available(context: ToolContext) -> None:
    """For tools that need nothing of their surroundings."""


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Tool:
    """A function that a model may call. `parameters` is the JSON Schema of its arguments, an object.

    `call` gets arguments that satisfy the schema; whatever it raises becomes an error for the model to read, but for
    InfrastructureError, which ends the run. `available` raises UnavailableError where the tool cannot work at all, so
    that the case is skipped before it costs anything.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    call: Callable[[dict[str, Any], ToolContext], Awaitable[str | ToolOutput]]
    available: Callable[[ToolContext], None] = always_available
