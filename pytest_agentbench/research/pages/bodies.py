"""What a page says: title, description and text of what a server sent."""

from __future__ import annotations

from pytest_agentbench.tools import FetchError, Kind, Readers, Reply, UnreadableError, host_of, is_html, is_text
from pytest_agentbench.tools.pages import MAX_TEXT
from pytest_agentbench.tools.web_client import Wanted

_PDF = "application/pdf"
_UNKNOWN = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/x-download"})
_PDF_FACTOR = 4
_LOOK = 1024
_HTML_STARTS = (b"<!doctype html", b"<html", b"<head", b"<body")
_NOTHING = {
    "html": "it shows no text unless its scripts are run",
    "text": "it is blank",
    "pdf": "it has no text, as where it is scanned",
}


def wanted_bytes(most: int) -> Wanted:
    """How much of each kind of body is fetched: `most` bytes, four times that of what may be a PDF."""

    def wanted(status: int, media_type: str) -> int:
        if status >= 400:
            return 0
        if media_type == _PDF or media_type in _UNKNOWN:
            return most * _PDF_FACTOR
        if not is_text(media_type):
            raise FetchError(f"found {media_type[:80]!r}, expected text or PDF: it was not fetched")
        return most

    return wanted


async def page_text(readers: Readers, reply: Reply, way: str) -> str:
    """Title, description and text, joined by blank lines. Raises FetchError, which says what is wrong with the page."""
    where = f"{way}{reply.url}: "
    if not reply.complete:
        raise FetchError(f"{where}found over {len(reply.body) / 2**20:.3g} MB, expected less")
    if not reply.body.strip():
        raise FetchError(f"{where}it is empty")
    kind = _kind(reply)
    if kind is None:
        raise FetchError(f"{where}found neither text nor PDF, though it says {reply.media_type[:80]!r}")
    try:
        read = await readers.read(
            kind, reply.body, host_of(reply.url), charset=reply.charset or "", limit=MAX_TEXT, links=False
        )
    except UnreadableError as error:
        raise FetchError(f"{where}its {kind.upper() if kind != 'text' else 'text'} {error}") from error
    if not read.text.strip():
        raise FetchError(f"{where}{_NOTHING[kind]}")
    return joined(read.title, read.description, read.text, read.length - len(read.text))


def joined(title: str, description: str, text: str, left_out: int) -> str:
    """By blank lines, with a note of how many characters of the text are `left_out`."""
    note = f"[... {left_out:,} characters left out ...]" if left_out else ""
    return "\n\n".join(part.strip() for part in (title, description, text, note) if part.strip())


def _kind(reply: Reply) -> Kind | None:
    """What a body is by how it begins, which servers say wrongly more often than not; None for anything else."""
    start = reply.body[:_LOOK].lower()
    if start.lstrip().startswith(b"%pdf-") or (reply.media_type == _PDF and b"%pdf-" in start):
        return "pdf"
    if any(each in start for each in _HTML_STARTS):
        return "html"
    wide = (reply.charset or "").lower().startswith("utf-16") or start.startswith((b"\xff\xfe", b"\xfe\xff"))
    if b"\0" in start and not wide:
        return None
    if is_html(reply.media_type):
        return "html"
    return "text" if is_text(reply.media_type) or reply.media_type in _UNKNOWN else None
