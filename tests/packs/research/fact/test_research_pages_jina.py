"""The Jina reader, which a server on loopback stands in for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.errors import AgentbenchError, ConfigError, ProviderError
from pytest_agentbench.packs.research.fact.direct_pages import PageSettings
from pytest_agentbench.packs.research.fact.pages import Pages

KEY = "jina_0123456789abcdef"
PAGE = "http://127.0.0.1/page?a=1&b=ü"
LOOPBACK = NetworkSettings(allow_private=("127.0.0.1",))
GOOD = {"code": 200, "data": {"title": "Owls", "description": "Birds", "content": f"# They hunt {KEY}"}}


class Reader(BaseHTTPRequestHandler):
    """Gives the server's `answers` one after the other, the last for ever: status, headers, body."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((dict(self.headers), body))  # type: ignore[attr-defined]
        answers = self.server.answers  # type: ignore[attr-defined]
        status, headers, answer = answers.pop(0) if len(answers) > 1 else answers[0]
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(10**6 if "Trickles" in headers else len(content)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # it hung up, as it should where too much comes
            while "Trickles" in headers:
                self.wfile.write(b" ")
                self.server.closing.wait(0.02)  # type: ignore[attr-defined]
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def reader() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Reader) as made:
        made.seen = []  # type: ignore[attr-defined]
        made.answers = [(200, {}, GOOD)]  # type: ignore[attr-defined]
        made.daemon_threads = True
        made.closing = threading.Event()  # type: ignore[attr-defined]
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def contents(
    reader: Any, output: Path | None, *urls: str, network: NetworkSettings = LOOPBACK, seconds: float = 30.0
) -> list[Any]:
    environ = {"JINA_API_KEY": KEY, "JINA_BASE_URL": f"http://127.0.0.1:{reader.server_port}/"}

    async def ask() -> list[Any]:
        settings = replace(PageSettings.of(network, environ), seconds=seconds)
        async with Pages(output, settings) as pages:
            return await asyncio.gather(*map(pages.content, urls), return_exceptions=True)

    return asyncio.run(ask())


def test_with_a_key_the_jina_reader_fetches(reader: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        texts = contents(reader, tmp_path, PAGE, PAGE)
    assert texts == ["Owls\n\nBirds\n\n# They hunt [redacted]"] * 2
    [(headers, body)] = reader.seen
    assert (headers["Authorization"], headers["Accept"]) == (f"Bearer {KEY}", "application/json")
    assert body == {"url": "http://127.0.0.1/page?a=1&b=%C3%BC"}
    assert contents(reader, tmp_path, PAGE) == texts[:1]
    assert len(reader.seen) == 1
    assert not any(KEY.encode() in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert KEY not in caplog.text
    assert KEY not in repr(PageSettings.of(LOOPBACK, {"JINA_API_KEY": KEY}))


LONG = "gave no answer that can be read: the reply (HTTP 200) is longer than 16 MiB, the limit for replies"


@pytest.mark.parametrize(
    ("status", "answer", "reason"),
    [
        (422, {"readableMessage": f"no such page for {KEY}"}, "answered HTTP 422: no such page for [redacted]"),
        (451, b"<html>", "answered HTTP 451"),
        (200, b"<html>", "answered without the page's content"),
        (200, {"data": {"title": "Owls"}}, "answered without the page's content"),
        (200, {"data": {"content": " "}}, "found no text in the page"),
        (200, [1], "answered without the page's content"),
        (200, b"[" * 100_000, "answered without the page's content"),
        (
            200,
            b'"' + b"x" * 17 * 2**20,
            LONG,
        ),
    ],
)
def test_its_failures_are_named(reader: Any, status: int, answer: Any, reason: str) -> None:
    reader.answers = [(status, {}, answer)]
    assert contents(reader, None, PAGE) == [f"scrape failed: the Jina reader {reason}"]


@pytest.mark.parametrize(("status", "reason"), [(401, "refuses its key: check JINA_API_KEY"), (402, "no balance left")])
def test_a_key_that_is_refused_is_no_fault_of_the_pages(reader: Any, status: int, reason: str) -> None:
    reader.answers = [(status, {}, {})]
    errors = contents(reader, None, PAGE, PAGE)
    assert [type(error) for error in errors] == [ProviderError] * 2
    assert reason in str(errors[0])
    assert isinstance(errors[0], AgentbenchError)


def test_retry_after_is_respected_up_to_a_limit(reader: Any) -> None:
    reader.answers = [(429, {"Retry-After": "0"}, {}), (503, {"Retry-After": "0"}, {}), (200, {}, GOOD)]
    assert contents(reader, None, PAGE)[0].startswith("Owls")
    reader.answers = [(429, {"Retry-After": "3600"}, {})]
    assert contents(reader, None, PAGE) == ["scrape failed: the Jina reader answered HTTP 429"]


def test_long_content_is_truncated_and_invalid_characters_are_replaced(reader: Any, tmp_path: Path) -> None:
    reader.answers = [(200, {}, {"data": {"title": "Owls \ud800", "content": "x" * 200_005}})]
    expected = ["Owls ?\n\n" + "x" * 200_000 + "\n\n[... 5 characters left out ...]"]
    assert contents(reader, tmp_path, PAGE) == expected
    assert contents(reader, tmp_path, PAGE) == expected
    assert len(reader.seen) == 1


def test_an_answer_that_trickles_is_given_up(reader: Any) -> None:
    reader.answers = [(200, {"Trickles": "yes"}, {})]
    texts = contents(reader, None, PAGE, seconds=0.1)
    assert texts == ["scrape failed: the Jina reader gave no complete answer in time"]


def test_private_addresses_are_not_sent_to_the_reader(reader: Any) -> None:
    [texts] = contents(reader, None, PAGE, network=NetworkSettings())
    assert texts.startswith("scrape failed: 127.0.0.1 is refused: it is not a public address")
    assert reader.seen == []


def test_a_wrong_address_of_the_reader_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"JINA_BASE_URL: found 'r\.jina\.ai', expected a URL such as"):
        PageSettings.of(LOOPBACK, {"JINA_API_KEY": KEY, "JINA_BASE_URL": "r.jina.ai"})
