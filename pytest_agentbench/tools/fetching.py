"""Fetch web pages as text for a model, live or from a cassette."""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache

from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.models.cassette_file import Answer, Refusal
from pytest_agentbench.models.tape import Form, Tape
from pytest_agentbench.tools.base import Fetch, Hop, Page
from pytest_agentbench.tools.builtin import WEB_FETCH
from pytest_agentbench.tools.network import InThread, RefusedError, Resolve, check_url, system_resolver
from pytest_agentbench.tools.readers import Readers, UnreadableError, missing_libraries
from pytest_agentbench.tools.web_client import FetchError, Reply, WebClient, describe_hops, follow_redirects

MAX_TEXT = 200_000
"""Maximum characters of a page."""

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_CODE = ("ecmascript", "graphql", "javascript", "json", "sql", "toml")
_TEXTS = frozenset(f"application/{name}" for name in (*_CODE, "x-ndjson", "x-sh", "x-yaml", "xml", "yaml"))


@cache
def can_read_html() -> bool:
    """Return whether the library that reads HTML is installed (the extra `web`)."""
    return not missing_libraries(["resiliparse"])


def is_html(media_type: str) -> bool:
    """Return whether a body of that type is HTML."""
    return media_type in _HTML


def is_text(media_type: str) -> bool:
    """Return whether a body of that type is text."""
    return media_type.startswith("text/") or media_type in _TEXTS or media_type.endswith(("+json", "+xml"))


async def read_body_text(body: bytes, media_type: str, charset: str | None) -> str:
    """Return the text of a text body: its first MAX_TEXT characters and a note about the rest.

    HTML is converted to the text that a browser shows, with the links' targets and the title first. HTML can block a
    parser for hours or crash it, so a separate process reads it, in bubblewrap if available. Raises UnreadableError.
    """
    if is_html(media_type):
        length, text = await _read_html(body, charset)
    else:
        length, text = _decode(body, charset)
    if length <= MAX_TEXT:
        return text
    return f"{text}\n[... {length - MAX_TEXT:,} characters left out ...]"


async def _read_html(body: bytes, charset: str | None) -> tuple[int, str]:
    """Return the number of characters that a browser shows of HTML, and the first of them."""
    try:
        async with Readers(1) as readers:
            reading = await readers.read("html", body, "", charset=charset or "", limit=MAX_TEXT, links=True)
    except UnreadableError as error:
        raise UnreadableError(f"its HTML {error}") from error
    title = f"{reading.title}\n\n" if reading.title else ""
    return len(title) + reading.length, (title + reading.text)[:MAX_TEXT]


def _decode(body: bytes, charset: str | None) -> tuple[int, str]:
    try:
        text = body.decode(_find_codec(charset), "replace").removeprefix("\ufeff")
    except LookupError:  # an encoding that Python does not know
        text = body.decode("utf-8", "replace")
    return len(text), text[:MAX_TEXT]


def _find_codec(charset: str | None) -> str:
    """Return the web's name of an encoding, UTF-8 for a name that browsers do not know, such as Python's punycode."""
    if not charset:
        return "utf-8"
    from resiliparse.parse import encoding

    return str(encoding.map_encoding_to_html5(charset))


MAX_PAGE_BYTES = 5 * 2**20
"""Maximum bytes of a decompressed body."""

_MAX_REDIRECTS = 5
_SECONDS = 30.0
_HEADERS = {
    "User-Agent": "pytest-agentbench (web_fetch)",
    "Accept": "text/html, application/xhtml+xml, text/*, application/json, application/xml;q=0.9, */*;q=0.1",
}


def make_web_fetch(settings: NetworkSettings, in_thread: InThread, resolve: Resolve | None = None) -> Fetch | None:
    """Return a function that fetches pages within the settings, or None if the extra `web` is not installed.

    Names are resolved here and all their addresses are checked. The connection goes to a checked address. Proxies and
    credentials of the environment are not used.
    """
    if not can_read_html():
        return None
    resolver = resolve or system_resolver(in_thread)

    async def fetch(url: str) -> Page:
        hops: list[Hop] = []
        try:
            async with asyncio.timeout(_SECONDS), WebClient(settings, resolver, _HEADERS, _SECONDS) as client:
                first = check_url(url, settings)
                reply = await follow_redirects(
                    first, settings, lambda target: client.get(target, _limit_body), hops, _MAX_REDIRECTS
                )
                text = await _read_text(reply, hops)
        except RefusedError as error:
            raise FetchError(str(error)) from error
        except TimeoutError as error:
            raise FetchError(describe_hops(hops) + f"no complete answer within {_SECONDS:g} s") from error
        # Of the bytes, not of the text, which depends on the version of the HTML library
        digest = hashlib.sha256(reply.body).hexdigest()
        return Page(tuple(hops), reply.media_type, len(reply.body), digest, text)

    return fetch


async def _read_text(reply: Reply, hops: list[Hop]) -> str:
    if not reply.complete:
        raise FetchError(
            f"{describe_hops(hops[:-1])}{reply.url}: found over {MAX_PAGE_BYTES // 2**20} MB, expected less: "
            "it was not fetched"
        )
    try:
        return await read_body_text(reply.body, reply.media_type, reply.charset)
    except UnreadableError as error:
        raise FetchError(f"{describe_hops(hops[:-1])}{reply.url}: {error}") from error


def _limit_body(status: int, media_type: str) -> int:
    if not is_text(media_type):
        raise FetchError(f"HTTP {status}: found {media_type[:80]!r}, expected text: it was not fetched")
    return MAX_PAGE_BYTES


def make_taped_fetch(fetch: Fetch | None, tape: Tape) -> Fetch:
    """Return a fetch with a tape. Without `fetch` only recorded pages are available. A FetchError is recorded, too."""

    async def ask(url: str) -> Page:
        if fetch is None:
            raise UnavailableError(
                "web_fetch needs pip install 'pytest-agentbench[web]', and the cassette does not have this page"
            )
        return await fetch(url)

    async def taped(url: str) -> Page:
        return await tape.play(WEB_FETCH, {"url": url}, lambda: ask(url), _FORM)

    return taped


def _write_answer(page: Page) -> Answer:
    hops = [{"url": hop.url, "address": hop.address or "", "status": str(hop.status)} for hop in page.hops]
    # With the last request, because a cassette's answer is a flat list of texts
    hops[-1] |= {"media_type": page.media_type, "size": str(page.size), "sha256": page.sha256, "text": page.text}
    return Answer(results=tuple(hops))


def _read_answer(answer: Answer, seconds: float) -> Page:
    results = answer.results or ()
    hops = tuple(
        Hop(result.get("url", ""), result.get("address") or None, int(result.get("status", "200")))
        for result in results
    )
    last = results[-1] if results else {}
    return Page(
        hops, last.get("media_type", ""), int(last.get("size", "0")), last.get("sha256", ""), last.get("text", "")
    )


def _keep_refusal(error: Exception) -> Refusal | None:
    if not isinstance(error, FetchError):
        return None
    return Refusal(code="fetch_error", message=str(error))


_FORM: Form[Page] = Form(_write_answer, _read_answer, _keep_refusal, lambda refusal: FetchError(refusal.message))
