"""The socket of a run: what its clients send, well-formed or not, holds up neither loop nor memory."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from pytest_agentbench.models.apis.base import RequestRefused
from pytest_agentbench.models.completions_http import JSONReply, read_body
from pytest_agentbench.runners.gateway import exchange as exchange_module
from pytest_agentbench.runners.gateway import server as listening_module
from pytest_agentbench.runners.gateway.server import listening

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Test = Callable[[Path], Awaitable[None]]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = await read_body(Request(scope, receive))
    await JSONReply({"path": scope["path"], "body": len(body)})(scope, receive, send)


@contextlib.asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def post(body: bytes = b"", *headers: str, length: int | None = None) -> bytes:
    said = f"Content-Length: {len(body) if length is None else length}"
    return "\r\n".join(["POST /v1/x?y=1 HTTP/1.1", "Host: here", said, *headers, "", ""]).encode() + body


def chunked(body: bytes, *headers: str, coding: str = "chunked") -> bytes:
    return "\r\n".join(["POST /v1/x HTTP/1.1", f"Transfer-Encoding: {coding}", *headers, "", ""]).encode() + body


async def answer(path: Path, request: bytes) -> bytes:
    """All that comes back."""
    async with asyncio.timeout(20), connected(path) as (reader, writer):
        writer.write(request)
        return await reader.read()


def serve(folder: Path, test: Test, app: Callable[[Scope, Receive, Send], Awaitable[None]] = echo) -> None:
    async def run() -> None:
        async with listening(app, folder / "s"):
            await test(folder / "s")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_a_request_is_answered_and_its_connection_closed(tmp_path: Path) -> None:
    async def test(path: Path) -> None:
        got = await answer(path, post(b"x" * 300_000))
        head, _, body = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"connection: close" in head
        assert body == b'{"path": "/v1/x", "body": 300000}'
        assert b"content-length: %d" % len(body) in head

    serve(tmp_path, test)


@pytest.mark.parametrize("status", [307, 400, 405, 429, 503])
def test_a_refusal_has_no_length_so_that_no_client_uses_its_connection_again(tmp_path: Path, status: int) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await JSONReply({"error": "no"}, status)(scope, receive, send)

    async def test(path: Path) -> None:
        head, _, body = (await answer(path, post(b"{}"))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert b"connection: close" in head
        assert b"content-length" not in head
        assert body == b'{"error": "no"}'

    serve(tmp_path, test, refuse)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x00\xff\r\n\r\n", b"400"),
        (b"GET / HTTP/2.0\r\n\r\n", b"400"),
        (post(length=-1), b"400"),
        (post(length=10**30), b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n", b"400"),
        (post(b"abc", "Content-Length: 3"), b"400"),
        (post(b"abc", " Folded: x"), b"400"),
        (post(b"abc", "Spaced : x"), b"400"),
        (post(b"abc", "Transfer-Encoding: chunked"), b"400"),
        (chunked(b"", "Transfer-Encoding: chunked"), b"400"),
        (chunked(b"0\r\n\r\n", coding="gzip, chunked"), b"501"),
        (chunked(b"3\r\nabcd\r\n0\r\n\r\n"), b"400"),
        (chunked(b"-3\r\nabc\r\n0\r\n\r\n"), b"400"),
        (chunked(b"0x3\r\nabc\r\n0\r\n\r\n"), b"400"),
        (chunked(b"3\nabc\n0\n\n" + b"x" * 40_000), b"400"),
        (chunked(b"3;" + b"x" * 40_000 + b"\r\nabc\r\n0\r\n\r\n"), b"400"),
        (chunked(b"FFFFFFFFFFFFFFFF\r\nabc\r\n0\r\n\r\n"), b"400"),
        (chunked(b"3\r\nabc\r\n0\r\n" + b"X: x\r\n" * 10_000 + b"\r\n"), b"431"),
        (chunked(b"1\r\nx\r\n" * 40_000), b"413"),
        (chunked((b"100000\r\n" + b"x" * 2**20 + b"\r\n") * 33 + b"0\r\n\r\n"), b"413"),
        (post(b"", "X: " + "x" * 20_000), b"431"),
        (post(b"", *["X: x"] * 10_000), b"431"),
        (post(b"x" * (33 * 2**20)), b"413"),
    ],
)
def test_an_unservable_request_is_answered_with_its_status(request_bytes: bytes, status: bytes, tmp_path: Path) -> None:
    async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
        if int(dict(scope["headers"]).get(b"content-length", b"0")) > 32 * 2**20:
            await JSONReply({}, 413)(scope, receive, send)
            return
        try:
            await echo(scope, receive, send)
        except RequestRefused as refused:
            await JSONReply({}, refused.status)(scope, receive, send)

    async def test(path: Path) -> None:
        assert (await answer(path, request_bytes)).split(b" ")[1] == status

    serve(tmp_path, test, refusing)


@pytest.mark.parametrize(
    ("body", "size"),
    [
        (b"0\r\n\r\n", 0),
        (b"3\r\nabc\r\n00a;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n", 13),
        (b"30D40\r\n" + b"x" * 200_000 + b"\r\n0\r\n\r\n", 200_000),
        (b"1\r\nx\r\n" * 1000 + b"0\r\n\r\n", 1000),
    ],
    ids=["empty", "extension and trailer", "large chunk", "small chunks"],
)
def test_a_request_in_chunks_is_served(body: bytes, size: int, tmp_path: Path) -> None:
    async def test(path: Path) -> None:
        got = await answer(path, chunked(body))
        assert got.startswith(b"HTTP/1.1 200 OK\r\n")
        assert got.endswith(b'"body": %d}' % size)

    serve(tmp_path, test)


@pytest.mark.slow
def test_a_flood_of_the_smallest_pieces_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    """The runs of a session share it."""
    stop = threading.Event()

    def flood(path: Path) -> None:
        while not stop.is_set():
            with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
                client.connect(str(path))
                client.sendall(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
                for _ in range(10):  # of which it takes a part
                    client.sendall(b"1\r\nx\r\n" * 50_000)

    async def test(path: Path) -> None:
        flooding = [asyncio.create_task(asyncio.to_thread(flood, path)) for _ in range(4)]
        worst = 0.0
        try:
            for _ in range(20):
                begun = time.perf_counter()
                await asyncio.sleep(0.01)
                worst = max(worst, time.perf_counter() - begun)
        finally:
            stop.set()
            await asyncio.gather(*flooding)
        assert worst < 0.5

    serve(tmp_path, test)


def test_open_connections_are_few_and_half_a_request_keeps_nobody_from_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening_module, "_HEAD_SECONDS", 0.3)

    async def test(path: Path) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for number in range(31):
                _, writer = await stack.enter_async_context(connected(path))
                writer.write([b"", b"POST / HT", post(length=50)][number % 3])
            assert (await answer(path, post(b"abc"))).endswith(b'"body": 3}')
            await stack.enter_async_context(connected(path))
            # It waits for the end of those that send no head
            assert (await answer(path, post(b"abc"))).endswith(b'"body": 3}')
        assert (await until_answered(path)).endswith(b'"body": 3}')

    serve(tmp_path, test)


async def until_answered(path: Path) -> bytes:
    """The answer that comes once the server has seen that others have gone."""
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(ConnectionError):
                if got := await answer(path, post(b"abc")):
                    return got
            await asyncio.sleep(0)


@pytest.mark.parametrize("sent", [b"", b"POST / HTTP/1.1\r\n", post(b"abc", length=50)])
def test_a_request_that_does_not_come_is_given_up(sent: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "_READ_SECONDS", 0.05)
    monkeypatch.setattr(listening_module, "_HEAD_SECONDS", 0.05)

    async def test(path: Path) -> None:
        assert await answer(path, sent) == b""

    serve(tmp_path, test)


def test_who_goes_or_sends_a_second_request_has_gone(tmp_path: Path) -> None:
    gone = asyncio.Queue[str]()

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(Request(scope, receive))
        gone.put_nowait((await receive())["type"])

    async def test(path: Path) -> None:
        async with asyncio.timeout(10):
            async with connected(path) as (_, writer):
                writer.write(post(b"abc"))
            assert await gone.get() == "http.disconnect"
            assert await answer(path, post(b"abc") * 2) == b""
            assert await gone.get() == "http.disconnect"

    serve(tmp_path, test, waiting)


def test_an_answer_that_nobody_reads_ends_with_the_block(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        begun.set()
        while True:
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})

    async def run() -> None:
        async with asyncio.timeout(10):
            async with listening(large, tmp_path / "s"):
                _, writer = await asyncio.open_unix_connection(tmp_path / "s")
                writer.write(post())
                await begun.wait()
            writer.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_an_exception_of_the_app_is_logged_and_answered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("a fault")

    async def test(path: Path) -> None:
        assert (await answer(path, post())).startswith(b"HTTP/1.1 500 ")

    with caplog.at_level(logging.ERROR):
        serve(tmp_path, test, broken)
    assert "a fault" in caplog.text
