"""FACT on citations: the statements that they back, extracted and deduplicated, and the statistics of how many hold."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Literal
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from pydantic import BeforeValidator, Field, StringConstraints

from pytest_agentbench.judging.verdicts import structured
from pytest_agentbench.models.replies import InvalidReply, ReplyPart, read_json
from pytest_agentbench.packs.research.arithmetic import share_of
from pytest_agentbench.packs.research.articles import REFERENCES_HEADING
from pytest_agentbench.packs.research.asking import (
    PROMPT_VERSION,
    TEXT,
    Asking,
    ask_by_halves,
    ask_list_by_halves,
    gather_all,
    list_schema,
    split_text,
)
from pytest_agentbench.packs.research.records import Language
from pytest_agentbench.statistics.estimates import mean_known

# Parameters that change no page: one article often cites a page with and without them, and it would be fetched and
# judged twice.
_TRACKING = re.compile(r"utm_\w+|gclid|fbclid|msclkid|mc_[ce]id|igshid|spm|yclid|_ga", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}
_AT_THE_END = " \t\r\n.,;，。；"
_PERCENT_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_~")
# `%` is kept so that escapes are not escaped again; _escape gives them their one spelling.
_KEPT = "/%:@!$&'()*+,;=~-._?"

# Possessive (`++`): an article is a stranger's text, and its brackets are not to be tried in every division. One
# level of parentheses belongs to an address, as in `/wiki/Mars_(planet)`; the closing one of the sentence around it
# does not.
_URL = r"(?P<url>https?://(?:[^\s<>\"（）()\]]|\([^\s<>()]{0,200}\))++)"
_TITLE = r"[^\n]*?"
# The address may be on the line below its title.
_REFERENCE = re.compile(rf"^[ \t]*+(?P<markers>(?:\[\^?\d+\]:?[ \t]*+)++){_TITLE}(?:\n\s{{0,8}})?{_URL}", re.MULTILINE)
_NUMBERED = re.compile(rf"^[ \t]*+(?P<markers>\d++)[.)、][ \t]*+{_TITLE}(?:\n\s{{0,8}})?{_URL}", re.MULTILINE)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Citation:
    """One statement and one citation of it, as in extracted.jsonl. `url` is "" if the article has none."""

    fact: str
    ref_idx: str
    url: str


def canonical_url(url: str) -> str:
    """Return the address under which a page is fetched once: without fragment, default port and tracking parameters.

    A text that is not an address is returned without blanks and punctuation at its end.
    """
    text = url.strip()
    try:
        parts = urlsplit(text.partition("#")[0].rstrip(_AT_THE_END))
        # `port` is parsed when it is read and raises ValueError for `:80a`, so it has to be within the try.
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return text.rstrip(_AT_THE_END)
    if parts.scheme not in _PORTS or not host:
        return text.rstrip(_AT_THE_END)
    # `hostname` gives an IPv6 address without its brackets, which an address cannot do without.
    host = f"[{host}]" if ":" in host else host
    place = host if port in (None, _PORTS[parts.scheme]) else f"{host}:{port}"
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    query = "&".join(pair for pair in parts.query.split("&") if not _TRACKING.fullmatch(pair.partition("=")[0]))
    return urlunsplit((parts.scheme, user + place, _escaped(parts.path or "/"), _escaped(query), ""))


def list_references(article: str) -> dict[str, str]:
    """Return the addresses in the article's list of references, by the markers' numbers; the first of a number counts.

    Entries begin with `[1]`, `[^1]:` or, below a heading for references, with `1.`.
    """
    references: dict[str, str] = {}
    _add(references, _REFERENCE, article)
    lines = article.split("\n")
    # Below the last such heading only: `1.` begins a step of a list everywhere else.
    last = max((number for number, line in enumerate(lines) if REFERENCES_HEADING.match(line)), default=len(lines))
    _add(references, _NUMBERED, "\n".join(lines[last + 1 :]))
    return references


def group_by_page(citations: Iterable[Citation]) -> dict[str, list[str]]:
    """Return the statements of each page by its canonical address, each once, in their order."""
    pages: dict[str, dict[str, str]] = {}
    for citation in citations:
        facts = pages.setdefault(canonical_url(citation.url), {})
        # Exact repetitions go before a judge is asked; it is asked about those that only mean the same.
        facts.setdefault(" ".join(citation.fact.split()), citation.fact)
    return {url: list(facts.values()) for url, facts in pages.items()}


def _escaped(text: str) -> str:
    """Return the text in one spelling (RFC 3986, 6.2.2): escapes in capitals, and only necessary ones."""
    return _PERCENT_ESCAPE.sub(_escape, quote(text, safe=_KEPT, errors="surrogatepass"))


def _escape(match: re.Match[str]) -> str:
    character = chr(int(match[0][1:], 16))
    if character in _UNRESERVED:
        return character
    return match[0].upper()


def _add(references: dict[str, str], pattern: re.Pattern[str], text: str) -> None:
    for entry in pattern.finditer(text):
        for number in _NUMBER.findall(entry["markers"]):
            references.setdefault(number, entry["url"])


# DNS bounds a label by 63 characters; the bounds also keep the pattern linear in hostile text.
_DOMAIN = r"[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,8}/"
_START = re.compile(rf"https?://|(?<![a-z0-9@./-])(?:www\.|{_DOMAIN})", re.IGNORECASE)
_RUN = re.compile(r"[^\s<>\"]{1,4096}")
# Possible ends of an address in prose: a bracket or quote, a mark of Markdown, Chinese punctuation, a non-
# ASCII character after an ASCII one (Chinese has no blank there), and the beginning of the next address.
_MAY_END = re.compile(r"[)\]}\['*|`，。；、！？：）】」』》”’]|(?<=[!-~])[^\x00-\x7f]|(?<!^)https?://", re.IGNORECASE)
_MARKDOWN_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
# Of each run of characters: each is an address to look up, and an article can be one run of brackets.
_ENDS = 8
_MOST = 20_000


class Addresses:
    """Addresses of one article, of which the first 20,000 spellings count."""

    def __init__(self, article: str) -> None:
        # For sources without a web address, such as a DOI.
        self._article = article.casefold()
        self._pages: set[str] = set()
        self._likes: dict[str, str] = {}
        for address in islice(_addresses(_MARKDOWN_ESCAPE.sub(r"\1", article).replace("&amp;", "&")), _MOST):
            page = canonical_url(address)
            self._pages.add(page)
            self._likes.setdefault(_fold_address(page), page)

    def find(self, text: str) -> str | None:
        """Return `text` if the article has that page, else the article's page that differs only in spelling, else None.

        Scheme, `www.`, capitals and a slash at the end are spelling. A text that is not a web address has to be in the
        article unchanged.
        """
        address = f"https://{text}" if text[:4].lower() == "www." else text
        page = canonical_url(address)
        if page.startswith(("https://", "http://")):
            if page in self._pages:
                return address
            return self._likes.get(_fold_address(page))
        if text and "//" not in text and text.casefold() in self._article:
            return text
        return None


def resolve_addresses(citations: Iterable[Citation], article: str) -> list[Citation]:
    """Return the citations with addresses of the article only: else the address of the marker in its list of
    references, else none.
    """
    if not (cited := list(citations)):
        return []
    addresses, references = Addresses(article), list_references(article)
    # A judge may invent a plausible address; its page, if fetched, is cited in no report.
    urls = (addresses.find(citation.url) or references.get(citation.ref_idx, "") for citation in cited)
    return [Citation(citation.fact, citation.ref_idx, url) for citation, url in zip(cited, urls, strict=True)]


def _addresses(article: str) -> Iterator[str]:
    """Yield every text that may be an address: in prose its end is ambiguous."""
    for start in _START.finditer(article):
        # _START begins with a character that _RUN takes too, so there is always a match.
        run = _RUN.match(article, start.start())
        assert run is not None
        text, scheme = run[0], "" if start[0].endswith("://") else "https://"
        yield scheme + text
        for end in islice(_MAY_END.finditer(text), _ENDS):
            yield scheme + text[: end.start()]


def _fold_address(page: str) -> str:
    path, mark, query = unquote(page).casefold().partition("://")[2].removeprefix("www.").partition("?")
    return f"{path.rstrip('/')}{mark}{query}"


EXTRACT_STAGE = "extract"
# Characters. The reply repeats nearly every statement, and many models cut replies off at 4,096 or 8,192 tokens.
_LARGEST_PIECE = 24_000
_SMALLEST_PIECE = 400


# Models write `"ref_idx": 3` and `"url": null` now and then; asking again for that would only cost.
def _as_text(value: Any) -> Any:
    if value is None:
        return ""
    if type(value) is int:
        return str(value)
    return value


AnyText = Annotated[str, BeforeValidator(_as_text)]
"""A text; null is an empty one, a number is its digits."""
_Text = Annotated[AnyText, StringConstraints(strip_whitespace=True)]


class _Entry(ReplyPart):
    fact: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    ref_idx: _Text = ""
    url: _Text = ""


class _ExtractReply(ReplyPart):
    citations: tuple[_Entry, ...]


_EXTRACT_FORMAT = structured(f"research_{EXTRACT_STAGE}", {"citations": list_schema(fact=TEXT, ref_idx=TEXT, url=TEXT)})


async def extract(asking: Asking, case_id: str, language: Language, article: str) -> list[Citation]:
    """Return all citations of an article, in its order. Raises Unscored if a part of it has no reply.

    A part whose reply is cut off is asked for again in halves. An address that is not in the article is
    replaced by the address of its marker, else removed.
    """
    if not article.strip():
        return []
    parts = enumerate(_split_article(article), 1)
    pieces = await gather_all(*(_extract(asking, case_id, language, piece, number) for number, piece in parts))
    return resolve_addresses([citation for piece in pieces for citation in piece], article)


async def _extract(asking: Asking, case_id: str, language: Language, piece: str, number: int) -> list[Citation]:
    async def reply(part: str) -> _ExtractReply:
        messages = asking.messages(language, "extract", {"article": part})
        return await asking(
            EXTRACT_STAGE,
            case_id,
            messages,
            _EXTRACT_FORMAT,
            _parse,
            version=PROMPT_VERSION,
            request=number,
            divisible=len(part) >= 2 * _SMALLEST_PIECE,
        )

    entries = (entry for _, part in await ask_by_halves(piece, _SMALLEST_PIECE, reply) for entry in part.citations)
    return [Citation(entry.fact, entry.ref_idx.strip("[]【】^ "), entry.url) for entry in entries]


def _parse(text: str) -> Any:
    return read_json(text, _ExtractReply)


def _split_article(article: str) -> list[str]:
    if len(article) <= _LARGEST_PIECE:
        return [article]
    return [p for half in split_text(article) for p in _split_article(half)]


DEDUPLICATE_STAGE = "deduplicate"
_FEWEST = 2
"""Minimum number of statements that are compared, even if replies have to be short."""

_DEDUPLICATE_FORMAT = structured(
    f"research_{DEDUPLICATE_STAGE}", {"kept": {"type": "array", "items": {"type": "integer"}}}
)


class _DeduplicateReply(ReplyPart):
    kept: tuple[Annotated[int, Field(strict=True)], ...]


async def deduplicate(
    asking: Asking, case_id: str, language: Language, facts: list[str], request: int = 1
) -> list[str]:
    """Return the kept statements, in their order. A single one is kept without asking. Raises Unscored.

    If the reply is cut off each half is asked about alone: two equivalent ones may stay then. `request` numbers
    the page for scripts.
    """

    async def kept(part: list[str]) -> list[str]:
        if len(part) > 1:
            return await _deduplicate(asking, case_id, language, part, request)
        return part

    return await ask_list_by_halves(facts, _FEWEST, kept)


async def _deduplicate(asking: Asking, case_id: str, language: Language, facts: list[str], request: int) -> list[str]:
    messages = asking.messages(language, "deduplicate", {"statements": number_statements(facts)})

    def parse(text: str) -> list[int]:
        kept = sorted(set(read_json(text, _DeduplicateReply).kept))
        # Keeping none would silently drop a cited page from the score: of several equivalent ones one stays.
        if not kept or kept[0] < 0 or kept[-1] >= len(facts):
            raise InvalidReply(f"- kept: found {kept}, expected at least one number from 0 to {len(facts) - 1}")
        return kept

    divisible = len(facts) >= 2 * _FEWEST
    kept = await asking(
        DEDUPLICATE_STAGE,
        case_id,
        messages,
        _DEDUPLICATE_FORMAT,
        parse,
        version=PROMPT_VERSION,
        request=request,
        divisible=divisible,
    )
    return [facts[number] for number in kept]


def number_statements(facts: list[str]) -> str:
    """Return the statements as a judge sees them, one a line, counted from 0."""
    return "\n".join(json.dumps({"idx": number, "fact": fact}, ensure_ascii=False) for number, fact in enumerate(facts))


Label = Literal["supported", "unsupported", "unknown"]
LABELS: tuple[Label, ...] = ("supported", "unsupported", "unknown")

_ORIGINAL = ("total_citations", "total_valid_citations", "valid_rate")
_OURS = (
    *("macro_accuracy", "total_citations_all", "total_valid_citations_all", "supported_per_1000_words"),
    *("supported", "unsupported", "unknown", "without_url"),
    *("n_total", "n_scored", "n_failed", "n_with_citations"),
)


@dataclass(frozen=True, slots=True)
class Counts:
    """Citations of one report by result; `words` is the report's length, None if unknown.

    `without_url` of the unknown ones have no address, so nobody can check them. Compat mode skips addresses that
    could not be compared and unknown labels; they are in no other number.
    """

    supported: int = 0
    unsupported: int = 0
    unknown: int = 0
    words: int | None = None
    without_url: int = 0
    skipped_addresses: int = 0
    skipped_labels: int = 0

    @property
    def skipped(self) -> int:
        """Return all that compat mode skipped."""
        return self.skipped_addresses + self.skipped_labels

    @property
    def known(self) -> int:
        """Return those whose page could be read and compared."""
        return self.supported + self.unsupported

    @property
    def accuracy(self) -> float | None:
        """Return the share of known citations that hold, 0-1."""
        return share_of(self.supported, self.known)

    @property
    def total(self) -> int:
        """Return all citations."""
        return self.known + self.unknown

    @property
    def per_1000_words(self) -> float | None:
        """Return the supported citations for 1,000 words of the report (引用丰富度)."""
        return share_of(1000 * self.supported, self.words)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of reports. The first three are the original's, over reports with citations; `_all` is over all.

    `total_citations` and `total_valid_citations` are means per report, `valid_rate` is over all known citations,
    `macro_accuracy` the mean of the reports' own. None if the divisor is 0.
    """

    total_citations: float | None
    total_valid_citations: float | None
    valid_rate: float | None
    macro_accuracy: float | None
    total_citations_all: float | None
    total_valid_citations_all: float | None
    supported_per_1000_words: float | None
    n_total: int
    n_with_citations: int
    n_failed: int
    supported: int
    unsupported: int
    unknown: int
    without_url: int

    @property
    def n_scored(self) -> int:
        """Return the reports whose citations could be looked into."""
        return self.n_total - self.n_failed


def compute_statistics(counts: Sequence[Counts], n_failed: int = 0) -> Statistics:
    """Return the statistics of the reports that were scored.

    `n_failed` more could not be, and are in `n_total` only.
    """
    # The original leaves reports without citations out of its means, which favours reports with few
    # citations. Its three figures are kept for comparison; ours over all reports are next to them.
    cited = [count for count in counts if count.total or count.skipped]
    supported, known = sum(c.supported for c in counts), sum(c.known for c in counts)
    accuracies = [count.accuracy for count in counts if count.accuracy is not None]
    rich = [count.per_1000_words for count in counts if count.per_1000_words is not None]
    return Statistics(
        total_citations=mean_known(count.known for count in cited),
        total_valid_citations=mean_known(count.supported for count in cited),
        valid_rate=share_of(supported, known),
        macro_accuracy=mean_known(accuracies),
        total_citations_all=mean_known(count.known for count in counts),
        total_valid_citations_all=mean_known(count.supported for count in counts),
        supported_per_1000_words=mean_known(rich),
        n_total=len(counts) + n_failed,
        n_with_citations=len(cited),
        n_failed=n_failed,
        supported=supported,
        unsupported=known - supported,
        unknown=sum(count.unknown for count in counts),
        without_url=sum(count.without_url for count in counts),
    )


def format_result(statistics: Statistics, *, compat: bool = False) -> str:
    """Return fact_result.txt: the original's three lines, `compat` these alone; then ours.

    Unknown is null.
    """
    values = {name: getattr(statistics, name) for name in (_ORIGINAL if compat else _ORIGINAL + _OURS)}
    return "".join(f"{name}: {'null' if value is None else value}\n" for name, value in values.items())
