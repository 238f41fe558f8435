"""Earlier answers of an endpoint, which decide whether a refusal or a page concerns one request or all."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from pytest_agentbench.models.failures import RequestFailed, is_page, key_refused, request_refused
from pytest_agentbench.models.replies import RawReply
from pytest_agentbench.records.case import ApiName, Model

_REFUSED_IN_A_ROW = 3
"""Different requests that are refused without a success between them before the key itself counts as refused."""
_LONGEST = 3.0
"""Seconds for which a conclusion waits at most: who sent the request waits as long for its refusal."""


class Answered:
    """The addresses and keys that have given a good reply in this process. For one event loop."""

    def __init__(self) -> None:
        self.models: set[tuple[str | None, ApiName, str]] = set()
        """Addresses (base_url), protocols and models."""
        self.keys: set[tuple[str | None, tuple[str, ...]]] = set()
        """Addresses (base_url) and the variables that hold the key; without a key the protocol and the model."""


class Standing:
    """History of one model and key at an endpoint. For one event loop.

    A refusal (401, 403) or a page proves little while other requests are in flight: a firewall refuses one prompt
    faster than a model answers the others. So a conclusion about the key or the address waits some seconds for the
    requests in flight, and one success among them settles it.
    """

    def __init__(self, model: Model, answered: Answered) -> None:
        self._answered = answered
        self._address = model.base_url, model.api, model.requested_model
        # Without a key, an answer to one model proves nothing about another.
        self._key = model.base_url, tuple(model.variables) or (model.api, model.requested_model)
        self._refused: set[Hashable] = set()
        self._in_flight = self._waiting = self._successes = 0
        self._changed = asyncio.Event()

    @contextmanager
    def in_flight(self) -> Iterator[None]:
        """Count a request as in flight inside the block."""
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            self._wake()

    def succeeded(self) -> None:
        """Note a good reply."""
        self._answered.models.add(self._address)
        self._answered.keys.add(self._key)
        self._refused.clear()
        self._successes += 1
        self._wake()

    async def is_hiccup(self, reply: RawReply) -> bool:
        """Return whether a page in place of an answer comes from a proxy that fails for a moment.

        Before the model's first good reply it comes from a wrong address, which the model's name may be a part of.
        Call inside `in_flight`.
        """
        if reply.status not in (200, 404) or not is_page(reply.headers.get("content-type", ""), reply.content):
            return False
        return self._address in self._answered.models or await self._one_succeeds()

    async def explain_refusal(self, failed: RequestFailed, body: bytes, model: Model) -> RequestFailed:
        """Return the failure of a request that was refused as with a wrong key: the request's own, or the key's.

        `body` is the request: the same one refused again adds no evidence. Call inside `in_flight`.
        """
        self._refused.add(hash(body))
        good = self._key in self._answered.keys
        if good and len(self._refused) < _REFUSED_IN_A_ROW:
            return request_refused(failed, model)
        if await self._one_succeeds():
            return request_refused(failed, model)
        if good:
            return key_refused(failed, model, len(self._refused))
        return failed

    async def _one_succeeds(self) -> bool:
        """Wait for the requests in flight; return whether one of them succeeds in time."""
        before = self._successes
        self._waiting += 1
        self._wake()  # those who wait may all wait for nobody but each other
        try:
            async with asyncio.timeout(_LONGEST):
                while self._successes == before and self._in_flight > self._waiting:
                    await self._changed.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        return self._successes != before

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
