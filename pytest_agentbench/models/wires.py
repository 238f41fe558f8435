"""Requests that pass through to a model's endpoint as agents wrote them, whose replies come back as they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.models.replies import RawReply
from pytest_agentbench.records.case import ApiName

REQUEST_HEADERS = ("anthropic-version", "anthropic-beta", "openai-beta", "accept", "content-type")
"""Headers of an agent's request that its endpoint gets."""
REPLY_HEADERS = ("content-type", "request-id", "retry-after")
"""Headers of an endpoint's reply that an agent gets."""


@dataclass(slots=True)
class PassedRequest:
    """A request in an agent's own words, and who takes what comes of it.

    `request` is what it asks in the internal form, by which cassettes compare. `begin` takes the headers of a good
    reply, and `write` the pieces of its body as they come: once it has `begun` nothing is asked again. `refused` is the
    last reply with the status of an error.
    """

    api: ApiName
    body: bytes
    headers: Mapping[str, str]
    request: Mapping[str, Any]
    stream: bool
    begin: Callable[[Mapping[str, str]], Awaitable[None]]
    write: Callable[[bytes], Awaitable[None]]
    begun: bool = False
    refused: RawReply | None = None

    async def open(self, headers: Mapping[str, str]) -> None:
        """Begin the reply for the agent."""
        self.begun = True
        await self.begin(select_headers(headers, REPLY_HEADERS))


def select_headers(headers: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Return those of the headers that have one of the names."""
    return {name: value for name in names if (value := headers.get(name)) is not None}
