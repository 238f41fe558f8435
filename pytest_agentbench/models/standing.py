"""Earlier answers of an endpoint, which decide whether a refusal or a page concerns one request or all."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from pytest_agentbench.models.failures import RequestFailed, is_page, key_refused, request_refused
from pytest_agentbench.models.replies import RawReply
from pytest_agentbench.records.case import ApiName, Model

_REFUSED_IN_A_ROW = 3
"""Number of different requests in a row after whose refusal the key itself counts as refused."""
_LONGEST = 3.0
"""Maximum seconds to wait for a conclusion. The sender of the request waits as long for its refusal."""


class Answered:
    """The addresses and keys with a successful reply in this process. For one event loop."""

    def __init__(self) -> None:
        self.models: set[tuple[str | None, ApiName, str]] = set()
        """Addresses (base_url), APIs and models."""
        self.keys: set[tuple[str | None, tuple[str, ...]]] = set()
        """Addresses (base_url) and the variables of the key; without a key the API and the model."""


class Standing:
    """History of one model and key at an endpoint. For one event loop.

    A refusal (401, 403) or a page proves little while other requests are in flight: a firewall refuses one prompt
    faster than a model answers the others. So a conclusion about the key or the address waits some seconds for the
    requests in flight. One success among them proves that the key and the address are right.
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
        """Record a successful reply."""
        self._answered.models.add(self._address)
        self._answered.keys.add(self._key)
        self._refused.clear()
        self._successes += 1
        self._wake()

    async def is_hiccup(self, reply: RawReply) -> bool:
        """Return whether a page in place of an answer comes from a proxy that fails for a moment.

        Before the model's first successful reply a page means a wrong address, of which the model may be a part.
        Call inside `in_flight`.
        """
        if reply.status not in (200, 404) or not is_page(reply.headers.get("content-type", ""), reply.content):
            return False
        return self._address in self._answered.models or await self._one_succeeds()

    async def explain_refusal(self, failed: RequestFailed, body: bytes, model: Model) -> RequestFailed:
        """Return the failure of a request with a 401 or 403: whether the request was refused or the key.

        `body` is the request: an equal request that is refused again adds no evidence. Call inside `in_flight`.
        """
        self._refused.add(hash(body))
        has_worked = self._key in self._answered.keys
        if has_worked and len(self._refused) < _REFUSED_IN_A_ROW:
            return request_refused(failed, model)
        if await self._one_succeeds():
            return request_refused(failed, model)
        if has_worked:
            return key_refused(failed, model, len(self._refused))
        return failed

    async def _one_succeeds(self) -> bool:
        """Wait for the requests in flight; return whether one of them succeeds in time."""
        before = self._successes
        self._waiting += 1
        self._wake()  # without this, requests that all wait here would wait for each other
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
