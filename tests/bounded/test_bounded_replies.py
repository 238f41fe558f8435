"""Replies over HTTP that were made to fill the memory, for every client there is."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import httpx2
import pytest

from pytest_agentbench.bounded.replies import ReplyRefusedError, bounded_replies
from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.failures import Backoff
from pytest_agentbench.records.case import Model
from pytest_agentbench.tools.web_tools import SearchError, make_searxng_search

MIB = 2**20
Sent = tuple[dict[str, str], bytes]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sent: ClassVar[Sent] = ({}, b"")
    asked: ClassVar[list[dict[str, str]]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.do_GET()

    def do_GET(self) -> None:
        headers, body = Handler.sent
        Handler.asked.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(200)
        for name, value in ({"content-type": "application/json", "content-length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        with suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def answering(headers: dict[str, str], body: bytes) -> Iterator[str]:
    """The address of a server whose every answer is this one."""
    Handler.sent, Handler.asked = (headers, body), []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def zeros(mebibytes: int) -> bytes:
    """The beginning of a gzip stream: one mebibyte is packed, and repeated, as it leans on nothing before it."""
    packer = zlib.compressobj(9, wbits=31)
    head = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    return head + (packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)) * mebibytes


def bombs() -> dict[str, Sent]:
    return {
        "gzip": ({"content-encoding": "gzip"}, zeros(256)),
        "deflate": ({"content-encoding": "deflate"}, zlib.compress(bytes(32 * MIB))),
        "twice": ({"content-encoding": "gzip, gzip"}, gzip.compress(zeros(256))),
        "br": ({"content-encoding": "br"}, b"\x1b"),
        "says-much": ({"content-length": str(2**40)}, b"{"),
    }


def fetch(url: str, limit: int = 4 * MIB) -> httpx2.Response:
    async def main() -> httpx2.Response:
        async with httpx2.AsyncClient(event_hooks=bounded_replies(limit)) as client:
            return await client.get(url)

    return asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("kind", bombs())
def test_a_reply_that_unpacks_to_more_than_it_may_is_not_read(kind: str) -> None:
    with answering(*bombs()[kind]) as url, peak_below(24 * MIB), pytest.raises(ReplyRefusedError) as caught:
        fetch(url)
    assert ("is packed by" if kind in ("twice", "br") else "is longer than 4 MiB") in str(caught.value)
    assert Handler.asked[0]["accept-encoding"] == "gzip, deflate"


@pytest.mark.slow
@pytest.mark.parametrize("pack", [None, "gzip", "deflate"])
def test_other_replies_come_as_they_were_sent(pack: str | None) -> None:
    text = json.dumps({"text": "é" * 5_000}).encode()
    body = {None: text, "gzip": gzip.compress(text), "deflate": zlib.compress(text)}[pack]
    with answering({"content-encoding": pack} if pack else {}, body) as url:
        assert fetch(url).json() == {"text": "é" * 5_000}
        assert len(fetch(url, len(text)).content) == len(text)
        with pytest.raises(ReplyRefusedError):
            fetch(url, len(text) - 1)


def ask_a_model(url: str) -> None:
    async def main() -> None:
        endpoints = Endpoints(backoff=Backoff(first=0.001, longest=0.001), environ={})
        model = Model(model_id="m", requested_model="m", base_url=f"{url}/v1")
        try:
            await endpoints.client(model).complete([{"role": "user", "content": "q"}], retries=3)
        finally:
            await endpoints.close()

    asyncio.run(main())


def search(url: str) -> None:
    asyncio.run(make_searxng_search(url)("owls"))


CLIENTS: dict[str, tuple[Callable[[str], None], type[Exception], str]] = {
    "model": (ask_a_model, ProviderError, "the reply (HTTP 200) is longer than 32 MiB"),
    "search": (search, SearchError, "the reply (HTTP 200) is longer than 4 MiB"),
}


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_a_small_body_that_unpacks_to_gigabytes_is_an_error_of_who_sent_it(client: str) -> None:
    call, error, said = CLIENTS[client]
    sent = {"content-encoding": "gzip"}, zeros(3_000)
    with answering(*sent) as url, peak_below(128 * MIB), pytest.raises(error) as caught:
        call(url)
    assert said in str(caught.value)
    assert len(Handler.asked) == 1  # it would be the same again
    if isinstance(caught.value, ProviderError):
        assert (caught.value.code, caught.value.retryable) == ("reply_too_large", False)


@contextmanager
def peak_below(limit: int) -> Iterator[None]:
    """No more memory of Python's is taken inside of the block."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()
