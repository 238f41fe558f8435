"""Streamable HTTP through the library: with answers that have a limit, and nothing of them in a log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.streamable_http import streamable_http_client

from pytest_agentbench.errors import McpServerError
from pytest_agentbench.models import tls_context
from pytest_agentbench.tools.mcp.transport import MAX_MESSAGE_BYTES, TOO_LONG, Messages

_CONNECT_SECONDS = 10.0
_LOOK_SECONDS = 0.02
_DENIED = (401, 403)
_UNKNOWN = 404
_SESSION = "mcp-session-id"
_PLAIN = ("", "identity")


@asynccontextmanager
async def over_http(url: str, headers: Mapping[str, str], ended: asyncio.Event) -> AsyncIterator[tuple[Messages, Any]]:
    """The streams of a server at an address. `ended` is set when the connection is over."""
    logging.getLogger("mcp.client.streamable_http").addFilter(_without_content)
    async with (
        httpx2.AsyncClient(
            headers={**headers, "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),  # every call has a limit of its own
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            verify=tls_context(),
            event_hooks={"response": [partial(_check, ended)]},
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as (reads, writes),
    ):
        yield Messages(reads, ended), writes


async def listening(url: str) -> None:
    """Returns once something listens at the address."""
    found = urlsplit(url)
    port = found.port or (443 if found.scheme == "https" else 80)
    while True:
        try:
            _, writer = await asyncio.open_connection(found.hostname, port)
        except OSError:
            await asyncio.sleep(_LOOK_SECONDS)
        else:
            writer.close()
            await writer.wait_closed()
            return


def _without_content(record: logging.LogRecord) -> bool:
    """Whether a record of the library may be kept: its exceptions quote what the server sent."""
    record.exc_info = None
    return True


async def _check(ended: asyncio.Event, response: httpx2.Response) -> None:
    """Looks at an answer before its body is read. A session that the server does not know any more has ended."""
    if response.status_code == _UNKNOWN and _SESSION in response.request.headers:
        ended.set()
    if response.status_code in _DENIED:
        raise McpServerError(f"it refuses the request (HTTP {response.status_code}): see 'headers'")
    if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        plain = response.headers.get("content-encoding", "").lower() in _PLAIN
        response.stream = _Limited(response.stream, MAX_MESSAGE_BYTES if plain else 0)


class _Limited(httpx2.AsyncByteStream):
    """A body that may be so long; one that is packed could be of any length."""

    def __init__(self, body: httpx2.AsyncByteStream, limit: int) -> None:
        self._body, self._left = body, limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._body:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.StreamError(TOO_LONG)
            yield chunk

    async def aclose(self) -> None:
        """As the body's."""
        await self._body.aclose()
