"""Bounds of HTTP replies: refuse those that are too long, unpacked, or in an encoding without bounds.

This is a hook of the client, `httpx2.AsyncClient(event_hooks=bounded_replies(limit), ...)`, called for each reply,
redirects included, before its body is read. A short reply without encoding costs 2 µs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import httpx2

MAX_REPLY = 32 * 2**20
"""Bytes of a model's reply, unpacked: a hundred times the longest answer that a model writes."""
MAX_LISTING = 4 * 2**20
"""Maximum bytes of a service's reply with a list or a status."""

ACCEPTED = "gzip, deflate"
"""Value of `accept-encoding`. The library unpacks these encodings in pieces."""
_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
_PLAIN = frozenset({"", "identity"})


class ReplyRefusedError(httpx2.StreamError):
    """A reply that is not read to its end: to ask again would bring the same."""


def bounded_replies(limit: int = MAX_REPLY) -> dict[str, list[Callable[..., Awaitable[None]]]]:
    """Return the event hooks of a client whose replies may have `limit` bytes, unpacked."""
    return {"request": [_accept_bounded], "response": [partial(bound_reply, limit)]}


async def bound_reply(limit: int, response: httpx2.Response) -> None:
    """Bound the body of an unread reply: reading it raises ReplyRefusedError if it is too long."""
    packed = response.headers.get("content-encoding", "").strip().lower()
    response.stream = _Bounded(response, packed, limit)
    response.headers.pop("content-encoding", None)  # the reader gets unpacked bytes


async def _accept_bounded(request: httpx2.Request) -> None:
    request.headers["accept-encoding"] = ACCEPTED


class _Bounded(httpx2.AsyncByteStream):
    """The unpacked body of a reply, which raises an error if it is too long."""

    def __init__(self, response: httpx2.Response, packed: str, limit: int) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._packed, self._limit, self._body = packed, limit, response.stream
        self._head = response.status_code, response.headers.get("content-length", "")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._limit
        async for part in self._open_body():
            # Counted after unpacking: content-length is the packed size, and may be absent or wrong.
            left -= len(part)
            if left < 0:
                raise self._make_too_long()
            yield part

    def _open_body(self) -> AsyncIterator[bytes] | httpx2.AsyncByteStream:
        """Return the body's parts, of at most 1 MiB each if they are unpacked."""
        status, length = self._head
        if self._packed in _PACKED:
            packed = httpx2.Response(status, headers={"content-encoding": self._packed}, stream=self._body)
            return packed.aiter_bytes()
        if self._packed not in _PLAIN:  # packed twice, it could unpack to nothing, for hours, between two parts
            said = f"the reply is packed by {self._packed[:40]!r}, expected gzip or deflate: it is not read"
            raise ReplyRefusedError(said)
        if length.isdecimal() and int(length[:20]) > self._limit:
            raise self._make_too_long()
        return self._body

    async def aclose(self) -> None:
        """Close the body."""
        await self._body.aclose()

    def _make_too_long(self) -> ReplyRefusedError:
        most = f"{self._limit // 2**20} MiB"
        return ReplyRefusedError(f"the reply (HTTP {self._head[0]}) is longer than {most}, the limit for replies")
