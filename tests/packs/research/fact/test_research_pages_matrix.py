"""What becomes of each kind of page: one expected outcome each, from a site on loopback."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.page_site import CHINESE, GERMAN, HUGE, PageSite, page_site

from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.packs.research.fact.direct_pages import PageSettings
from pytest_agentbench.packs.research.fact.pages import Pages

NETWORK = NetworkSettings(allow_private=("127.0.0.1",))
SETTINGS = PageSettings(NETWORK, most_bytes=HUGE // 2)
PAPER = "A paper\n\nOwls hunt at night."


def _guard(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple) and arguments[1][0] != "127.0.0.1":
        raise RuntimeError(f"a test connects to {arguments[1]}")


sys.addaudithook(_guard)


@pytest.fixture(scope="module")
def site() -> Iterator[PageSite]:
    with page_site() as made:
        yield made


def contents(*urls: str, settings: PageSettings = SETTINGS) -> list[str]:
    async def ask() -> list[str]:
        async with Pages(None, settings) as pages:
            return await asyncio.gather(*map(pages.content, urls))

    return asyncio.run(ask())


GOOD = {
    "/owls": "Owls\n\nAll about owls\n\nGray owls\n\nThey hunt mice.",
    "/moved": "Owls\n\nAll about owls\n\nGray owls\n\nThey hunt mice.",
    "/text": "Übung",
    "/gbk": CHINESE,
    "/gbk-meta": CHINESE,
    "/gbk-as-utf8": CHINESE,
    "/latin-1": GERMAN,
    "/latin-1-text": GERMAN,
    "/utf-16": "Owls\n\nAll about owls\n\nwide",
    "/paper.pdf": PAPER,
    "/pdf-as-html": PAPER,
    "/download": PAPER,
    "/html-as-pdf": "Owls\n\nAll about owls\n\nno paper here",
    "/untyped": "Owls\n\nAll about owls\n\nno type",
    "/status/429/0": "Owls\n\nAll about owls\n\nback",
    "/status/503/0": "Owls\n\nAll about owls\n\nback",
}
FAILED = {
    "/missing": "/missing: HTTP 404",
    "/status/500": "/status/500: HTTP 500",
    "/status/429": "/status/429: HTTP 429",
    "/status/429/3600": "HTTP 429, it asks to come back in 3,600 s",
    "/empty": "it is empty",
    "/blank": "it shows no text unless its scripts are run",
    "/scripts": "it shows no text unless its scripts are run",
    "/broken.pdf": "its PDF could not be read (",
    "/scanned.pdf": "it has no text (it may be a scan)",
    "/picture": "found 'image/png', expected text or PDF",
    "/picture-as-html": "found neither text nor PDF, though declared as 'text/html'",
    "/huge": "found over 0.143 MB, expected less",
    "/endless": "found over 0.143 MB, expected less",
    "/bomb": "found over 0.143 MB, expected less",
    "/odd-packing": "its body is packed by 'br', expected gzip or deflate",
    "/breaks-off": "no answer (RemoteProtocolError: peer closed connection without sending complete message body",
    "/hangs-up": "no answer (RemoteProtocolError: Server disconnected without sending a response",
    "/nonsense": "no answer (RemoteProtocolError: ",
    "/circle": "/circle -> SITE/circle/2 -> SITE/circle: its redirects go in a circle",
    "/hops/0": "more than 10 redirects",
    "/metadata": "/metadata -> 169.254.169.254 is refused: it is a metadata service",
    "/inside": "/inside -> 10.0.0.1 is refused: it is not a public address",
    "/file": "/file -> found 'file:///etc/passwd', expected a URL that begins with http:// or https://",
    "/other-port": "/other-port -> found 'http://127.0.0.1:99999/', expected a URL",
}


@pytest.mark.slow
def test_the_matrix(site: PageSite) -> None:
    paths = [*GOOD, *FAILED]
    texts = dict(zip(paths, contents(*(site.url + path for path in paths)), strict=True))
    assert {path: texts[path] for path in GOOD} == GOOD
    for path, reason in FAILED.items():
        assert texts[path].startswith("scrape failed: "), path
        assert reason.replace("SITE", site.url) in texts[path], path


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.2:80/", "127.0.0.2 is refused: it is not a public address"),
        ("http://[::1]/", "::1 is refused"),
        ("http://user:word@127.0.0.1/", "a URL with a user name or password for 127.0.0.1 is refused"),
        ("ftp://127.0.0.1/file", "begins with http:// or https://"),
        ("see chapter 3", "expected a URL"),
        (f"http://{'a' * 300}/", "cannot be resolved"),
        ("http://127.0.0.1:9/", "robots.txt of 127.0.0.1 cannot be read, which forbids the whole site (RFC 9309)"),
    ],
)
def test_a_url_that_cannot_be_requested_is_a_failed_scrape_with_a_reason(url: str, reason: str) -> None:
    [texts] = contents(url)
    assert texts.startswith("scrape failed: ")
    assert reason in texts


@pytest.mark.slow
def test_a_page_that_takes_too_long_is_given_up(site: PageSite) -> None:
    slow, quick = contents(f"{site.url}/slow", f"{site.url}/owls", settings=PageSettings(NETWORK, seconds=0.5))
    assert slow == f"scrape failed: {site.url}/slow: no complete answer within 0.5 s"
    assert quick == GOOD["/owls"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("robots", "path", "reason"),
    [
        (b"User-agent: *\nDisallow: /owls", "/owls", "robots.txt of 127.0.0.1 keeps programs from this page"),
        (b"User-agent: *\nDisallow: /owls", "/text", None),
        (b"User-agent: pytest-agentbench\nDisallow: /\n\nUser-agent: *\nAllow: /", "/owls", "keeps programs from"),
        (b"User-agent: *\nDisallow: /owls", "/moved", "/moved -> robots.txt of 127.0.0.1 keeps programs from"),
        (b"\xff\xfe\x00 nonsense", "/owls", None),
        (b"User-agent: *\nDisallow: /" + b"a*" * 2000 + b"$", "/owls", None),
        (404, "/owls", None),
        (403, "/owls", None),
        (500, "/owls", "robots.txt of 127.0.0.1 cannot be read, which forbids the whole site (RFC 9309): HTTP 500"),
        (503, "/owls", "cannot be read"),
    ],
)
def test_robots_txt_is_kept_to(robots: bytes | int, path: str, reason: str | None) -> None:
    with page_site(robots) as site:
        texts, again = contents(site.url + path, f"{site.url}{path}?again")
        assert site.seen["/robots.txt"] == 1
    if reason is None:
        assert not texts.startswith("scrape failed")
        assert not again.startswith("scrape failed")
    else:
        assert texts.startswith("scrape failed: ")
        assert reason in texts
        assert site.seen["/owls"] == 0
