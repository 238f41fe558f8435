"""Serve a run's tools to its agent as MCP servers: stateless streamable HTTP next to the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.models.apis.base import RequestRefused
from pytest_agentbench.models.completions import EVENT_STREAM, parse_object
from pytest_agentbench.models.completions_http import JSONReply
from pytest_agentbench.runners.gateway.bounds import is_deep, is_plain
from pytest_agentbench.runners.gateway.mcp_names import ServedTools
from pytest_agentbench.runners.gateway.server import wait_until_gone
from pytest_agentbench.runners.gateway.trace import ServedCall, ToolTrace
from pytest_agentbench.tools.base import ToolOutput
from pytest_agentbench.tools.toolbox import OUTPUT_LIMIT, Toolbox

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

# Not the library's server: it answers a call either in JSON or as a stream from the beginning, answers
# `server/discover`, which makes some agents leave the run's stateless form, and validates lists of tools as a whole.

_PATH = re.compile(r"(?:/r/[^/]+)?/mcp/([^/]+)/?")
_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

_MOST_BYTES = 4 * 2**20
"""Maximum bytes of a request, and of a result with images or structured content."""

_MOST_READ_AT_ONCE = 8
_MOST_AT_ONCE = 16
"""Maximum concurrent calls of a run. Further ones wait."""

_MOST_CALLS = 2000
"""Maximum calls of a run: a bound for programs that call in a loop, not for tasks."""

_PATIENCE_SECONDS = 5.0
"""Seconds after which the answer to a call becomes a stream: some agents give up without the head of a response."""

_QUIET_SECONDS = 1.0
"""Seconds without a request after which an agent has its servers' tools."""

_KEEP_ALIVE_SECONDS = 10.0
"""Seconds between two signs of life in a stream."""

_PARSE, _INVALID_REQUEST, _NO_METHOD, _INVALID_PARAMS, _INTERNAL = -32700, -32600, -32601, -32602, -32603
_NO_TURN = -32000


def find_server(path: str) -> str | None:
    """Return the server's slug in the path of a request, or None for requests that are not MCP."""
    match = _PATH.fullmatch(path)
    return None if match is None else match[1]


class _RpcError(Exception):
    """Raised for a request that has no result."""

    def __init__(self, code: int, message: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        super().__init__(message)
        self.code, self.status = code, status


class McpEndpoint:
    """The MCP servers of one run, for its agent.

    Requests share nothing, and there are no sessions. Calls run in tasks with the run's context variables. `fail` gets
    an error that ends the run. All state belongs to the engine's event loop.
    """

    def __init__(
        self,
        served: ServedTools,
        toolbox: Toolbox,
        calls: ToolTrace,
        fail: Callable[[BaseException], None],
        variables: contextvars.Context,
        *,
        wraps_json: Callable[[], None] | None = None,
    ) -> None:
        """Store the parts. With `wraps_json`, results that are JSON but no object get structured content, too; it is
        called for each of them.
        """
        self._served, self._toolbox, self._calls, self._fail = served, toolbox, calls, fail
        self._variables, self._wraps_json = variables, wraps_json
        self._schemas = {
            tool.name: spec["function"]["parameters"] for tool, spec in zip(toolbox.tools, toolbox.specs(), strict=True)
        }
        self._reading, self._slots = asyncio.Semaphore(_MOST_READ_AT_ONCE), asyncio.Semaphore(_MOST_AT_ONCE)
        self._running: dict[asyncio.Task[ToolOutput], ServedCall] = {}
        self._number = 0
        self._unlisted, self._all_listed = {*served.servers}, asyncio.Event()
        self._asked_at = 0.0
        self.in_turn = False

    async def wait_until_listed(self, seconds: float) -> None:
        """Wait until the agent has asked each server for its tools, and then nothing for a second; at most so long."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._all_listed.wait()
                # Qwen Code 0.24 takes the tools into its requests only after the last answer of all servers
                while (rest := self._asked_at + _QUIET_SECONDS - loop.time()) > 0:  # noqa: ASYNC110 - each request moves it
                    await asyncio.sleep(rest)

    def find_missing(self, offered: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield the servers whose tools are certainly not among those `offered` in a turn's requests: slug and message.

        An agent that offers no tools may describe them in texts, and without an adapter their names are unknown.
        """
        for slug in self._served.find_missing(offered):
            tools = self._served.describe_server(slug)
            if slug in self._unlisted:
                yield slug, f"the model could not call {tools}: the agent did not ask for them before the turn's end"
            elif offered and self._served.names is not None:
                yield slug, f"the model could not call {tools}: the agent asked for them, and offered none in the turn"

    def end_turn(self) -> None:
        """End all calls. Processes that the agent left running must not go on calling tools."""
        self.in_turn = False
        for task, call in self._running.items():
            if not task.done():
                task.cancel()
                self._calls.end_served(call, ToolOutput("the agent's turn ended before the call", is_error=True))
        self._calls.end_turn()

    async def app(self, slug: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request to a server, as an ASGI app."""
        request = Request(scope, receive)
        number: Any = None
        self._asked_at = asyncio.get_running_loop().time()
        try:
            self._check(request, slug)
            async with self._reading:
                message = _parse(await _read(request))
            number, method, params = message.get("id"), message.get("method"), message.get("params")
            if not isinstance(method, str) or number is None:
                # A notification, or an answer of the client. A cancellation may come after the answer of its call
                await Response(status_code=202)(scope, receive, send)
                return
            if not isinstance(params, dict | None):
                raise _RpcError(_INVALID_PARAMS, "'params' is to be an object")
            if method == "tools/call":
                await self._answer_call(slug, number, params or {}, scope, receive, send)
                return
            body = {"jsonrpc": "2.0", "id": number, "result": self._answer(slug, method, params or {})}
            await JSONReply(body)(scope, receive, send)
        except _RpcError as error:
            body = {"jsonrpc": "2.0", "id": number, "error": {"code": error.code, "message": str(error)}}
            headers = {"allow": "POST"} if error.status == HTTPStatus.METHOD_NOT_ALLOWED else None
            await JSONReply(body, error.status, headers)(scope, receive, send)

    def _check(self, request: Request, slug: str) -> None:
        if slug not in self._served.servers:
            names = ", ".join(self._served.servers)
            raise _RpcError(_INVALID_REQUEST, f"there is no server {slug!r}; there are {names}", HTTPStatus.NOT_FOUND)
        if request.method != "POST":
            message = "this server has no sessions and no events of its own: send POST"
            raise _RpcError(_INVALID_REQUEST, message, HTTPStatus.METHOD_NOT_ALLOWED)
        if "content-encoding" in request.headers:
            status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
            raise _RpcError(_INVALID_REQUEST, "a compressed request is not read here", status)

    def _answer(self, slug: str, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a method other than a call."""
        if method == "initialize":
            version = params.get("protocolVersion")
            return {
                "protocolVersion": version if version in _VERSIONS else _VERSIONS[-1],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": slug, "version": "1"},
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            self._unlisted.discard(slug)
            if not self._unlisted:
                self._all_listed.set()
            return {"tools": self._list(slug)}
        raise _RpcError(_NO_METHOD, f"there is no method {method[:100]!r}")

    def _list(self, slug: str) -> list[dict[str, Any]]:
        return [
            {
                "name": served.name,
                "description": served.tool.description,
                "inputSchema": self._schemas[served.tool.name],
                **({"annotations": {"readOnlyHint": True}} if served.tool.reads_only else {}),
            }
            for served in self._served.servers[slug].values()
        ]

    async def _answer_call(
        self, slug: str, number: Any, params: Mapping[str, Any], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Make a call, and send its result. A call goes on if the client disconnects: it may have effects."""
        # Only of calls: an agent with a session connects its servers before the first turn
        if not self.in_turn:
            raise _RpcError(_NO_TURN, "the agent's turn is over", HTTPStatus.CONFLICT)
        name, arguments, meta = params.get("name"), params.get("arguments"), params.get("_meta")
        if not isinstance(name, str) or not isinstance(arguments, dict | None):
            raise _RpcError(_INVALID_PARAMS, "'name' is to be a text and 'arguments' an object")
        if self._number >= _MOST_CALLS:
            raise _RpcError(_INTERNAL, f"this run has made {self._number:,} calls, the maximum")
        self._number += 1
        self._unlisted.discard(slug)  # a program may know the tool without a list
        meta = meta if isinstance(meta, dict) else {}
        call = self._calls.begin_served(self._served.find_id(slug, name), arguments, _list_texts(meta))
        task = self._start(call, arguments or {})
        gone = asyncio.ensure_future(wait_until_gone(receive))
        waits = (task, gone)
        try:
            await asyncio.wait(waits, timeout=_PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await JSONReply(self._make_reply(number, task))(scope, receive, send)
                return
            stream = _CallStream(send, meta.get("progressToken"))
            while not task.done() and not gone.done():
                await stream.keep_alive()
                await asyncio.wait(waits, timeout=_KEEP_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await stream.finish(self._make_reply(number, task))
        finally:
            gone.cancel()
            if not task.done():
                self._calls.give_up(call)

    def _start(self, call: ServedCall, arguments: dict[str, Any]) -> asyncio.Task[ToolOutput]:
        # The server's tasks belong to all runs: a call needs its own run's variables
        task = asyncio.create_task(self._call(call, arguments), context=self._variables.copy())
        self._running[task] = call
        task.add_done_callback(self._running.pop)
        return task

    async def _call(self, call: ServedCall, arguments: dict[str, Any]) -> ToolOutput:
        async with self._slots:
            try:
                output = await self._toolbox.call(call.tool, arguments)
            except InfrastructureError as error:
                self._fail(error)
                output = ToolOutput("error: the tool failed, and will not work again", is_error=True)
        self._calls.end_served(call, output)
        return output

    def _make_reply(self, number: Any, task: asyncio.Task[ToolOutput]) -> dict[str, Any]:
        if task.cancelled():
            error = {"code": _NO_TURN, "message": "the agent's turn is over"}
            return {"jsonrpc": "2.0", "id": number, "error": error}
        output = task.result()
        result: dict[str, Any] = {"content": [{"type": "text", "text": output.content}]}
        # A result that was cut for its length has only the text that is left
        if output.sent is not None and len(output.content) < OUTPUT_LIMIT and _is_small(output.sent):
            result = {"content": [], **output.sent}
        if (
            self._wraps_json is not None
            and "structuredContent" not in result
            and (value := _parse_value(output.content)) is not None
        ):
            result["structuredContent"] = {"result": value[0]}
            self._wraps_json()
        return {"jsonrpc": "2.0", "id": number, "result": {**result, "isError": output.is_error}}


class _CallStream:
    """The answer to a call as a stream of events."""

    def __init__(self, send: Send, token: Any) -> None:
        self._send, self._token = send, token
        self._beats = 0

    async def keep_alive(self) -> None:
        """Send a sign of life; its first call sends the head of the response."""
        if not self._beats:
            headers = [(name.encode(), value.encode("latin-1")) for name, value in EVENT_STREAM.items()]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        self._beats += 1
        await self._write(b": the call is running\n\n")
        if isinstance(self._token, str | int):
            params = {"progressToken": self._token, "progress": self._beats}
            await self._write(_event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))

    async def finish(self, reply: Mapping[str, Any]) -> None:
        """Send the reply, and end."""
        await self._write(_event(reply))
        await self._send({"type": "http.response.body", "body": b""})

    async def _write(self, piece: bytes) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})


def _event(message: Mapping[str, Any]) -> bytes:
    return b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"


async def _read(request: Request) -> bytes:
    """Return the body of a request. Raises _RpcError if it is too large."""
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > _MOST_BYTES:
                message = f"the request is larger than {_MOST_BYTES:,} bytes"
                raise _RpcError(_INVALID_REQUEST, message, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    except ClientDisconnect as error:
        raise ConnectionAbortedError("the request did not arrive") from error
    return bytes(body)


def _parse(body: bytes) -> dict[str, Any]:
    """Return the message of a request. Raises _RpcError for anything but one JSON object."""
    if not is_plain(body):
        raise _RpcError(_INVALID_REQUEST, "the request has too many values", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    try:
        message = parse_object(body)
    except RequestRefused as refused:
        raise _RpcError(_PARSE, str(refused), HTTPStatus.BAD_REQUEST) from refused
    if is_deep(message):
        raise _RpcError(_INVALID_REQUEST, "the request nests too deep", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return message


def _parse_value(text: str) -> tuple[Any] | None:
    """Return a text's JSON value in a tuple, None for an object and for other texts."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return None if isinstance(value, dict) or is_deep(value) else (value,)


def _is_small(sent: Mapping[str, Any]) -> bool:
    return len(json.dumps(sent)) <= _MOST_BYTES


def _list_texts(meta: Mapping[str, Any]) -> set[str]:
    return {value for value in meta.values() if isinstance(value, str)}
