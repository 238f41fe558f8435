"""The tool web_fetch: a page of the web as text."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pytest_agentbench.config import NetworkSettings
from pytest_agentbench.tools.network import InThread, RefusedError, Resolve, checked_url, system_resolver
from pytest_agentbench.tools.pages import can_read_html, is_text, readable
from pytest_agentbench.tools.readers import UnreadableError
from pytest_agentbench.tools.web_client import FetchError, Hop, Reply, WebClient, follow, way

MAX_PAGE_BYTES = 5 * 2**20
"""The largest body that is fetched, unpacked."""

_MAX_REDIRECTS = 5
_SECONDS = 30.0
_HEADERS = {
    "User-Agent": "pytest-agentbench (web_fetch)",
    "Accept": "text/html, application/xhtml+xml, text/*, application/json, application/xml;q=0.9, */*;q=0.1",
}


@dataclass(frozen=True, slots=True)
class Page:
    """A fetched page: every request that led to it, its own the last, and its text.

    `size` (bytes) and `sha256` (hex) are of the body as it came, without a transfer's compression.
    """

    hops: tuple[Hop, ...]
    media_type: str
    size: int
    sha256: str
    text: str


Fetch = Callable[[str], Awaitable[Page]]
"""Gets the page at a URL. Raises FetchError."""


def web_fetcher(settings: NetworkSettings, in_thread: InThread, resolve: Resolve | None = None) -> Fetch | None:
    """The web as the settings allow it; None where the extra `web` is not installed.

    Names are resolved here, and all of their addresses are checked; the connection goes to one of these and to no
    other. Proxies and credentials of the environment are not used.
    """
    if not can_read_html():
        return None
    resolver = resolve or system_resolver(in_thread)

    async def fetch(url: str) -> Page:
        hops: list[Hop] = []
        try:
            async with asyncio.timeout(_SECONDS), WebClient(settings, resolver, _HEADERS, _SECONDS) as client:
                first = checked_url(url, settings)
                reply = await follow(first, settings, lambda target: client.get(target, _wanted), hops, _MAX_REDIRECTS)
                text = await _text(reply, hops)
        except RefusedError as error:
            raise FetchError(str(error)) from error
        except TimeoutError as error:
            raise FetchError(way(hops) + f"no complete answer within {_SECONDS:g} s") from error
        digest = hashlib.sha256(reply.body).hexdigest()
        return Page(tuple(hops), reply.media_type, len(reply.body), digest, text)

    return fetch


async def _text(reply: Reply, hops: list[Hop]) -> str:
    if not reply.complete:
        raise FetchError(
            f"{way(hops[:-1])}{reply.url}: found over {MAX_PAGE_BYTES // 2**20} MB, expected less: it was not fetched"
        )
    try:
        return await readable(reply.body, reply.media_type, reply.charset)
    except UnreadableError as error:
        raise FetchError(f"{way(hops[:-1])}{reply.url}: {error}") from error


def _wanted(status: int, media_type: str) -> int:
    if not is_text(media_type):
        raise FetchError(f"HTTP {status}: found {media_type[:80]!r}, expected text: it was not fetched")
    return MAX_PAGE_BYTES
