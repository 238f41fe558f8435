"""What a server sent, as text that a model can read."""

from __future__ import annotations

from functools import cache

from pytest_agentbench.tools.readers import Readers, UnreadableError, missing_libraries

MAX_TEXT = 200_000
"""How many characters of a page are kept."""

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXTS = frozenset(
    {
        "application/ecmascript",
        "application/graphql",
        "application/javascript",
        "application/json",
        "application/sql",
        "application/toml",
        "application/x-ndjson",
        "application/x-sh",
        "application/x-yaml",
        "application/xml",
        "application/yaml",
    }
)


@cache
def can_read_html() -> bool:
    """Whether the library for it is installed (the extra `web`)."""
    return not missing_libraries(["resiliparse"])


def is_html(media_type: str) -> bool:
    """Whether a body of that type is HTML."""
    return media_type in _HTML


def is_text(media_type: str) -> bool:
    """Whether a body of that type is text."""
    return media_type.startswith("text/") or media_type in _TEXTS or media_type.endswith(("+json", "+xml"))


async def readable(body: bytes, media_type: str, charset: str | None) -> str:
    """The text of a body that is text, its first MAX_TEXT characters and a note of the rest. Raises UnreadableError.

    Of HTML it is what a browser shows, with the links' targets, its title first. HTML can keep a parser busy for
    hours, or break it: it is read in a process of its own, in bubblewrap where that is to be had.
    """
    length, text = await _shown(body, charset) if is_html(media_type) else _decoded(body, charset)
    return text if length <= MAX_TEXT else f"{text}\n[... {length - MAX_TEXT:,} characters left out ...]"


async def _shown(body: bytes, charset: str | None) -> tuple[int, str]:
    """How many characters a browser shows of HTML, and the first of them."""
    try:
        async with Readers(1) as readers:
            read = await readers.read("html", body, "", charset=charset or "", limit=MAX_TEXT, links=True)
    except UnreadableError as error:
        raise UnreadableError(f"its HTML {error}") from error
    title = f"{read.title}\n\n" if read.title else ""
    return len(title) + read.length, (title + read.text)[:MAX_TEXT]


def _decoded(body: bytes, charset: str | None) -> tuple[int, str]:
    try:
        text = body.decode(_codec(charset) if charset else "utf-8", "replace").removeprefix("\ufeff")
    except LookupError:  # an encoding of the web that Python does not have
        text = body.decode("utf-8", "replace")
    return len(text), text[:MAX_TEXT]


def _codec(charset: str) -> str:
    """The encoding of the web that a server means; UTF-8 where it is none, such as Python's own punycode."""
    from resiliparse.parse import encoding

    return str(encoding.map_encoding_to_html5(charset))
