"""Connect a run to one server: start it on demand, list and call its tools, and restart it once if it dies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import AgentbenchError, McpCallError, McpServerDiedError, McpServerError
from pytest_agentbench.records.case import McpServer
from pytest_agentbench.secrets.redaction import Redactor
from pytest_agentbench.tools.mcp.launching import collect_secrets, expand_headers
from pytest_agentbench.tools.mcp.servers import CallResult, Listing
from pytest_agentbench.workspaces.sandboxes.base import Process

if TYPE_CHECKING:
    from pytest_agentbench.tools.mcp.session import ServerSession

CALL_SECONDS = 60.0
"""Seconds of one call if the server's declaration sets no limit."""

_MAX_DEATHS = 2


class Lives:
    """The successive sessions of one server. Connections of several runs may share it.

    `changing` guards the replacement of `session`, so that two calls do not restart a dead server twice.
    """

    def __init__(self) -> None:
        self.session: ServerSession | None = None
        self.starts = 0
        self.is_closed = False
        self.changing = asyncio.Lock()

    async def end(self) -> None:
        """Stop the server for good. Waiting calls fail. Never raises; may be called twice."""
        self.is_closed = True
        if self.session is not None:
            await self.session.end()


class Connection:
    """One server, started or connected to on demand, and restarted once after its death.

    If runs share a server, each has its own connection. A death counts only for the runs whose calls it interrupted, so
    that no run can take the server from the others. Calls may come from any task of the loop, concurrently.
    """

    def __init__(
        self,
        name: str,
        server: McpServer,
        launch: Callable[[], Awaitable[Process]] | None,
        *,
        environ: Mapping[str, str],
        shared: Lives | None = None,
        offline: bool = False,
    ) -> None:
        """Set up a connection without starting the server.

        `launch` starts its program; None for a server with only an address. `environ` provides variables for headers.
        `offline`: the program's sandbox has no network.
        """
        self._name, self._server, self._launch, self._environ = name, server, launch, environ
        self._is_shared, self._offline = shared is not None, offline
        self._lives = shared or Lives()
        self._deaths: set[ServerSession] = set()

    @property
    def starts(self) -> int:
        """Return the number of starts of the server's process."""
        return self._lives.starts

    @property
    def version(self) -> str | None:
        """Return the server's own version, or None before its start."""
        if self._lives.session is None:
            return None
        return self._lives.session.version

    async def listing(self) -> Listing:
        """Ask the server for its tools. Raises McpServerError, SandboxError, and UnavailableError (see `launch`)."""
        session = await self._ready_session()
        return await session.listing()

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float | None = None) -> CallResult:
        """Return a tool's result for these arguments. `tool` is the server's own name of the tool.

        Raises McpCallError for a failure of this call: the server does not start, dies, takes more than `seconds`, does
        not know the tool, or replies with more than 16 MiB. The agent reads the message.
        """
        _require_sendable(tool, arguments)
        limit = seconds or self._server.timeout_seconds or CALL_SECONDS
        try:
            session = await self._ready_session()
        except AgentbenchError as error:
            raise McpCallError(str(error)) from error
        try:
            return await session.call(tool, dict(arguments), limit)
        except McpServerError as error:
            self._deaths.add(session)
            raise McpServerDiedError(self._describe_ending()) from error

    async def close(self) -> None:
        """Stop the server unless it is shared. Waiting calls fail. Never raises; may be called twice."""
        if not self._is_shared:
            await self._lives.end()

    def _describe_ending(self) -> str:
        """Return the message for a call whose server ended."""
        if self._lives.is_closed:
            return f"{self._name} was closed before it had answered"
        if len(self._deaths) < _MAX_DEATHS:
            return f"{self._name} ended before it had answered; the next call starts it again"
        return f"{self._name} ended before it had answered; it is {self._describe_retirement()}"

    def _describe_retirement(self) -> str:
        if self._is_shared:
            return "called no more"
        return "not started again"

    async def _ready_session(self) -> ServerSession:
        """Return the current or a new session, once the server has replied."""
        session = await self._current_session()
        try:
            await session.client()
        except AgentbenchError:
            self._deaths.add(session)
            raise
        return session

    async def _current_session(self) -> ServerSession:
        # Two concurrent calls that find the server dead must not start it twice
        async with self._lives.changing:
            session = self._lives.session
            if session is not None and session.ended.is_set():
                await session.end()
                self._lives.session = None
                # A shared server that dies between calls has interrupted no call of this run
                if not self._is_shared:
                    self._deaths.add(session)
            if self._lives.is_closed:
                raise McpServerError(f"MCP server {self._name} was closed")
            if len(self._deaths) >= _MAX_DEATHS:
                how = "in two calls of this run" if self._is_shared else "twice"
                raise McpServerError(f"MCP server {self._name} ended {how}: it is {self._describe_retirement()}")
            if self._lives.session is None:
                self._lives.session = self._make_session()
            return self._lives.session

    def _make_session(self) -> ServerSession:
        # The library takes half a second to import, and most sessions have no server
        from pytest_agentbench.tools.mcp.session import ServerSession, Way

        headers = expand_headers(self._server, self._environ)
        launch = None if self._launch is None else self._start_process
        return ServerSession(Way(self._name, launch, self._server.url, headers, self._hide, self._offline))

    async def _start_process(self) -> Process:
        assert self._launch is not None
        process = await self._launch()
        self._lives.starts += 1
        return process

    def _hide(self, text: str) -> str:
        secrets = collect_secrets(self._server, self._environ)
        # A separate redactor for this server's secrets: the session's redactor does not know its expanded headers
        redactor = Redactor(secrets)
        redactor.know(secrets)
        return redactor.text(text)


def _require_sendable(tool: str, arguments: Mapping[str, Any]) -> None:
    """Raise McpCallError for values that JSON cannot represent, such as lone surrogates: over HTTP they would end
    the connection.
    """
    try:
        json.dumps([tool, arguments], allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise McpCallError(f"the call cannot be sent as JSON: {error}") from None
