"""A client for many web pages that connects to checked addresses only and reuses connections."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.models.connections import tls_context
from pytest_agentbench.models.failures import retry_after_seconds
from pytest_agentbench.tools.base import Hop
from pytest_agentbench.tools.network import RefusedError, Resolve, check_addresses, check_url, host_of

if TYPE_CHECKING:
    import httpx2

_MAX_ADDRESSES = 3
_CONNECT_SECONDS = 5.0
_RESOLVED_SECONDS = 60.0
_MAX_IDLE = 64
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_ENCODINGS = frozenset({"", "identity", "gzip", "x-gzip", "deflate"})
# Other encodings may decompress to any size in one step
_HEADERS = {"Accept-Encoding": "gzip, deflate", "Connection": "keep-alive"}


class FetchError(AgentbenchError):
    """Raised for a page that cannot be fetched: refused by the policy, unreachable, too large, or not text."""


class RedirectsError(FetchError):
    """Raised after too many redirects."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's reply. `location` is the target of a redirect, `retry_after` the seconds to wait, each None without
    one.

    `complete` False: `body` is the beginning of a longer body.
    """

    url: httpx2.URL
    address: str
    status: int
    location: str | None
    retry_after: float | None
    media_type: str
    charset: str | None
    body: bytes
    complete: bool


Wanted = Callable[[int, str], int]
"""Maximum bytes of a body, by status and media type; 0: none. Raises FetchError to refuse the body, with the reason."""

Ask = Callable[["httpx2.URL"], Awaitable[Reply]]


class WebClient:
    """A client for GET. It reuses connections, each for its own host only.

    A host's name is resolved once a minute, all its addresses are checked, and the connection goes to one of them.
    Proxies and credentials of the environment are not used. The block's end closes it.
    """

    def __init__(self, settings: NetworkSettings, resolve: Resolve, headers: Mapping[str, str], seconds: float) -> None:
        self._settings, self._resolve = settings, resolve
        self._headers, self._seconds = {**_HEADERS, **headers}, seconds
        self._sites: dict[tuple[str, str, int | None], _Site] = {}
        # All idle connections, the oldest first: beyond _MAX_IDLE the oldest is closed, of any site
        self._idle: OrderedDict[_Connection, _Site] = OrderedDict()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._idle:
            await self._idle.popitem()[0].transport.aclose()

    async def addresses(self, url: httpx2.URL) -> list[str]:
        """Return the checked addresses of the URL's host. Raises RefusedError, and FetchError if there are none."""
        site = self._site(url)
        if time.monotonic() >= site.resolved_until:
            async with site.resolving:
                # Another request may have resolved the name while this one waited for the lock
                if time.monotonic() >= site.resolved_until:
                    await self._resolve_site(site, url)
        if site.problem is not None:
            # A new exception each time: a raised one would collect the traces of all requests
            raise type(site.problem)(str(site.problem))
        return site.addresses

    async def _resolve_site(self, site: _Site, url: httpx2.URL) -> None:
        site.problem = None
        try:
            site.addresses = await check_addresses(url, self._settings, self._resolve)
        except RefusedError as error:
            site.problem = error
        except (OSError, UnicodeError):
            site.problem = FetchError(f"the name {host_of(url)} cannot be resolved")
        site.resolved_until = time.monotonic() + _RESOLVED_SECONDS

    async def get(self, url: httpx2.URL, limit_of: Wanted) -> Reply:
        """Send one GET and return the reply; redirects are not followed. Raises RefusedError and FetchError."""
        import httpx2

        addresses = await self.addresses(url)
        try:
            return await self._request_any(url, addresses[:_MAX_ADDRESSES], limit_of)
        except httpx2.HTTPError as error:
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise FetchError(f"{url}: no answer ({reason})") from error
        except httpx2.InvalidURL as error:
            raise FetchError(f"{url}: not a URL that can be requested ({error})") from error

    async def _request_any(self, url: httpx2.URL, addresses: list[str], limit_of: Wanted) -> Reply:
        """Send the request over the connection that was used last, else to the first reachable address."""
        import httpx2

        site = self._site(url)
        while site.idle and (idle := self._take_idle(site)):
            # The name may have moved, so a connection is reused only while its address would be chosen again
            if idle.address in addresses:
                try:
                    return await self._request(url, idle, limit_of)
                except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
                    break  # the server was closing it
            await idle.transport.aclose()
        for number, address in enumerate(addresses, start=1):
            try:
                return await self._request(url, _Connection(address, _make_transport()), limit_of)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if number == len(addresses):
                    raise
        raise AssertionError("a resolver gives at least one address")

    async def _request(self, url: httpx2.URL, connection: _Connection, limit_of: Wanted) -> Reply:
        """Send the request to the address of a connection, with the host in the header and the TLS handshake."""
        import httpx2

        timeout = httpx2.Timeout(self._seconds, connect=_CONNECT_SECONDS).as_dict()
        request = httpx2.Request(
            "GET",
            # The checked address instead of the name: a second look-up could return another one (DNS rebinding)
            url.copy_with(host=connection.address),
            headers={**self._headers, "Host": url.netloc.decode("ascii")},
            extensions={"sni_hostname": host_of(url), "timeout": timeout},
        )
        read = False
        try:
            response = await connection.transport.handle_async_request(request)
            try:
                reply = await _read_reply(response, url, connection.address, limit_of)
                # The rest of a truncated body stays in the connection, where it would be read as the next response
                read = reply.complete
            finally:
                await response.aclose()
        finally:
            if read:
                await self._keep_idle(url, connection)
            else:
                await connection.transport.aclose()
        return reply

    def _site(self, url: httpx2.URL) -> _Site:
        return self._sites.setdefault((url.scheme, host_of(url), url.port), _Site())

    def _take_idle(self, site: _Site) -> _Connection:
        connection = site.idle.pop()
        del self._idle[connection]
        return connection

    async def _keep_idle(self, url: httpx2.URL, connection: _Connection) -> None:
        site = self._site(url)
        site.idle.append(connection)
        self._idle[connection] = site
        if len(self._idle) > _MAX_IDLE:
            oldest, of = self._idle.popitem(last=False)
            of.idle.remove(oldest)
            await oldest.transport.aclose()


@dataclass(frozen=True, slots=True, eq=False)
class _Connection:
    address: str
    transport: httpx2.AsyncHTTPTransport


@dataclass(slots=True)
class _Site:
    addresses: list[str] = field(default_factory=list)
    problem: FetchError | RefusedError | None = None
    resolved_until: float = 0.0
    resolving: asyncio.Lock = field(default_factory=asyncio.Lock)
    idle: list[_Connection] = field(default_factory=list)


async def follow_redirects(
    target: httpx2.URL, settings: NetworkSettings, ask: Ask, hops: list[Hop], most: int
) -> Reply:
    """Return the reply after at most `most` redirects. Each request is added to `hops`.

    `target` is a checked URL; redirects are checked here. Raises FetchError, whose text begins with the requests so
    far.
    """
    try:
        while len(hops) <= most:
            reply = await ask(target)
            hops.append(Hop(str(target), reply.address, reply.status))
            if reply.location is None:
                return reply
            target = check_url(reply.location, settings, base=target)
    except (FetchError, RefusedError) as error:
        raise FetchError(f"{describe_hops(hops)}{error}") from error
    raise RedirectsError(f"{describe_hops(hops)}more than {most} redirects")


def describe_hops(hops: list[Hop]) -> str:
    """Return the requests so far as the beginning of a message."""
    return "".join(f"{hop.url} -> " for hop in hops)


async def _read_reply(response: httpx2.Response, url: httpx2.URL, address: str, limit_of: Wanted) -> Reply:
    status, headers = response.status_code, response.headers
    location = headers.get("location") if status in _REDIRECTS else None
    media_type = headers.get("content-type", "text/plain").partition(";")[0].strip().lower()
    body, complete = b"", False
    if location is None:
        try:
            if limit := limit_of(status, media_type):
                body, complete = await _read_body(response, limit)
        except FetchError as error:
            raise FetchError(f"{url}: {error}") from error
    charset, retry_after = response.charset_encoding, retry_after_seconds(headers)
    return Reply(url, address, status, location, retry_after, media_type, charset, body, complete)


async def _read_body(response: httpx2.Response, limit: int) -> tuple[bytes, bool]:
    """Return the body, decompressed in parts, and whether it is complete.

    Bodies that are compressed twice are refused: they could decompress to nothing for hours between two parts.
    """
    packed = response.headers.get("content-encoding", "").strip().lower()
    if "," in packed:
        raise FetchError("its body is packed more than once: it was not fetched")
    if packed not in _ENCODINGS:
        raise FetchError(f"its body is packed by {packed[:40]!r}, expected gzip or deflate: it was not fetched")
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > limit:
            return bytes(body[:limit]), False
    return bytes(body), True


def _make_transport() -> httpx2.AsyncHTTPTransport:
    import httpx2

    return httpx2.AsyncHTTPTransport(
        verify=tls_context(), trust_env=False, limits=httpx2.Limits(max_connections=1, max_keepalive_connections=1)
    )
