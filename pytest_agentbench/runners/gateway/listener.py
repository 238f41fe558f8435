"""Listen on loopback for the agents of all runs of a session, except those with a socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import Future
from hashlib import blake2b
from typing import TYPE_CHECKING

from starlette.requests import Request

from pytest_agentbench.models.apis.base import Route
from pytest_agentbench.models.apis.choice import AGENT_APIS, find_route
from pytest_agentbench.models.completions_http import JSONReply
from pytest_agentbench.runners.gateway.address import RUN_HEADER, list_keys
from pytest_agentbench.runners.gateway.callers import Callers
from pytest_agentbench.runners.gateway.gateway import Gateway
from pytest_agentbench.runners.gateway.server import Server

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_HOST = "127.0.0.1"
_TOKEN_BYTES = 18
_MOST_CONNECTIONS, _MOST_OF_A_RUN = 1024, 32
_MOST_WITHOUT_RUN = 64
"""Maximum connections that have not sent the token of a running run. Each is closed after seconds."""

_SHARED_CLIENT = (
    "this client has the address or key of another run: it was made once and is used by several runs. Send "
    "`gateway.headers` with each request (`extra_headers=context.gateway.headers`), or make a client for each run"
)


class Listener:
    """One TCP listener for all runs. Requests name their run by its token, in the path or as a key.

    It may be created in any thread. The socket accepts connections from then on, and `loop` answers them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Bind the socket. Raises OSError."""
        # Threads of runs add and remove gateways, the loop reads them: single operations of a dict are atomic. A run
        # that has ended keeps its digest with None, so that a late request gets the reason.
        self._gateways: dict[bytes, Gateway | None] = {}
        self._secret = os.urandom(32)
        self._open: Counter[bytes] = Counter()
        self._server = Server(self._app, _MOST_CONNECTIONS, _MOST_WITHOUT_RUN, tell=self._note_fault)
        bound = socket.create_server((_HOST, 0))
        self._callers = Callers(bound.getsockname()[1])
        self.url = f"http://{_HOST}:{bound.getsockname()[1]}"
        # Not awaited, because any thread may be the caller: the kernel queues connections until the server starts
        self._starting: Future[None] = asyncio.run_coroutine_threadsafe(self._server.start(bound), loop)

    def add(self, gateway: Gateway) -> str:
        """Register a gateway. Return its new token, which is also its key."""
        gateway.key = secrets.token_urlsafe(_TOKEN_BYTES)
        self._gateways[self._digest(gateway.key)] = gateway
        return gateway.key

    def remove(self, token: str) -> None:
        """End the token's run. Later requests with the token are refused with the reason."""
        self._gateways[self._digest(token)] = None

    async def close(self) -> None:
        """Cancel requests in flight and stop listening."""
        self._callers.close()
        # A server that is still starting would begin to listen after its close
        await asyncio.wrap_future(self._starting)
        await self._server.close()

    def _find(self, tokens: Iterable[str]) -> bytes | None:
        """Return the digest of the first token that belongs or belonged to a run."""
        return next((digest for digest in map(self._digest, tokens) if digest in self._gateways), None)

    def _note_fault(self, fault: str) -> None:
        # The run of the connection is unknown, so all runs note the fault. A copy, because threads add runs
        for gateway in list(self._gateways.values()):
            if gateway is not None:
                gateway.fault = fault

    def _digest(self, token: str) -> bytes:
        # A keyed hash is looked up, so the duration of the look-up reveals nothing about other runs' tokens
        return blake2b(token.encode("utf-8", "replace"), key=self._secret, digest_size=16).digest()

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        route = find_route(scope["method"], scope["path"], request.headers)
        query = scope["query_string"].decode("latin-1")
        digest = self._find(request.headers.getlist(RUN_HEADER)[:1])
        is_named = digest is not None
        if digest is None:
            digest = self._find(list_keys(request.headers, query) if route.token is None else (route.token,))
        if digest is None:
            await _refuse(route, 401, "invalid_token", "no run has this token")(scope, receive, send)
            return
        gateway = self._gateways[digest]
        # A run that the request itself names has precedence over the run of the sending task
        caller = None if is_named else self._callers.take(scope["client"])
        if caller is not None and (gateway is None or gateway.run is not caller) and not caller.asking.ended:
            caller.asking.shared += 1
            await _refuse(route, 409, "other_run", _SHARED_CLIENT)(scope, receive, send)
            return
        if gateway is None:
            await _refuse(route, 409, "no_turn", "the agent's turn is over")(scope, receive, send)
            return
        # Only now: a stranger's connections must not take the places of the runs'
        self._server.admit()
        async with self._counted(digest):
            await gateway.app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _counted(self, digest: bytes) -> AsyncIterator[None]:
        """Count a connection of a run. Raises ConnectionError if the run has too many, which closes the connection."""
        if self._open[digest] >= _MOST_OF_A_RUN:
            raise ConnectionAbortedError("too many connections of one run")
        self._open[digest] += 1
        try:
            yield
        finally:
            self._open[digest] -= 1
            if not self._open[digest]:
                del self._open[digest]


def _refuse(route: Route, status: int, code: str, text: str) -> JSONReply:
    return JSONReply(AGENT_APIS[route.api].error(status, code, text), status)
