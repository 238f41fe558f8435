"""Connections over HTTPS: the certificates, and pools that stay cheap with hundreds of requests in flight.

Apart from the client, for what it is made of, httpx2, is imported when something is asked.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from functools import cache

import httpx2


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
