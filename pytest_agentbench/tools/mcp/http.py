"""Streamable HTTP through the library: with answers that have a limit, and nothing of them in a log."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.streamable_http import streamable_http_client

from pytest_agentbench.bounded import bound_reply
from pytest_agentbench.errors import McpServerError
from pytest_agentbench.models import tls_context
from pytest_agentbench.tools.mcp.transport import MAX_MESSAGE_BYTES, Messages

_CONNECT_SECONDS = 10.0
_LOOK_SECONDS = 0.02
_DENIED = (401, 403)
_UNKNOWN = 404
_SESSION = "mcp-session-id"


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
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    await bound_reply(sys.maxsize if is_stream else MAX_MESSAGE_BYTES, response)  # each event has a limit of its own
