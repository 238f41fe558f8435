"""Record what a program does in a trial: its requests with their bodies, its output, and its exits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_agentbench.models.apis.base import Asked, RequestRefused, Route
from pytest_agentbench.models.apis.choice import AGENT_APIS, find_route
from pytest_agentbench.models.completions import parse_object
from pytest_agentbench.runners.agents.reading import ProgramOutput
from pytest_agentbench.runners.gateway.address import name_path
from pytest_agentbench.runners.gateway.gateway import Gateway
from pytest_agentbench.runners.gateway.mcp import find_server

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

_MOST_REQUESTS = 200
"""Maximum requests that are kept."""


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request at the gateway. `path` is without the run's token. `asked` is None unless it is a request to a model,
    and if its body is invalid. `status` is the response's.
    """

    method: str
    path: str
    route: Route
    asked: Asked | None
    status: int

    @property
    def place(self) -> str:
        """Return method and path."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class SeenTurn:
    """A turn of the program. `end` says how it ended: its exit status, or the reason that an ACP agent gave.

    The `stdout` of an ACP agent's output is the text of its messages.
    """

    base_url: str
    end: str
    seconds: float
    output: ProgramOutput


@dataclass(slots=True)
class Evidence:
    """The requests and the turns of a program in one run. `mcp` are the methods of its requests to MCP servers."""

    requests: list[SeenRequest] = field(default_factory=list)
    turns: list[SeenTurn] = field(default_factory=list)
    mcp: list[str] = field(default_factory=list)

    def add_turn(self, base_url: str, end: str, seconds: float, output: ProgramOutput) -> None:
        """Record a turn."""
        self.turns.append(SeenTurn(base_url, end, seconds, output))

    @property
    def to_model(self) -> list[tuple[SeenRequest, Asked]]:
        """Return the requests that the model answered, with their parsed forms."""
        return [(seen, seen.asked) for seen in self.requests if seen.asked is not None and seen.status == 200]


class WatchedGateway(Gateway):
    """A gateway that records all requests, refused ones too."""

    evidence: Evidence

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and record it."""
        body, statuses = bytearray(), []

        async def read() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        async def write(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        try:
            await super().app(scope, read, write)
        finally:
            if self._endpoint is not None and find_server(scope["path"]) is not None:
                if len(self.evidence.mcp) < _MOST_REQUESTS:
                    self.evidence.mcp.append(_read_method(scope["method"], bytes(body)))
            elif len(self.evidence.requests) < _MOST_REQUESTS:
                self.evidence.requests.append(_make_seen(scope, bytes(body), statuses[0] if statuses else 0))


def _read_method(http_method: str, body: bytes) -> str:
    """Return the method of a request to an MCP server; that of HTTP if it has no other."""
    try:
        method = parse_object(body).get("method")
    except RequestRefused:
        method = None
    return method[:40] if isinstance(method, str) else http_method[:20]


def _make_seen(scope: Mapping[str, Any], body: bytes, status: int) -> SeenRequest:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    query = scope.get("query_string", b"").decode("latin-1")
    route = find_route(scope["method"], f"{scope['path']}?{query}" if query else scope["path"], headers)
    asked = None
    if route.kind == "ask":
        try:
            asked = AGENT_APIS[route.api].read(parse_object(body), route)
        except RequestRefused:  # the agent got the reason
            asked = None
    return SeenRequest(scope["method"][:20], name_path(scope["path"], route.token), route, asked, status)
