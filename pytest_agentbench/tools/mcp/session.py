"""Run a server in one task from its start to its end, over pipes or streamable HTTP."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult, Implementation, InputRequiredResult
from pydantic import TypeAdapter, ValidationError

from pytest_agentbench.bounded.replies import bound_reply
from pytest_agentbench.errors import McpCallError, McpServerError, SandboxError, UnavailableError
from pytest_agentbench.models.connections import tls_context
from pytest_agentbench.tools.mcp.servers import CallResult, Listing
from pytest_agentbench.tools.mcp.transport import (
    MAX_MESSAGE_BYTES,
    RAW_TOOLS,
    Messages,
    open_pipe_streams,
    read_call_result,
    server_tools,
)
from pytest_agentbench.workspaces.sandboxes.base import Process

_CONNECT_SECONDS = 10.0
_POLL_SECONDS = 0.02
_DENIED = (401, 403)
_UNKNOWN = 404
_SESSION = "mcp-session-id"

_EVENT_BOUND: dict[str, Any] = {"max_sse_event_size": MAX_MESSAGE_BYTES}
_CUT_HINT = ""
if "max_sse_event_size" not in inspect.signature(streamable_http_client).parameters:
    # Before 2.3 the library reads events with the bound of httpx2, and its error does not name it
    _EVENT_BOUND, _CUT_HINT = {}, "; if its result is longer than 1 MiB, install mcp>=2.3"


@asynccontextmanager
async def open_http_streams(
    url: str, headers: Mapping[str, str], ended: asyncio.Event
) -> AsyncIterator[tuple[Messages, Any]]:
    """Yield the streams of a server at an address. `ended` is set when the connection is over."""
    # `addFilter` ignores a filter that the logger has already
    logging.getLogger("mcp.client.streamable_http").addFilter(_drop_content)
    async with (
        httpx2.AsyncClient(
            # The size of uncompressed replies can be bounded before they are read
            headers={**headers, "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),  # each call has its own limit
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            verify=tls_context(),
            event_hooks={"response": [partial(_check_response, ended)]},
        ) as client,
        streamable_http_client(url, http_client=client, **_EVENT_BOUND) as (reads, writes),
    ):
        yield Messages(reads, ended), writes


async def wait_until_listening(url: str) -> None:
    """Wait until a server listens at the address."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    while True:
        try:
            _, writer = await asyncio.open_connection(parts.hostname, port)
        except OSError:
            await asyncio.sleep(_POLL_SECONDS)
        else:
            writer.close()
            await writer.wait_closed()
            return


def _drop_content(record: logging.LogRecord) -> bool:
    """Remove the exception from a log record of the library, because it quotes the server. Return True."""
    record.exc_info = None
    return True


async def _check_response(ended: asyncio.Event, response: httpx2.Response) -> None:
    """Check a response before its body is read. A session that the server does not know any more has ended."""
    if response.status_code == _UNKNOWN and _SESSION in response.request.headers:
        ended.set()
    if response.status_code in _DENIED:
        raise McpServerError(f"it refuses the request (HTTP {response.status_code}): see 'headers'")
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    await bound_reply(sys.maxsize if is_stream else MAX_MESSAGE_BYTES, response)  # each event has its own limit


START_SECONDS = 30.0
"""Seconds in which a server has to start and to agree on a protocol."""

_LIST_SECONDS = 30.0
"""Seconds for listing all tools of a started server."""

_MAX_TOOLS = 10_000
_END_SECONDS = 3.0
_GRACE_SECONDS = 0.5
_STDERR_CHARACTERS = 4096
_NETWORK_SECONDS = 3.0
"""Seconds in which a server has to reply after its first message about missing network. Some continue without."""

_WATCH_SECONDS = 0.1
_NETWORK_FAULTS = re.compile(
    r"EAI_AGAIN|ENETUNREACH|EHOSTUNREACH|ENOTFOUND|ENOTCACHED|network is unreachable|no route to host|dns error"
    r"|temporary failure in name resolution|name or service not known|could not resolve host|network was disabled",
    re.IGNORECASE,
)
"""Messages of npm, uv, pip, curl, Node and Python for an unreachable network."""

_CLIENT = Implementation(name="pytest-agentbench", version="1")
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Way:
    """The endpoint of a server: a program to start, an address, or both.

    `hide` removes secrets from the program's stderr. `offline`: its sandbox has no network.
    """

    name: str
    launch: Callable[[], Awaitable[Process]] | None
    url: str | None
    headers: Mapping[str, str]
    hide: Callable[[str], str]
    offline: bool = False


class ServerSession:
    """A running server. The constructor starts it or connects to it. `ended` is set when it is over.

    `version` is the server's own, None before its first reply.
    """

    def __init__(self, way: Way) -> None:
        self.ended = asyncio.Event()
        self.version: str | None = None
        self._way = way
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._process: Process | None = None
        # One task from start to end: the library opens anyio's cancel scopes, which their own task must leave
        self._task = asyncio.create_task(self._run())

    async def client(self) -> Client:
        """Return the library's client, once the server has replied.

        Raises McpServerError if it did not, SandboxError and UnavailableError if it could not be started.
        """
        return await asyncio.shield(self._client)

    async def listing(self) -> Listing:
        """Return the server's tools. Raises McpServerError, and the errors of `client`."""
        client = await self.client()
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                tools = await _list_all_tools(client)
        except TimeoutError:
            raise self.error(f"it gave no list of its tools within {_LIST_SECONDS:g} s") from None
        except MCPError as error:
            reason = "it ended" if self.ended.is_set() else error.message
            raise self.error(f"it lists no tools: {reason}") from error
        except ValidationError as error:
            raise self.error(f"its list of tools is invalid: {_describe_fault(error)}") from None
        if tools is None:
            raise self.error(f"its list of tools has no end, or more than {_MAX_TOOLS:,} tools")
        name = version = ""
        if (info := client.server_info) is not None:
            name, version = info.name, info.version
        return Listing(
            server_name=name,
            server_version=version,
            protocol=client.protocol_version,
            tools=server_tools(self._way.name, tools),
        )

    async def call(self, tool: str, arguments: dict[str, Any], seconds: float) -> CallResult:
        """Return a tool's result. Raises McpCallError, McpServerError if the server ends, and as `client` does."""
        client = await self.client()
        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments))
        try:
            async with asyncio.timeout(seconds):
                # The library's own method validates results by the tools' output schemas, which it would list first
                result = await client.session.send_request(request, _result_adapter())
        except TimeoutError:
            raise McpCallError(f"{self._way.name} did not answer within {seconds:g} s") from None
        except ValidationError as error:
            raise McpCallError(f"{self._way.name} returned an invalid result: {_describe_fault(error)}") from None
        except MCPError as error:
            if self.ended.is_set():
                raise McpServerError("it ended") from error
            hint = _CUT_HINT if error.message.startswith("SSE stream ended") else ""
            raise McpCallError(f"{error.message}{hint}") from error
        if not isinstance(result, CallToolResult):
            raise McpCallError(f"{self._way.name} requests input from a user, and a run has no user")
        return read_call_result(result)

    def error(self, reason: str) -> McpServerError:
        """Return an error for the reason, with the end of the server's stderr."""
        message = f"MCP server {self._way.name}: {reason}"
        # Secrets are removed before the text is cut, because half of a key would not be recognised
        if self._process is not None and (stderr := self._way.hide(self._process.errors()).strip()):
            message += f"; the end of its stderr:\n{stderr[-_STDERR_CHARACTERS:]}"
        return McpServerError(message)

    async def end(self) -> None:
        """Stop the server and wait for its end. May be called twice."""
        self.ended.set()
        if not self._client.done():
            self._fail(McpServerError(f"MCP server {self._way.name} was closed before it had started"))
            self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        watching: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(START_SECONDS) as limit:
                if self._way.launch is not None:
                    self._process = await self._way.launch()
                if self._way.offline:
                    watching = asyncio.create_task(self._watch_network(limit))
                async with Client(self._streams(), mode="auto", cache=None, client_info=_CLIENT) as client:
                    # The limit is for the start. The block stays open until the server's end
                    _cancel(watching)
                    limit.reschedule(None)
                    self.version = client.server_info.version if client.server_info else ""
                    self._client.set_result(client)
                    await self.ended.wait()
                    limit.reschedule(asyncio.get_running_loop().time() + _END_SECONDS)
        except Exception as error:  # noqa: BLE001  any error is the end of this server
            self._fail(self._explain(error))
        finally:
            _cancel(watching)
            self.ended.set()
            await self._stop()

    async def _watch_network(self, limit: asyncio.Timeout) -> None:
        """Shorten the limit of the start once a server without network prints a message about that."""
        while not self._complains_of_network():  # noqa: ASYNC110  there is no event for new stderr
            await asyncio.sleep(_WATCH_SECONDS)
        limit.reschedule(asyncio.get_running_loop().time() + _NETWORK_SECONDS)

    def _complains_of_network(self) -> bool:
        return self._process is not None and _NETWORK_FAULTS.search(self._process.errors()) is not None

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        """Yield a transport for the library's client."""
        way = self._way
        if way.url is None:
            assert self._process is not None
            async with open_pipe_streams(self._process, self.ended) as streams:
                yield streams
        elif self._process is None:
            async with open_http_streams(way.url, way.headers, self.ended) as streams:
                yield streams
        else:
            # A program with an address may end before it listens, which ends the group with its error
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(_watch_end(self._process))
                await wait_until_listening(way.url)
                async with open_http_streams(way.url, way.headers, self.ended) as streams:
                    yield streams
                watching.cancel()

    def _fail(self, error: Exception) -> None:
        if not self._client.done():
            self._client.set_exception(error)
            self._client.exception()  # marks it as retrieved, because the caller may be cancelled

    def _explain(self, error: BaseException) -> Exception:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, SandboxError | UnavailableError):
            return type(error)(f"MCP server {self._way.name}: {error}")
        return self.error(self._describe_reason(error))

    def _describe_reason(self, error: BaseException) -> str:
        if self._way.offline and self._complains_of_network():
            return (
                "it needs the network, which its sandbox does not have; allow it in the server's declaration "
                "(sandbox: {..., network: allow}), or install its downloads beforehand"
            )
        if isinstance(error, TimeoutError):
            return f"it did not answer within {START_SECONDS:g} s of its start"
        if isinstance(error, MCPError) and self.ended.is_set():
            return "it ended before it answered"
        if isinstance(error, MCPError):
            return f"it refused the initialization: {error.message}"
        if isinstance(error, ValidationError):
            return f"its first reply does not follow the protocol: {_describe_fault(error)}"
        return str(error) or type(error).__name__

    async def _stop(self) -> None:
        """Stop the program. If it uses stdin, it first gets time to end by itself, so that it can save its data."""
        if self._process is None:
            return
        try:
            if self._way.url is None and self.version is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_GRACE_SECONDS):
                        await self._process.end_input()
                        await _read_to_end(self._process)
        finally:
            try:
                await self._process.stop()
            except SandboxError as error:
                _logger.warning("%s", error)


async def _list_all_tools(client: Client) -> list[Any] | None:
    """Return all tools as the server sent them, or None if their list has no end."""
    tools: list[Any] = []
    cursor = None
    for _ in range(_MAX_TOOLS):
        page = await client.list_tools(cursor=cursor)
        tools += (page.meta or {}).get(RAW_TOOLS, ())
        cursor = page.next_cursor
        if len(tools) > _MAX_TOOLS:
            return None
        if cursor is None:
            return tools
    return None


@cache
def _result_adapter() -> TypeAdapter[CallToolResult | InputRequiredResult]:
    return TypeAdapter(CallToolResult | InputRequiredResult)


def _describe_fault(error: ValidationError) -> str:
    """Return place and description of the first fault of an answer, without the value."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()


async def _watch_end(process: Process) -> None:
    """Read the output of a program whose server has an address. Raises McpServerError at its end."""
    await _read_to_end(process)
    raise McpServerError("its program has ended")


async def _read_to_end(process: Process) -> None:
    """Read and drop a process's output until its end."""
    while await process.read():  # noqa: ASYNC110  `read` waits for output
        await asyncio.sleep(0)
