"""Pages that are fetched and read here: politely to their sites, with a text for each kind of body."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pytest_agentbench.config.keys import find_plaintext_problem
from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.tools.base import Hop
from pytest_agentbench.tools.fetching import MAX_TEXT, is_html, is_text
from pytest_agentbench.tools.network import RefusedError, check_url, host_of, is_public, system_resolver
from pytest_agentbench.tools.readers import Kind, Readers, UnreadableError
from pytest_agentbench.tools.web_client import (
    FetchError,
    RedirectsError,
    Reply,
    Wanted,
    WebClient,
    describe_hops,
    follow_redirects,
)

if TYPE_CHECKING:
    import httpx2


KEY_VARIABLE = "JINA_API_KEY"
URL_VARIABLE = "JINA_BASE_URL"
JINA_URL = "https://r.jina.ai/"


@dataclass(frozen=True, slots=True)
class PageSettings:
    """Settings of fetching: from where, by whom, how much at once.

    `jina_key` set: the Jina reader at `jina_url` fetches and reads all pages. Else they are fetched from here: at most
    `concurrency` at once and `per_site` of one site, whose requests begin at least `delay` seconds apart. Sites of
    addresses that are not public, which `network.allow_private` has to name, are one's own: they get no such rest. A
    page's requests may take `seconds` together; it may have `most_bytes`, a PDF four times as many.
    """

    network: NetworkSettings = field(default_factory=NetworkSettings)
    jina_key: str | None = field(default=None, repr=False)
    jina_url: str = JINA_URL
    concurrency: int = 50
    per_site: int = 4
    delay: float = 0.5
    seconds: float = 30.0
    most_bytes: int = 5 * 2**20

    @classmethod
    def of(cls, network: NetworkSettings, environ: Mapping[str, str] = os.environ) -> Self:
        """Return the settings, with the Jina reader if the environment has a key for it.

        JINA_BASE_URL names another address of it. Raises ConfigError if that is not a URL, or one to which the key
        would travel unencrypted.
        """
        url = environ.get(URL_VARIABLE) or JINA_URL
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"{URL_VARIABLE}: found {url!r}, expected a URL such as {JINA_URL}")
        if environ.get(KEY_VARIABLE) and (problem := find_plaintext_problem(url)):
            raise ConfigError(f"{URL_VARIABLE}: {problem}")
        return cls(network, environ.get(KEY_VARIABLE, "").strip() or None, url)


_PDF = "application/pdf"
_UNKNOWN = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/x-download"})
_PDF_FACTOR = 4
_LOOK = 1024
_HTML_STARTS = (b"<!doctype html", b"<html", b"<head", b"<body")
_NOTHING = {
    "html": "it shows no text unless its scripts are run",
    "text": "it is blank",
    "pdf": "it has no text (it may be a scan)",
}


def wanted_bytes(most: int) -> Wanted:
    """Return the maximum size of each kind of body: `most` bytes, four times that for a possible PDF."""

    def wanted(status: int, media_type: str) -> int:
        if status >= 400:
            return 0
        if media_type == _PDF or media_type in _UNKNOWN:
            return most * _PDF_FACTOR
        if not is_text(media_type):
            raise FetchError(f"found {media_type[:80]!r}, expected text or PDF: it was not fetched")
        return most

    return wanted


async def page_text(readers: Readers, reply: Reply, way: str) -> str:
    """Return title, description and text, joined by blank lines.

    Raises FetchError with the page's problem.
    """
    where = f"{way}{reply.url}: "
    if not reply.complete:
        raise FetchError(f"{where}found over {len(reply.body) / 2**20:.3g} MB, expected less")
    if not reply.body.strip():
        raise FetchError(f"{where}it is empty")
    kind = _kind(reply)
    if kind is None:
        raise FetchError(f"{where}found neither text nor PDF, though declared as {reply.media_type[:80]!r}")
    try:
        page = await readers.read(
            kind, reply.body, host_of(reply.url), charset=reply.charset or "", limit=MAX_TEXT, links=False
        )
    except UnreadableError as error:
        raise FetchError(f"{where}its {kind.upper() if kind != 'text' else 'text'} {error}") from error
    if not page.text.strip():
        raise FetchError(f"{where}{_NOTHING[kind]}")
    return joined(page.title, page.description, page.text, page.length - len(page.text))


def joined(title: str, description: str, text: str, left_out: int) -> str:
    """Return the texts, joined by blank lines, with a note of how many characters of the text are `left_out`."""
    note = f"[... {left_out:,} characters left out ...]" if left_out else ""
    return "\n\n".join(part.strip() for part in (title, description, text, note) if part.strip())


def _kind(reply: Reply) -> Kind | None:
    """Return the kind of a body by its beginning, because servers often declare a wrong one; None for anything else."""
    start = reply.body[:_LOOK].lower()
    # Readers of PDF take its mark anywhere in the first 1,024 bytes (PDF Reference 1.7, appendix H, note 13).
    if start.lstrip().startswith(b"%pdf-") or (reply.media_type == _PDF and b"%pdf-" in start):
        return "pdf"
    if any(mark in start for mark in _HTML_STARTS):
        return "html"
    wide = (reply.charset or "").lower().startswith("utf-16") or start.startswith((b"\xff\xfe", b"\xfe\xff"))
    if b"\0" in start and not wide:
        return None
    if is_html(reply.media_type):
        return "html"
    if is_text(reply.media_type) or reply.media_type in _UNKNOWN:
        return "text"
    return None


AGENT = "pytest-agentbench"
"""The name under which robots.txt knows us."""

_LONGEST_DELAY = 10.0
_ROBOTS_BYTES = 500 * 2**10
_ROBOTS_REDIRECTS = 5
_ROBOTS_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class _Rules:
    """A robots.txt, or the reason why nothing is allowed. None: all is allowed."""

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
    """Sites of one session by scheme, host and port; each robots.txt is fetched once (RFC 9309)."""

    def __init__(self, settings: PageSettings, client: WebClient, readers: Readers) -> None:
        self._settings, self._client, self._readers = settings, client, readers
        self._sites: dict[str, _Site] = {}
        self._asking = asyncio.Semaphore(_ROBOTS_AT_ONCE)

    async def close(self) -> None:
        """Fetch nothing more."""
        tasks = [site.rules for site in self._sites.values() if site.rules is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def slot(self, url: httpx2.URL) -> AsyncIterator[None]:
        """Hold one of the site's few places. Raises RefusedError, and FetchError where its name cannot be resolved."""
        site = await self._site(url)
        async with site.slots:
            yield

    async def wait(self, url: httpx2.URL) -> None:
        """Wait until the site may be asked for that page. Raises RefusedError, and FetchError if it may not."""
        site = await self._site(url)
        await self._allowed(site, url)
        now = time.monotonic()
        begin = max(now, site.next_at)
        # Booked before the wait, so that all waiting requests get different times.
        site.next_at = begin + site.delay
        if begin > now:
            await asyncio.sleep(begin - now)

    async def _site(self, url: httpx2.URL) -> _Site:
        addresses = await self._client.addresses(url)
        origin = f"{url.scheme}://{url.netloc.decode('ascii')}"
        if (site := self._sites.get(origin)) is None:
            # A site without a public address is one's own, where politeness only costs time.
            public = any(map(is_public, addresses))
            settings = self._settings
            at_once, delay = (settings.per_site, settings.delay) if public else (settings.concurrency, 0.0)
            site = self._sites[origin] = _Site(origin, asyncio.Semaphore(at_once), delay)
        return site

    async def _allowed(self, site: _Site, url: httpx2.URL) -> None:
        if site.rules is None:
            # A separate task, shared by all pages of the site: the page that asked first may be cancelled.
            site.rules = asyncio.create_task(self._rules(site.origin))
        rules = await asyncio.shield(site.rules)
        where = f"robots.txt of {host_of(url)}"
        if rules.unreachable is not None:
            raise FetchError(f"{where} cannot be read, which forbids the whole site (RFC 9309): {rules.unreachable}")
        if rules.body is None:
            return
        try:
            says = await self._readers.read("robots", rules.body, site.origin, url=str(url), agent=AGENT, limit=0)
        except UnreadableError as error:
            raise FetchError(f"{where} {error}") from error
        if not says.allowed:
            raise FetchError(f"{where} keeps programs from this page")
        # Crawl-delay counts up to ten seconds: with more, no second page would be read in its time.
        site.delay = max(site.delay, min(says.delay or 0.0, _LONGEST_DELAY))

    async def _rules(self, origin: str) -> _Rules:
        """Return the site's rules: 2xx is read, 4xx allows all, anything else forbids all."""
        hops: list[Hop] = []
        try:
            async with self._asking, asyncio.timeout(self._settings.seconds):
                reply = await follow_redirects(
                    check_url(f"{origin}/robots.txt", self._settings.network),
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
            if reply.body.strip():
                return _Rules(body=reply.body)
            return _Rules()
        # RFC 9309, 2.3.1.3 and 2.3.1.4: 4xx means no robots.txt; 5xx one that cannot be had, which forbids all.
        if 400 <= reply.status < 500:
            return _Rules()
        return _Rules(unreachable=f"HTTP {reply.status}")


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
        self._unread = _BodyMemory(_MOST_UNREAD)
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
        """Implement `Source.content`: few requests to one site at once, few in all; waiting for a reader occupies no
        slot.
        """
        hops: list[Hop] = []
        target = check_url(url, self._settings.network)
        async with self._sites.slot(target), self._free:
            self._readers.prepare()
            asking = _PageRequests(self._settings, self._client, self._sites)
            reply = await follow_redirects(target, self._settings.network, asking, hops, _REDIRECTS)
            if reply.status >= 400:
                raise FetchError(f"{describe_hops(hops[:-1])}{reply.url}: HTTP {reply.status}")
            # Still within the site's slot: where bodies are not read as fast as they come, no more are fetched.
            await self._unread.acquire(len(reply.body))
        try:
            return await page_text(self._readers, reply, describe_hops(hops[:-1]))
        finally:
            self._unread.release(len(reply.body))


class _BodyMemory:
    """So many bytes of bodies may wait in memory; a body that is larger alone."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._left = asyncio.Event()

    async def acquire(self, size: int) -> None:
        """Wait until there is room for it."""
        # With nothing held even a body larger than the room comes in: it would wait for ever.
        while self._held and self._held + size > self._most:
            self._left.clear()
            await self._left.wait()
        self._held += size

    def release(self, size: int) -> None:
        """Give its room back."""
        self._held -= size
        self._left.set()


class _PageRequests:
    """Requests for one page: in turn with the site's others, never twice for one URL, in limited time.

    A site's request to come back soon (429 or 503 with Retry-After) is honoured.
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
            # The time is for all requests of the page: else ten redirects could take ten times as long.
            self._left = max(0.0, self._left - (time.monotonic() - begun))
