"""Connections to endpoints: what OpenAI's client would send, over pools that stay cheap with hundreds in flight.

Apart from the client, for what it is made of, httpx2, is imported when something is asked.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING
from urllib.request import getproxies

import httpx2

from pytest_agentbench.bounded.replies import ReplyRefusedError, bounded_replies
from pytest_agentbench.models.failures import not_connected, refused_reply
from pytest_agentbench.models.replies import RawReply
from pytest_agentbench.records.case import Model

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_CONNECT_SECONDS = 10.0


@cache
def tls_context() -> ssl.SSLContext:
    """Return the certificates that HTTPS is checked by. Reading them takes some 50 ms of CPU, so they are read once."""
    return httpx2.create_ssl_context()


class Pools(httpx2.AsyncBaseTransport):
    """A transport that takes turns between several pools of one endpoint.

    For every request a pool probes each of its idle connections, and answers that arrive together leave many of them
    idle: with 200 in one pool that is a quarter of all that a request costs.
    """

    IN_FLIGHT = 16
    """Requests at once that a pool is for, up to MOST pools."""
    MOST = 64

    def __init__(self, in_flight: int, limits: httpx2.Limits) -> None:
        count = min(-(-in_flight // self.IN_FLIGHT), self.MOST)
        self._pools = [httpx2.AsyncHTTPTransport(verify=tls_context(), limits=limits) for _ in range(count)]
        self._turns = itertools.cycle(self._pools)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request through the next pool and return its answer."""
        return await next(self._turns).handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections of all pools."""
        await asyncio.gather(*(pool.aclose() for pool in self._pools))


class HttpConnection:
    """The way to one endpoint with one key, for `in_flight` requests at once. For one event loop.

    Requests are those of OpenAI's client, which makes the first; the others are that one with another body. To make and
    send each by it would cost 0.6 ms more, for nothing that differs between them.
    """

    def __init__(self, model: Model, key: str, in_flight: int) -> None:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        self._model = model
        # Connecting is bounded here; the request as a whole by the caller's time limit, which httpx2 has none for. The
        # client's own default would end a request after 600 s, whatever `timeout` a profile gives.
        timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        # The throttle bounds what is in flight; the pool must never queue behind its back.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=30)
        proxied = getproxies().keys() - {"no"}  # the way through one is the client's own
        self._http = DefaultAsyncHttpxClient(
            transport=None if proxied else Pools(in_flight, limits),
            limits=limits,
            timeout=timeout,
            event_hooks=bounded_replies(),
            # A redirect would take the request, and on the same host the key, to where nobody said they go.
            follow_redirects=False,
        )
        self._api = AsyncOpenAI(
            api_key=key or "none",
            base_url=model.base_url,
            # The client would retry behind our back: outside the limits, unseen in traces, and deaf to a dead endpoint.
            max_retries=0,
            timeout=timeout,
            http_client=self._http,
        )
        self._sample: asyncio.Task[httpx2.Request] | None = None

    async def send(self, body: bytes, headers: Mapping[str, str]) -> RawReply:
        """Return the reply to a request with these headers beside the client's own, whatever its status.

        Raises RequestFailed where none comes, or one that is too long.
        """
        if self._sample is None:
            self._sample = asyncio.ensure_future(_make_sample(self._api))
        # Shielded: the first request may be cut off, and the others wait for the same
        sample = await asyncio.shield(self._sample)
        request = httpx2.Request(
            sample.method,
            sample.url,
            headers={**sample.headers, **headers} if headers else sample.headers,
            cookies=self._http.cookies,
            content=body,
            extensions=sample.extensions,
        )
        try:
            response = await self._http.send(request)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            if isinstance(error, ReplyRefusedError):
                raise refused_reply(str(error)) from error
            raise not_connected(error, self._model) from error
        target = str(response.url.join(response.headers["location"])) if response.has_redirect_location else None
        return RawReply(response.status_code, response.headers, response.content, target)

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()


async def _make_sample(api: AsyncOpenAI) -> httpx2.Request:
    """Return a request for a completion as OpenAI's client makes it, without what belongs to its body."""

    def keep(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, request=request)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(keep)) as nowhere:
        asking = api.with_options(http_client=nowhere).post("/chat/completions", cast_to=httpx2.Response, content=b"{}")
        request: httpx2.Request = (await asking).request
    del request.headers["content-length"]
    return request
