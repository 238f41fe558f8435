"""Pages that are fetched and read here."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pytest_agentbench.research.pages.bodies import page_text, wanted_bytes
from pytest_agentbench.research.pages.settings import PageSettings
from pytest_agentbench.research.pages.sites import AGENT, Sites
from pytest_agentbench.tools import (
    FetchError,
    Hop,
    Readers,
    Reply,
    WebClient,
    checked_url,
    follow,
    system_resolver,
    way,
)

if TYPE_CHECKING:
    import httpx2

_REDIRECTS = 10
_LONGEST_WAIT = 10.0
_TRIES = 3
_MOST_UNREAD = 64 * 2**20
_HEADERS = {
    "User-Agent": f"{AGENT} (research: reads pages that reports cite)",
    "Accept": "text/html, application/xhtml+xml, application/pdf, text/*;q=0.9, */*;q=0.5",
}


class Direct:
    """Fetches pages as robots.txt lets it, and reads them apart from all else. A context manager."""

    version = "direct-1"

    def __init__(self, settings: PageSettings) -> None:
        self._settings = settings
        self._free = asyncio.Semaphore(settings.concurrency)
        self._unread = _Room(_MOST_UNREAD)
        resolve = system_resolver(asyncio.to_thread)
        self._client = WebClient(settings.network, resolve, _HEADERS, settings.seconds)
        self._readers = Readers()
        self._sites = Sites(settings, self._client, self._readers)
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._opened.enter_async_context(self._client)
        await self._opened.enter_async_context(self._readers)
        self._opened.push_async_callback(self._sites.close)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.aclose()

    async def content(self, url: str) -> str:
        """As the protocol `Source` says: few of one site at once, few in all; who waits to be read holds no place."""
        hops: list[Hop] = []
        target = checked_url(url, self._settings.network)
        async with self._sites.slot(target), self._free:
            self._readers.prepare()
            asking = _Asking(self._settings, self._client, self._sites)
            reply = await follow(target, self._settings.network, asking, hops, _REDIRECTS)
            if reply.status >= 400:
                raise FetchError(f"{way(hops[:-1])}{reply.url}: HTTP {reply.status}")
            await self._unread.enter(len(reply.body))
        try:
            return await page_text(self._readers, reply, way(hops[:-1]))
        finally:
            self._unread.leave(len(reply.body))


class _Room:
    """So many bytes of bodies may wait in memory; a body that is larger alone."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._left = asyncio.Event()

    async def enter(self, size: int) -> None:
        """When there is room for it."""
        while self._held and self._held + size > self._most:
            self._left.clear()
            await self._left.wait()
        self._held += size

    def leave(self, size: int) -> None:
        """It is not needed any more."""
        self._held -= size
        self._left.set()


class _Asking:
    """The requests for one page: in turn with the site's others, never twice for one URL, in limited time.

    What a site says about coming back soon (429 or 503 with Retry-After) is done.
    """

    def __init__(self, settings: PageSettings, client: WebClient, sites: Sites) -> None:
        self._limit = wanted_bytes(settings.most_bytes)
        self._seconds = self._left = settings.seconds
        self._client, self._sites = client, sites
        self._seen: set[str] = set()

    async def __call__(self, url: httpx2.URL) -> Reply:
        if str(url) in self._seen:
            raise FetchError(f"{url}: its redirects go in a circle")
        self._seen.add(str(url))
        for _ in range(_TRIES):
            await self._sites.wait(url)
            reply = await self._get(url)
            if reply.status not in (429, 503) or reply.retry_after is None:
                return reply
            if reply.retry_after > _LONGEST_WAIT:
                raise FetchError(f"{url}: HTTP {reply.status}, it asks to come back in {reply.retry_after:,.0f} s")
            await asyncio.sleep(reply.retry_after)
        return reply

    async def _get(self, url: httpx2.URL) -> Reply:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._left):
                return await self._client.get(url, self._limit)
        except TimeoutError as error:
            raise FetchError(f"{url}: no complete answer within {self._seconds:g} s") from error
        finally:
            self._left = max(0.0, self._left - (time.monotonic() - begun))
