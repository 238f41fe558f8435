"""Transport of messages between a server's pipes and the library's client, and its results as records."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ErrorData,
    ImageContent,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    ResourceLink,
    TextContent,
    jsonrpc_message_adapter,
)
from pydantic_core import from_json

from pytest_agentbench.terminal_text import visible
from pytest_agentbench.tools.mcp.servers import CallResult, ServerTool
from pytest_agentbench.workspaces.sandboxes.base import Process

# The library's own transport does not support sandboxes, and logs unreadable lines, and some servers print API keys.


MAX_MESSAGE_BYTES = 16 * 2**20
"""Maximum bytes of a server's message."""

RAW_TOOLS = "pytest-agentbench/tools"
"""The key in a result's `_meta` for the list of tools as the server sent it."""

TOO_LONG = f"the result is longer than {MAX_MESSAGE_BYTES // 2**20} MiB"

MAX_PARTS = 500_000
"""Maximum lists and objects of a message. A larger one would block all runs for seconds and fill the memory."""

TOO_MANY_PARTS = f"the result has more than {MAX_PARTS:,} lists and objects"

_MAX_UNSENT = 64
_LINES_AT_ONCE = 64
_EDGE_BYTES = 256
_ID = rb'"id"\s*:\s*(\d{1,18})\s*'
_FIRST_ID = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb",")
_LAST_ID = re.compile(rb",\s*" + _ID + rb'(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


class Lines:
    """Splits a server's output into lines. A response that is too large becomes an error for its request."""

    def __init__(self) -> None:
        self._line, self._tail = bytearray(), bytearray()

    def cut(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that the next piece of output completes."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            line, tail = bytes(self._line), bytes(self._tail)
            self._line, self._tail = bytearray(), bytearray()
            if tail:
                yield _make_refusal(line, tail, TOO_LONG)
            elif _count_parts(line) > MAX_PARTS:
                yield _make_refusal(line, tail, TOO_MANY_PARTS)
            else:
                yield line
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        # Only the end of a line's excess is stored: it may contain the id of the response
        room = MAX_MESSAGE_BYTES - len(self._line)
        self._line += piece[:room]
        if len(piece) > room:
            self._tail += piece[room:]
            del self._tail[:-_EDGE_BYTES]


def _count_parts(line: bytes) -> int:
    """Return an upper bound of the lists and objects in a line. Quoted brackets count, too."""
    if len(line) > MAX_PARTS:
        return line.count(b"[") + line.count(b"{")
    return 0


def _make_refusal(line: bytes, tail: bytes, fault: str) -> bytes:
    """Return an error response in place of a line that is too large, or b"" if its id is not at one of its ends."""
    last = (line[-_EDGE_BYTES:] + tail)[-_EDGE_BYTES:]
    # The middle of a long response is dropped, so its id is searched at both ends. Without an error response the call
    # would wait for its time limit.
    match = _FIRST_ID.match(line[:_EDGE_BYTES]) or _LAST_ID.search(last)
    if match is None:
        return b""
    error = ErrorData(code=INVALID_REQUEST, message=fault)
    return JSONRPCError(jsonrpc="2.0", id=int(match[1]), error=error).model_dump_json(exclude_unset=True).encode()


def parse_line(line: bytes) -> JSONRPCMessage | None:
    """Return the message of a line, or None for other lines and for notifications, which have no id.

    Incomplete characters, such as at the end of truncated texts, are replaced.
    """
    # Before the parser, because some servers print megabytes of logs on stdout
    if b'"jsonrpc"' not in line or b'"id"' not in line:
        return None
    try:
        return jsonrpc_message_adapter.validate_python(_load(line), by_name=False)
    except (ValueError, RecursionError):
        return None


def _load(line: bytes) -> Any:
    try:
        return from_json(line)
    except ValueError:
        # Only after a failure: replacing broken characters parses the line twice, and nearly no line needs it
        whole = json.dumps(json.loads(line.decode("utf-8", "replace")), ensure_ascii=False)
        return from_json(whole.encode("utf-8", "replace"))


class Items(Protocol):
    """The source of messages: a stream of the library, or a generator."""

    def __aiter__(self) -> AsyncIterator[SessionMessage | Exception]: ...

    async def aclose(self) -> None:
        """Stop reading."""
        ...


class Messages:
    """The messages of a server for the library's client. `ended` is set at their end, or when reading stops.

    Notifications are left out: nobody uses them, and the library would start a task for each. The library rejects a
    whole list of tools if one is invalid. So it gets valid replacements, and the original list is passed on as
    RAW_TOOLS.
    """

    def __init__(self, items: Items, ended: asyncio.Event) -> None:
        self._items, self._ended = items, ended

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message. Raises anyio.EndOfStream after the last."""
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        """Stop reading, and note that the server has ended."""
        self._ended.set()
        await self._items.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        async for item in self._items:
            if not isinstance(item, SessionMessage):
                return item
            if isinstance(item.message, JSONRPCResponse) and isinstance(item.message.result.get("tools"), list):
                item.message.result = _make_acceptable(item.message.result)
            if not isinstance(item.message, JSONRPCNotification):
                return item
        self._ended.set()
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _make_acceptable(result: dict[str, Any]) -> dict[str, Any]:
    tools, meta = result["tools"], result.get("_meta")
    named = [tool for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
    valid = [{"name": tool["name"], "inputSchema": _make_valid(tool.get("inputSchema"))} for tool in named]
    if not isinstance(meta, dict):
        meta = {}
    return {**result, "tools": valid, "_meta": {**meta, RAW_TOOLS: tools}}


def _make_valid(schema: Any) -> dict[str, Any]:
    """Return the schema if the library accepts it, else a schema of any arguments."""
    if not isinstance(schema, dict) or schema.get("type") != "object" or not isinstance(schema.get("$schema", ""), str):
        return {"type": "object"}
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {"type": "object"}
    if not all(isinstance(schema_of, dict | bool) for schema_of in properties.values()):
        return {"type": "object"}
    if all(isinstance(name, str) for name in required):
        return schema
    return {"type": "object"}


class Outbox:
    """The messages of the library's client, one line each.

    A separate task writes them, so that a cancelled call does not truncate a line.
    """

    def __init__(self) -> None:
        self._lines: asyncio.Queue[bytes] = asyncio.Queue(_MAX_UNSENT)

    async def send(self, item: SessionMessage) -> None:
        """Queue a message. Wait while the server does not read, but drop a notification instead."""
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        # A notification has nobody who waits for it: its task would wait for ever on a server that does not read
        if not isinstance(item.message, JSONRPCNotification):
            await self._lines.put(line)
        elif not self._lines.full():
            self._lines.put_nowait(line)

    @property
    def is_full(self) -> bool:
        """Return whether the queue is full because the server does not read."""
        return self._lines.full()

    async def write(self, process: Process, ended: asyncio.Event) -> None:
        """Write queued messages until cancelled, or until the server no longer reads, which ends it."""
        try:
            while True:
                await process.write(await self._lines.get())
        except BrokenPipeError:
            ended.set()

    async def aclose(self) -> None:
        """Do nothing: the writing task ends with the streams."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def open_pipe_streams(process: Process, ended: asyncio.Event) -> AsyncIterator[tuple[Messages, Outbox]]:
    """Yield the streams of a server that uses stdin and stdout. `ended` is set when the connection is over."""
    outbox = Outbox()
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(outbox.write(process, ended))
        try:
            yield Messages(_read_messages(process, outbox), ended), outbox
        finally:
            writing.cancel()


async def _read_messages(process: Process, outbox: Outbox) -> AsyncGenerator[SessionMessage]:
    """Yield the messages of a server.

    If the server does not read, its requests are dropped, because each would wait in a task.
    """
    lines = Lines()
    while data := await process.read():
        for number, line in enumerate(lines.cut(data), 1):
            message = parse_line(line)
            is_request = isinstance(message, JSONRPCRequest)
            if message is not None and not (is_request and outbox.is_full):
                yield SessionMessage(message)
            if is_request or number % _LINES_AT_ONCE == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(0)  # other tasks get a turn even if the server never stops writing


_logger = logging.getLogger(__name__)


def server_tools(server: str, described: Iterable[Any]) -> tuple[ServerTool, ...]:
    """Return the tools of a server's list. Tools without a name and duplicates are left out.

    A schema stays unchanged, even if it is invalid. A schema that is not an object becomes `{}`.
    """
    tools: dict[str, ServerTool] = {}
    for tool in described:
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not name:
            _logger.warning("MCP server %s lists a tool without a name, which is left out", server)
        elif name in tools:
            _logger.warning("MCP server %s lists %s twice: the first is used", server, visible(repr(name)))
        else:
            text, schema = tool.get("description"), tool.get("inputSchema")
            annotations = tool.get("annotations")
            tools[name] = ServerTool(
                server=server,
                name=name,
                description=text if isinstance(text, str) else "",
                input_schema=schema if isinstance(schema, dict) else {},
                reads_only=isinstance(annotations, dict) and annotations.get("readOnlyHint") is True,
            )
    return tuple(tools.values())


def read_call_result(result: CallToolResult) -> CallResult:
    """Return a result as text: its blocks in lines, or its structured content if it has no blocks."""
    text = "\n".join(map(_render_block, result.content))
    if not result.content and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    sent = None
    if result.structured_content is not None or [block.type for block in result.content] != ["text"]:
        sent = result.model_dump(
            mode="json", by_alias=True, exclude_none=True, include={"content", "structured_content"}
        )
    return CallResult(text, is_error=result.is_error or False, sent=sent)


def _render_block(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return _describe_binary(block.mime_type, block.data)
        case ResourceLink():
            return "\n".join(_render_link(block))
        case EmbeddedResource():
            resource = block.resource
            if isinstance(resource, BlobResourceContents):
                return _describe_binary(resource.mime_type or "application/octet-stream", resource.blob)
            return resource.text


def _render_link(link: ResourceLink) -> Iterator[str]:
    yield f"{link.name}: {link.uri}"
    if link.description:
        yield link.description


def _describe_binary(mime_type: str, data: str) -> str:
    """Return a note in place of binary data; `data` is base64."""
    return f"[{mime_type}, {len(data.rstrip('=')) * 3 // 4:,} bytes]"
