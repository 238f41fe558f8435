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
from pytest_agentbench.workspaces.sandboxes.base import ExecResult

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
    """A turn's end: the address that the program got, its exit status (None if it was killed), seconds and output."""

    base_url: str
    exit_code: int | None
    seconds: float
    output: ProgramOutput


@dataclass(slots=True)
class Evidence:
    """The requests and the turns of a program in one run."""

    requests: list[SeenRequest] = field(default_factory=list)
    turns: list[SeenTurn] = field(default_factory=list)

    def add_turn(self, base_url: str, done: ExecResult, output: ProgramOutput) -> None:
        """Record the end of a turn."""
        self.turns.append(SeenTurn(base_url, done.exit_code, done.seconds, output))

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
            if len(self.evidence.requests) < _MOST_REQUESTS:
                self.evidence.requests.append(_make_seen(scope, bytes(body), statuses[0] if statuses else 0))


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
