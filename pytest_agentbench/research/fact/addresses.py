"""The addresses that stand in an article: it cites no others, whatever a judge says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from urllib.parse import unquote

from pytest_agentbench.research.fact.citations import Citation, canonical_url, references

_DOMAIN = r"[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,8}/"
_START = re.compile(rf"https?://|(?<![a-z0-9@./-])(?:www\.|{_DOMAIN})", re.IGNORECASE)
_RUN = re.compile(r"[^\s<>\"]{1,4096}")
_MAY_END = re.compile(r"[)\]}\['*|`，。；、！？：）】」』》”’]|(?<=[!-~])[^\x00-\x7f]|(?<!^)https?://", re.IGNORECASE)
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_ENDS = 8
_MOST = 20_000


class Addresses:
    """Those of one article, of which the first 20,000 spellings count."""

    def __init__(self, article: str) -> None:
        self._article = article.casefold()
        self._pages: set[str] = set()
        self._likes: dict[str, str] = {}
        for address in islice(_addresses(_ESCAPED.sub(r"\1", article).replace("&amp;", "&")), _MOST):
            page = canonical_url(address)
            self._pages.add(page)
            self._likes.setdefault(_like(page), page)

    def find(self, said: str) -> str | None:
        """`said` where the article has that page, else its page that differs by no more than scheme, `www.`, capitals
        and a slash at the end. None where it has neither.

        What is no web address has to stand there as it is.
        """
        address = f"https://{said}" if said[:4].lower() == "www." else said
        page = canonical_url(address)
        if page.startswith(("https://", "http://")):
            return address if page in self._pages else self._likes.get(_like(page))
        return said if said and "//" not in said and said.casefold() in self._article else None


def resolved(citations: Iterable[Citation], article: str) -> list[Citation]:
    """With addresses of the article only: else what its list of references has for the marker, else none."""
    if not (cited := list(citations)):
        return []
    known, listed = Addresses(article), references(article)
    found = (known.find(each.url) or listed.get(each.ref_idx, "") for each in cited)
    return [Citation(each.fact, each.ref_idx, url) for each, url in zip(cited, found, strict=True)]


def _addresses(article: str) -> Iterator[str]:
    """Every text that may be an address: in prose it is not told where one ends."""
    for start in _START.finditer(article):
        run = _RUN.match(article, start.start())
        assert run is not None
        text, scheme = run[0], "" if start[0].endswith("://") else "https://"
        yield scheme + text
        for end in islice(_MAY_END.finditer(text), _ENDS):
            yield scheme + text[: end.start()]


def _like(page: str) -> str:
    path, mark, query = unquote(page).casefold().partition("://")[2].removeprefix("www.").partition("?")
    return f"{path.rstrip('/')}{mark}{query}"
