"""Connections to endpoints: the requests of OpenAI's client, over pools that stay cheap with hundreds in flight.

Separate from the client, because httpx2 is imported with the first request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING
from urllib.parse import quote
from urllib.request import getproxies

import httpx2

from pytest_agentbench.bounded.replies import ACCEPTED, ReplyRefusedError, bounded_replies
from pytest_agentbench.models.apis.choice import find_endpoint_api
from pytest_agentbench.models.apis.messages import SAMPLING_VERSION, VERSION, choose_auth_header
from pytest_agentbench.models.apis.streams import open_reader
from pytest_agentbench.models.failures import is_page, not_connected, refused_reply, stalled
from pytest_agentbench.models.replies import RawReply
from pytest_agentbench.models.streaming import EVENT_STREAM, EventReader
from pytest_agentbench.records.case import Model

if TYPE_CHECKING:
    from pytest_agentbench.models.passing import PassedRequest

_CONNECT_SECONDS = 10.0
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol)
"""Errors before the request reached its endpoint."""
_END_SECONDS = 0.5
"""Seconds to wait for the end of a body after its last event. Only a body that is read to its end leaves its connection
to the next request."""


@cache
def tls_context() -> ssl.SSLContext:
    """Return the certificates for HTTPS. Reading them takes about 50 ms of CPU, so they are read once."""
    return httpx2.create_ssl_context()


class Connections(httpx2.AsyncBaseTransport):
    """A transport with a pool for each connection: the last that became free serves the next request.

    A pool probes each of its idle connections twice for every request, and answers that arrive together leave many of
    them idle: with 200 connections in one pool this is a quarter of the CPU time of a request.
    """

    def __init__(self, limits: httpx2.Limits) -> None:
        self._limits = limits
        self._pools: list[httpx2.AsyncHTTPTransport] = []
        self._free: list[httpx2.AsyncHTTPTransport] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request on a free connection, else on a new one, and return its answer."""
        if not self._free:
            self._pools.append(httpx2.AsyncHTTPTransport(verify=tls_context(), limits=self._limits))
            self._free.append(self._pools[-1])
        pool = self._free.pop()
        try:
            response = await pool.handle_async_request(request)
        except BaseException:
            self._free.append(pool)
            raise
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Lent(response.stream, partial(self._free.append, pool))
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(pool.aclose() for pool in self._pools))


class _Lent(httpx2.AsyncByteStream):
    """The body of a reply, whose pool is free again once it is closed."""

    def __init__(self, body: httpx2.AsyncByteStream, give_back: Callable[[], None]) -> None:
        self._body, self._give_back = body, give_back
        self._closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._body)

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self._body.aclose()
        finally:
            self._give_back()


class HttpConnection:
    """A connection to one endpoint with one key. For one event loop.

    OpenAI's client makes the first request; the others are copies with another body. To make and send each by the
    client costs 0.6 ms more, for parts that do not differ.
    """

    def __init__(self, model: Model, key: str, headers: Mapping[str, str], auth_header: str = "Authorization") -> None:
        """Set up the connection. `headers` are sent with each request, and the key in `auth_header`.

        In Anthropic's API the version decides the header of the key, unless the model's entry names a header.
        """
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        self._model, self._endpoint_api = model, find_endpoint_api(model)
        self._headers, self._key, self._auth_header = dict(headers), key, auth_header
        overrides = model.dialect_overrides
        named = overrides is not None and "auth_header" in overrides.model_fields_set
        self._by_version = model.api == "messages" and not named
        # Connecting is limited here; the request as a whole by the caller's time limit, which httpx2 does not
        # have. The default of OpenAI's client would end a request after 600 s with any `timeout` of a profile.
        timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        # The throttle limits the requests in flight; the pool must never queue in addition.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=30)
        proxies = getproxies().keys() - {"no"}
        self._http = DefaultAsyncHttpxClient(
            transport=None if proxies else Connections(limits),  # requests through a proxy use the client's transport
            limits=limits,
            timeout=timeout,
            event_hooks=bounded_replies(),
            # A redirect would send the request, and on the same host the key, to an address that the user did
            # not name.
            follow_redirects=False,
        )
        self._api = AsyncOpenAI(
            api_key=key or "none",
            base_url=model.base_url,
            default_query=dict(model.query),
            # Retries of the client would ignore limits and the breaker, and would be missing in traces.
            max_retries=0,
            timeout=timeout,
            http_client=self._http,
        )
        self._samples: dict[tuple[str, str], asyncio.Task[httpx2.Request]] = {}

    async def send(self, body: bytes, headers: Mapping[str, str], stall_seconds: float | None = None) -> RawReply:
        """Return the reply to a request with any status. `headers` are added to those of the client.

        With `stall_seconds` the events of a streamed reply are joined, with at most this time between two of them.
        Raises RequestFailed if there is no reply, or it is too long.
        """
        request = await self.make_request(body, headers, streamed=stall_seconds is not None)
        with self._explained():
            if stall_seconds is not None:
                return await self._send_for_stream(request, stall_seconds)
            return _read_whole(await self._http.send(request))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise RequestFailed if there is no reply."""
        try:
            yield
        except (httpx2.HTTPError, httpx2.StreamError, ConnectionError) as error:
            if isinstance(error, ReplyRefusedError):
                raise refused_reply(str(error)) from error
            failed = not_connected(error, self._model)
            failed.sent = not isinstance(error, _UNSENT)
            raise failed from error

    async def forward(self, passed: PassedRequest, headers: Mapping[str, str], stall_seconds: float) -> RawReply:
        """Send an agent's own request, and pass a good reply to the agent, events at once; return it whole.

        Raises the RequestFailed of `send`, also if the reply breaks off.
        """
        request = await self.make_request(passed.body, {**headers, **passed.headers}, streamed=passed.stream)
        with self._explained():
            response = await self._http.send(request, stream=True)
            try:
                if response.is_success and _kind_of(response) == EVENT_STREAM:
                    await passed.open(response.headers)
                    reader = open_reader(self._model.api)
                    await _read_events(response, reader, stall_seconds, passed.write)
                    return reader.finish(response.status_code, response.headers)
                # The reply is read whole before its agent gets any of it: a reply that breaks off, or a page in place
                # of an answer, can still be asked for again.
                await response.aread()
                reply = _read_whole(response)
                if response.is_success and not is_page(_kind_of(response), reply.content):
                    await passed.open(response.headers)
                    await passed.write(reply.content)
                else:
                    passed.refused = reply
                return reply
            finally:
                await response.aclose()

    async def _send_for_stream(self, request: httpx2.Request, stall_seconds: float) -> RawReply:
        reader = open_reader(self._model.api)
        response = await self._http.send(request, stream=True)
        try:
            if not response.is_success or _kind_of(response) != EVENT_STREAM:
                await response.aread()
                return _read_whole(response)
            await _read_events(response, reader, stall_seconds)
        finally:
            await response.aclose()
        return reader.finish(response.status_code, response.headers)

    async def make_request(self, body: bytes, headers: Mapping[str, str], *, streamed: bool = False) -> httpx2.Request:
        """Return the request that `send` sends."""
        path = (streamed and self._endpoint_api.streamed) or self._endpoint_api.path
        kind = path, self._choose_auth_header(headers)
        if kind not in self._samples:
            self._samples[kind] = asyncio.ensure_future(self._make_sample(*kind))
        # Shielded: the first request may be cancelled while others wait for the same sample.
        sample = await asyncio.shield(self._samples[kind])
        return httpx2.Request(
            sample.method,
            sample.url,
            # Without additional headers the sample's are shared: to copy them takes longer than all else here.
            headers={**sample.headers, **headers} if headers else sample.headers,
            cookies=self._http.cookies,
            content=body,
            extensions=sample.extensions,
        )

    def _choose_auth_header(self, headers: Mapping[str, str]) -> str:
        if not self._by_version:
            return self._auth_header
        sent_headers = {name.lower(): value for name, value in (*self._headers.items(), *headers.items())}
        return choose_auth_header(sent_headers.get(VERSION, SAMPLING_VERSION))

    async def _make_sample(self, path: str, auth_header: str) -> httpx2.Request:
        """Return a request made by OpenAI's client, without the headers of its body."""

        def keep(request: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(200, request=request)

        accepting = {"accept-encoding": ACCEPTED}
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(keep), headers=accepting) as nowhere:
            api = self._api.with_options(http_client=nowhere)
            named = path.format(model=quote(self._model.requested_model, safe="/"))
            request: httpx2.Request = (await api.post(named, cast_to=httpx2.Response, content=b"{}")).request
        del request.headers["content-length"]
        # Endpoints refuse a wrong key in `Authorization` in addition to the right one in another header.
        has_other_key = not self._key and (self._headers or self._by_version)
        if auth_header != "Authorization" or has_other_key:
            del request.headers["authorization"]
        if self._key and auth_header != "Authorization":
            request.headers[auth_header] = self._key
        if self._model.api == "messages":
            request.headers[VERSION] = SAMPLING_VERSION
        request.headers.update(self._headers)
        return request

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()


def _read_whole(response: httpx2.Response) -> RawReply:
    reply = RawReply(response.status_code, response.headers, response.content)
    if not response.has_redirect_location:
        return reply
    return replace(reply, redirect=str(response.url.join(response.headers["location"])))


def _kind_of(response: httpx2.Response) -> str:
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()


async def _read_events(
    response: httpx2.Response,
    reader: EventReader,
    stall_seconds: float,
    write: Callable[[bytes], Awaitable[None]] | None = None,
) -> None:
    """Read a body to its end, and pass each part to `write`. Errors after the answer is complete are ignored."""
    loop, heard, body = asyncio.get_running_loop(), 0.0, response.stream
    assert isinstance(body, httpx2.AsyncByteStream)
    try:
        async with asyncio.timeout(None) as silence:
            # Not `aiter_bytes`: for a body in hundreds of parts its layers take as long as the rest, and the parts are
            # unpacked already.
            async for part in body:
                if write is not None:
                    await write(part)
                # Comments do not count: a gateway sends them for as long as its server hangs.
                if not reader.feed(part):
                    continue
                most, now = stall_seconds, loop.time()
                if reader.ended:
                    most = _END_SECONDS
                # Up to a sixteenth late, because to move a timer takes longer than to read an event.
                if reader.ended or now - heard > most / 16:
                    heard = now
                    silence.reschedule(now + most * 17 / 16)
    except TimeoutError as error:
        if not (reader.complete or reader.ended):
            raise stalled(stall_seconds) from error
    except (httpx2.HTTPError, httpx2.StreamError):
        if not (reader.complete or reader.ended):
            raise
