"""Citations of a report: statements with the address that is to back them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, urlsplit, urlunsplit

from pytest_agentbench.research.cleaning import REFERENCES_HEADING

_TRACKING = re.compile(r"utm_\w+|gclid|fbclid|msclkid|mc_[ce]id|igshid|spm|yclid|_ga", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}
_AT_THE_END = " \t\r\n.,;，。；"
_ESCAPED = re.compile("%[0-9A-Fa-f]{2}")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_~")
_KEPT = "/%:@!$&'()*+,;=~-._?"

_URL = r"(?P<url>https?://(?:[^\s<>\"（）()\]]|\([^\s<>()]{0,200}\))++)"
_TITLE = r"[^\n]*?"
_REFERENCE = re.compile(rf"^[ \t]*+(?P<markers>(?:\[\^?\d+\]:?[ \t]*+)++){_TITLE}(?:\n\s{{0,8}})?{_URL}", re.MULTILINE)
_NUMBERED = re.compile(rf"^[ \t]*+(?P<markers>\d++)[.)、][ \t]*+{_TITLE}(?:\n\s{{0,8}})?{_URL}", re.MULTILINE)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Citation:
    """One statement and one citation of it, as extracted.jsonl has them. `url` "" where the article gives none."""

    fact: str
    ref_idx: str
    url: str


def canonical_url(url: str) -> str:
    """The address under which a page is fetched once: without fragment, default port and what tracks its visitors.

    A text that is no address stays what it is, but for blanks and punctuation at its end.
    """
    text = url.strip()
    try:
        parts = urlsplit(text.partition("#")[0].rstrip(_AT_THE_END))
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return text.rstrip(_AT_THE_END)
    if parts.scheme not in _PORTS or not host:
        return text.rstrip(_AT_THE_END)
    host = f"[{host}]" if ":" in host else host
    place = host if port in (None, _PORTS[parts.scheme]) else f"{host}:{port}"
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    query = "&".join(pair for pair in parts.query.split("&") if not _TRACKING.fullmatch(pair.partition("=")[0]))
    return urlunsplit((parts.scheme, user + place, _escaped(parts.path or "/"), _escaped(query), ""))


def references(article: str) -> dict[str, str]:
    """The addresses in the article's list of references, by the markers' numbers; the first of a number counts.

    Entries begin with `[1]`, `[^1]:` or, below a heading that says what the list is, with `1.`.
    """
    found: dict[str, str] = {}
    _add(found, _REFERENCE, article)
    lines = article.split("\n")
    last = max((number for number, line in enumerate(lines) if REFERENCES_HEADING.match(line)), default=len(lines))
    _add(found, _NUMBERED, "\n".join(lines[last + 1 :]))
    return found


def by_page(citations: Iterable[Citation]) -> dict[str, list[str]]:
    """The statements of each page by its canonical address, each once, in their order."""
    pages: dict[str, dict[str, str]] = {}
    for each in citations:
        facts = pages.setdefault(canonical_url(each.url), {})
        facts.setdefault(" ".join(each.fact.split()), each.fact)
    return {url: list(facts.values()) for url, facts in pages.items()}


def _escaped(text: str) -> str:
    """In one spelling (RFC 3986, 6.2.2): escapes in capitals, none of what needs none."""
    return _ESCAPED.sub(_escape, quote(text, safe=_KEPT, errors="surrogatepass"))


def _escape(found: re.Match[str]) -> str:
    character = chr(int(found[0][1:], 16))
    return character if character in _UNRESERVED else found[0].upper()


def _add(found: dict[str, str], pattern: re.Pattern[str], text: str) -> None:
    for entry in pattern.finditer(text):
        for number in _NUMBER.findall(entry["markers"]):
            found.setdefault(number, entry["url"])
