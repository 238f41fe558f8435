"""Politeness: what each site lets a program have, and how its requests are spread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_agentbench.research.pages.settings import PageSettings
from pytest_agentbench.tools import (
    FetchError,
    Hop,
    Readers,
    RedirectsError,
    RefusedError,
    UnreadableError,
    WebClient,
    checked_url,
    follow,
    host_of,
    is_public,
)

if TYPE_CHECKING:
    import httpx2

AGENT = "pytest-agentbench"
"""The name under which robots.txt knows us."""

_LONGEST_DELAY = 10.0
_ROBOTS_BYTES = 500 * 2**10
_ROBOTS_REDIRECTS = 5
_ROBOTS_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class _Rules:
    """A robots.txt, or why there is none that allows anything. None: all is allowed."""

    body: bytes | None = None
    unreachable: str | None = None


@dataclass(slots=True)
class _Site:
    origin: str
    slots: asyncio.Semaphore
    delay: float
    rules: asyncio.Task[_Rules] | None = None
    next_at: float = 0.0


class Sites:
    """The sites of one session by scheme, host and port; each robots.txt is fetched once (RFC 9309)."""

    def __init__(self, settings: PageSettings, client: WebClient, readers: Readers) -> None:
        self._settings, self._client, self._readers = settings, client, readers
        self._sites: dict[str, _Site] = {}
        self._asking = asyncio.Semaphore(_ROBOTS_AT_ONCE)

    async def close(self) -> None:
        """Nothing more is fetched."""
        tasks = [site.rules for site in self._sites.values() if site.rules is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def slot(self, url: httpx2.URL) -> AsyncIterator[None]:
        """One of the site's few. Raises RefusedError, and FetchError where its name cannot be resolved."""
        site = await self._site(url)
        async with site.slots:
            yield

    async def wait(self, url: httpx2.URL) -> None:
        """Until the site may be asked for that page. Raises RefusedError, and FetchError where it may not."""
        site = await self._site(url)
        await self._allowed(site, url)
        now = time.monotonic()
        begin = max(now, site.next_at)
        site.next_at = begin + site.delay
        if begin > now:
            await asyncio.sleep(begin - now)

    async def _site(self, url: httpx2.URL) -> _Site:
        addresses = await self._client.addresses(url)
        origin = f"{url.scheme}://{url.netloc.decode('ascii')}"
        if (site := self._sites.get(origin)) is None:
            public = any(map(is_public, addresses))
            slots = asyncio.Semaphore(self._settings.per_site if public else self._settings.concurrency)
            site = self._sites[origin] = _Site(origin, slots, self._settings.delay if public else 0.0)
        return site

    async def _allowed(self, site: _Site, url: httpx2.URL) -> None:
        if site.rules is None:
            site.rules = asyncio.create_task(self._rules(site.origin))
        rules = await asyncio.shield(site.rules)
        where = f"robots.txt of {host_of(url)}"
        if rules.unreachable is not None:
            raise FetchError(f"{where} cannot be had, which forbids all of the site (RFC 9309): {rules.unreachable}")
        if rules.body is None:
            return
        try:
            says = await self._readers.read("robots", rules.body, site.origin, url=str(url), agent=AGENT, limit=0)
        except UnreadableError as error:
            raise FetchError(f"{where} {error}") from error
        if not says.allowed:
            raise FetchError(f"{where} keeps programs from this page")
        site.delay = max(site.delay, min(says.delay or 0.0, _LONGEST_DELAY))

    async def _rules(self, origin: str) -> _Rules:
        """What the site has: 2xx is read, 4xx allows all, anything else forbids all."""
        hops: list[Hop] = []
        try:
            async with self._asking, asyncio.timeout(self._settings.seconds):
                reply = await follow(
                    checked_url(f"{origin}/robots.txt", self._settings.network),
                    self._settings.network,
                    lambda target: self._client.get(target, lambda status, _: _ROBOTS_BYTES if status < 300 else 0),
                    hops,
                    _ROBOTS_REDIRECTS,
                )
        except TimeoutError:
            return _Rules(unreachable=f"no complete answer within {self._settings.seconds:g} s")
        except RedirectsError:  # as if there were none (RFC 9309, 2.3.1.2)
            return _Rules()
        except (FetchError, RefusedError) as error:
            return _Rules(unreachable=str(error))
        if 200 <= reply.status < 300:
            return _Rules(body=reply.body) if reply.body.strip() else _Rules()
        return _Rules() if 400 <= reply.status < 500 else _Rules(unreachable=f"HTTP {reply.status}")
