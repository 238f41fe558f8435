"""Citations of a report: statements with the address that is to back them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

_TRACKING = re.compile(r"utm_\w+|gclid|fbclid|msclkid|mc_[ce]id|igshid|spm|yclid|_ga", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}
_REFERENCE = re.compile(
    r"^\s*(?P<markers>(?:\[\^?\d+\]:?\s*)+)[^\n]*?(?:\n\s*)?(?P<url>https?://[^\s<>\"）)\]]+)", re.MULTILINE
)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Citation:
    """One statement and one citation of it, as extracted.jsonl has them. `url` "" where the article gives none."""

    fact: str
    ref_idx: str
    url: str


def canonical_url(url: str) -> str:
    """The address under which a page is fetched once: without fragment, default port and what tracks its visitors.

    A text that is no address stays what it is.
    """
    text = url.strip().rstrip(".,;，。；")
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return text
    if parts.scheme.lower() not in _PORTS or not host:
        return text
    scheme = parts.scheme.lower()
    host = f"[{host}]" if ":" in host else host
    place = host if port in (None, _PORTS[scheme]) else f"{host}:{port}"
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    pairs = [(key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True) if not _tracks(key)]
    query = parts.query if len(pairs) == len(parse_qsl(parts.query, keep_blank_values=True)) else urlencode(pairs)
    return urlunsplit((scheme, user + place, quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._"), query, ""))


def references(article: str) -> dict[str, str]:
    """The addresses in the article's list of references, by the markers' numbers; the first of a number counts."""
    found: dict[str, str] = {}
    for entry in _REFERENCE.finditer(article):
        for number in _NUMBER.findall(entry["markers"]):
            found.setdefault(number, entry["url"])
    return found


def resolved(citations: Iterable[Citation], article: str) -> list[Citation]:
    """With the addresses that the list of references has for those whose statement came without one."""
    known = references(article)
    return [each if each.url else Citation(each.fact, each.ref_idx, known.get(each.ref_idx, "")) for each in citations]


def by_page(citations: Iterable[Citation]) -> dict[str, list[str]]:
    """The statements of each page by its canonical address, each once, in their order."""
    pages: dict[str, dict[str, str]] = {}
    for each in citations:
        facts = pages.setdefault(canonical_url(each.url) if each.url else "", {})
        facts.setdefault(" ".join(each.fact.split()), each.fact)
    return {url: list(facts.values()) for url, facts in pages.items()}


def _tracks(key: str) -> bool:
    return _TRACKING.fullmatch(key) is not None
