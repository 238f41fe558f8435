"""What a server sent, as text that a model can read."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

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
    return find_spec("resiliparse") is not None


def is_text(media_type: str) -> bool:
    """Whether a body of that type is text."""
    return media_type.startswith("text/") or media_type in _TEXTS or media_type.endswith(("+json", "+xml"))


def readable(body: bytes, media_type: str, charset: str | None) -> str:
    """The text of a body that is text: of HTML what a browser shows, with the links' targets, its title first."""
    if media_type not in _HTML:
        return _decoded(body, charset)
    from resiliparse.extract import html2text
    from resiliparse.parse import encoding, html

    tree = html.HTMLTree.parse(_decoded(body, charset or encoding.detect_encoding(body, from_html_meta=True)))
    text = html2text.extract_plain_text(tree, links=True, form_fields=True)
    return f"{tree.title}\n\n{text}" if tree.title else text


def _decoded(body: bytes, charset: str | None) -> str:
    try:
        return body.decode(charset or "utf-8-sig", "replace")
    except LookupError:  # a name that Python does not know
        return body.decode("utf-8", "replace")
