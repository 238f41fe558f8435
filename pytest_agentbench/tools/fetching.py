"""GET of a page of the web: only checked addresses are connected to, at every redirect again."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_agentbench.config import NetworkSettings
from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.models import tls_context
from pytest_agentbench.tools.network import (
    InThread,
    RefusedError,
    Resolve,
    checked_addresses,
    checked_url,
    host_of,
    system_resolver,
)
from pytest_agentbench.tools.pages import UnreadableError, can_read_html, is_text, readable

if TYPE_CHECKING:
    import httpx2

MAX_PAGE_BYTES = 5 * 2**20
"""The largest body that is fetched, unpacked."""

_MAX_REDIRECTS = 5
_MAX_ADDRESSES = 3
_SECONDS = 30.0
_CONNECT_SECONDS = 5.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {
    "User-Agent": "pytest-agentbench (web_fetch)",
    "Accept": "text/html, application/xhtml+xml, text/*, application/json, application/xml;q=0.9, */*;q=0.1",
}


class FetchError(AgentbenchError):
    """A page could not be had: refused by the network policy, not reached, too large, no text."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One request on the way to a page: the `address` that was connected to (None: nobody was asked), the status."""

    url: str
    address: str | None
    status: int


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


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    location: str | None
    media_type: str
    charset: str | None
    body: bytes


def web_fetcher(settings: NetworkSettings, in_thread: InThread, resolve: Resolve | None = None) -> Fetch | None:
    """The web as the settings allow it; None where the extra `web` is not installed.

    Names are resolved here, once a request, and all of their addresses are checked; the connection goes to one of
    these and to no other. Proxies and credentials of the environment are not used.
    """
    if not can_read_html():
        return None
    resolver = resolve or system_resolver(in_thread)

    async def fetch(url: str) -> Page:
        hops: list[Hop] = []
        try:
            async with asyncio.timeout(_SECONDS):
                reply = await _follow(url, settings, resolver, hops)
                text = await _text(reply, hops)
        except TimeoutError as error:
            raise FetchError(_way(hops) + f"no complete answer within {_SECONDS:g} s") from error
        except RefusedError as error:
            raise FetchError(_way(hops) + str(error)) from error
        digest = hashlib.sha256(reply.body).hexdigest()
        return Page(tuple(hops), reply.media_type, len(reply.body), digest, text)

    return fetch


async def _text(reply: _Reply, hops: Sequence[Hop]) -> str:
    try:
        return await readable(reply.body, reply.media_type, reply.charset)
    except UnreadableError as error:
        raise FetchError(f"{_way(hops[:-1])}{hops[-1].url}: {error}") from error


async def _follow(url: str, settings: NetworkSettings, resolve: Resolve, hops: list[Hop]) -> _Reply:
    """The reply at the end of the redirects; what was asked is added to `hops`."""
    import httpx2

    target = checked_url(url, settings)
    while len(hops) <= _MAX_REDIRECTS:
        try:
            addresses = await checked_addresses(target, settings, resolve)
        except (OSError, UnicodeError) as error:
            raise FetchError(_way(hops) + f"the name {host_of(target)} cannot be resolved") from error
        try:
            address, reply = await _ask_any(target, addresses)
        except httpx2.HTTPError as error:
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise FetchError(_way(hops) + f"{target}: no answer ({reason})") from error
        hops.append(Hop(str(target), address, reply.status))
        if reply.location is None:
            return reply
        target = checked_url(reply.location, settings, base=target)
    raise FetchError(_way(hops) + f"more than {_MAX_REDIRECTS} redirects")


async def _ask_any(url: httpx2.URL, addresses: Sequence[str]) -> tuple[str, _Reply]:
    """The reply of the first address that can be connected to, and that address."""
    import httpx2

    last = min(len(addresses), _MAX_ADDRESSES) - 1
    for number, address in enumerate(addresses):
        try:
            return address, await _ask(url, address)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            if number >= last:
                raise
    raise AssertionError("a resolver gives at least one address")


async def _ask(url: httpx2.URL, address: str) -> _Reply:
    """One GET to an IP address, which the URL's host is asked for by header and certificate."""
    import httpx2

    headers = _HEADERS | {"Host": url.netloc.decode("ascii")}
    timeout = httpx2.Timeout(_SECONDS, connect=_CONNECT_SECONDS)
    async with (
        httpx2.AsyncClient(verify=tls_context(), trust_env=False, follow_redirects=False, timeout=timeout) as client,
        client.stream(
            "GET", url.copy_with(host=address), headers=headers, extensions={"sni_hostname": host_of(url)}
        ) as response,
    ):
        status, location = response.status_code, response.headers.get("location")
        if status in _REDIRECTS and location is not None:
            return _Reply(status, location, "", None, b"")
        media_type = response.headers.get("content-type", "text/plain").partition(";")[0].strip().lower()
        if not is_text(media_type):
            raise FetchError(f"{url}: HTTP {status}: found {media_type[:80]!r}, expected text: it was not fetched")
        return _Reply(status, None, media_type, response.charset_encoding, await _body(response, url))


async def _body(response: httpx2.Response, url: httpx2.URL) -> bytes:
    """The body, unpacked as it comes: what is packed twice could unpack to nothing, for hours, between two parts."""
    if "," in response.headers.get("content-encoding", ""):
        raise FetchError(f"{url}: its body is packed more than once: it was not fetched")
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MAX_PAGE_BYTES:
            raise FetchError(f"{url}: found over {MAX_PAGE_BYTES // 2**20} MB, expected less: it was not fetched")
    return bytes(body)


def _way(hops: Sequence[Hop]) -> str:
    return "".join(f"{hop.url} -> " for hop in hops)
