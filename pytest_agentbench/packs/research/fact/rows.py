"""FACT on one report, stage by stage (seed 003): whether pages back its statements, and the rows of its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Protocol

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from pytest_agentbench.judging.verdicts import structured
from pytest_agentbench.models.prompts import clip_middle
from pytest_agentbench.models.replies import InvalidReply, ReplyPart, read_json
from pytest_agentbench.packs.research.asking import (
    PROMPT_VERSION,
    TEXT,
    Asking,
    Unscored,
    ask_list_by_halves,
    gather_all,
    list_schema,
)
from pytest_agentbench.packs.research.fact.citations import (
    LABELS,
    AnyText,
    Citation,
    Counts,
    Label,
    Statistics,
    compute_statistics,
    deduplicate,
    extract,
    group_by_page,
    number_statements,
)
from pytest_agentbench.packs.research.records import Language, Report, ReportRow, count_article
from pytest_agentbench.records.base import Record

VALIDATE_STAGE = "validate"
SCRAPE_FAILED = "scrape failed: "
"""How the content begins of a page that could not be had."""
MOST_AT_ONCE = 20
"""Statements in one request."""
# Characters of one part: 15,000 tokens of English, some 40,000 of Chinese. Parts overlap, so that no passage that
# backs a statement is cut in two.
_SHOWN = 60_000
_OVERLAP = 2_000
_MOST_PARTS = 4
_NOTE = 100
_LONGEST = _SHOWN + (_MOST_PARTS - 1) * (_SHOWN - _OVERLAP) - _NOTE
"""Characters of a page: more than stored pages have. `_NOTE` is the size of the note on omitted ones."""

_LABEL = {"type": "string", "enum": list(LABELS)}
_FORMAT = structured(
    f"research_{VALIDATE_STAGE}", {"results": list_schema(idx={"type": "integer"}, reason=TEXT, result=_LABEL)}
)


def _is_label(value: Any) -> bool:
    return _lower(value) in LABELS


def _lower(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip().lower()
    return value


AnyCaseLabel = Annotated[Label, BeforeValidator(_lower)]
"""A label in any case."""


class _Entry(ReplyPart):
    idx: Annotated[int, Field(strict=True)]
    result: AnyCaseLabel


class _Reply(ReplyPart):
    results: tuple[_Entry, ...]


async def validate(
    asking: Asking, case_id: str, language: Language, page: str, facts: list[str], request: int = 1
) -> list[Label]:
    """Return a label for each statement. Statements on an unavailable page are unknown without asking. Raises Unscored.

    A long page is shown in overlapping parts, as long as there are statements without support: one is supported
    if a part supports it, unsupported if all parts contradict, else unknown.

    Requests are numbered from `request`: `requests_for` many, less those whose statements are all supported. One whose
    reply is cut off is asked again in halves.
    """
    # A judge that sees an error page answers `unsupported`, and a dead link would count as a false statement.
    if not _readable(page):
        return ["unknown"] * len(facts)
    groups = [facts[at : at + MOST_AT_ONCE] for at in range(0, len(facts), MOST_AT_ONCE)]
    parts = _parts(page)

    async def labels(group: list[str], first: int) -> list[Label]:
        labels_by_fact: list[set[Label]] = [set() for _ in group]
        for number, part in enumerate(parts, first):
            # A statement that a part has backed needs no further part.
            open_facts = [at for at, labels_so_far in enumerate(labels_by_fact) if "supported" not in labels_so_far]
            ask = partial(_validate, asking, case_id, language, part, request=number)
            if not open_facts:
                break
            part_labels = await ask_list_by_halves([group[at] for at in open_facts], 1, ask)
            for at, label in zip(open_facts, part_labels, strict=True):
                labels_by_fact[at].add(label)
        return [_merge_labels(fact_labels) for fact_labels in labels_by_fact]

    # Numbers are given out before anything is asked, so that a script's replies do not depend on which group is
    # quicker.
    firsts = range(request, request + len(groups) * len(parts), len(parts))
    label_groups = await gather_all(*(labels(group, first) for group, first in zip(groups, firsts, strict=True)))
    return [label for group in label_groups for label in group]


def requests_for(page: str, facts: Sequence[str]) -> int:
    """Return how many numbers of requests it takes, at least one."""
    return max(1, len(_parts(page)) * -(-len(facts) // MOST_AT_ONCE))


def _readable(page: str) -> bool:
    return bool(page.strip()) and not page.startswith(SCRAPE_FAILED)


def _parts(page: str) -> list[str]:
    """Return the page, or parts of it that share _OVERLAP characters with the next. Of more than _LONGEST both ends
    count.
    """
    text = clip_middle(page, _LONGEST)
    starts = range(0, max(1, len(text) - _OVERLAP), _SHOWN - _OVERLAP)
    return [_part(text, start) for start in starts]


def _part(text: str, start: int) -> str:
    before = f"[... {start:,} characters before this part ...]\n" if start else ""
    rest = max(0, len(text) - start - _SHOWN)
    after = f"\n[... {rest:,} characters behind this part ...]" if rest else ""
    return f"{before}{text[start : start + _SHOWN]}{after}"


def _merge_labels(labels: set[Label]) -> Label:
    """Return the label of a statement from all parts of a page."""
    if "supported" in labels:
        return "supported"
    # One undecided part leaves it open: the supporting text may be there.
    if labels == {"unsupported"}:
        return "unsupported"
    return "unknown"


async def _validate(
    asking: Asking, case_id: str, language: Language, page: str, facts: list[str], request: int
) -> list[Label]:
    messages = asking.messages(language, "validate", {"page": page, "statements": number_statements(facts)})

    def parse(text: str) -> list[Label]:
        results = read_json(text, _Reply).results
        counts = Counter(entry.idx for entry in results)
        # To take the first of two labels, or `unknown` for a missing one, would be a score that nobody has judged.
        wrong = [number for number in range(len(facts)) if counts[number] != 1]
        unknown = sorted(counts.keys() - set(range(len(facts))))
        if wrong or unknown:
            raise InvalidReply(
                f"- results: expected each idx from 0 to {len(facts) - 1} once; "
                f"missing or repeated: {wrong}, not asked for: {unknown}"
            )
        return [entry.result for entry in sorted(results, key=lambda entry: entry.idx)]

    return await asking(
        VALIDATE_STAGE,
        case_id,
        messages,
        _FORMAT,
        parse,
        version=PROMPT_VERSION,
        request=request,
        divisible=len(facts) > 1,
    )


STAGES = ("extract", "deduplicate", "scrape", "validate")
"""Each adds its keys to a row, or `<stage>_error`."""


def list_counted_stages(*, compat: bool) -> tuple[str, ...]:
    """Return the stages whose failure leaves a row uncounted. In compat mode the addresses that have labels count."""
    if compat:
        return STAGES[:-1]
    return STAGES


NO_URL = f"{SCRAPE_FAILED}the report gives no address"


class Contents(Protocol):
    """Pages by address, such as `Pages`."""

    async def content(self, url: str) -> str:
        """Return title, description and text of a page, or `scrape failed: <reason>`."""
        ...


class CitationEntry(Record):
    """Entry of `citations`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    fact: str
    ref_idx: AnyText = ""
    url: AnyText = ""


class Verdict(Record):
    """Entry of `validate_res`: the label of the page's statement `idx`, from 0."""

    model_config = ConfigDict(frozen=True, extra="allow")

    idx: int
    result: AnyCaseLabel


class CitedPage(Record):
    """Cited page of `citations_deduped`: statements, then the page's content, then the labels of the statements."""

    model_config = ConfigDict(frozen=True, extra="allow")

    facts: tuple[str, ...]
    url_content: str | None = None
    validate_res: tuple[Verdict, ...] | None = None
    validate_error: str | None = None

    @property
    def readable(self) -> bool:
        """Return whether the page was fetched and has content."""
        return bool(self.url_content) and not str(self.url_content).startswith(SCRAPE_FAILED)


class FactRow(ReportRow):
    """A row of a stage's file; fields of later stages are None. Such a row may have failed: see `find_failure`."""

    citations: tuple[CitationEntry, ...] | None = None
    citations_deduped: dict[str, CitedPage] | None = None


class OriginalFactRow(FactRow):
    """A row as the original's `stat` reads it: without addresses that have a `validate_error`, and without unknown
    labels.

    `skipped` counts both.
    """

    skipped_addresses: int = 0
    skipped_labels: int = 0

    @model_validator(mode="before")
    @classmethod
    def _skip(cls, data: Any) -> Any:
        cited = data.get("citations_deduped") if isinstance(data, Mapping) else None
        if not isinstance(cited, Mapping):
            return data
        pages: dict[Any, Any] = {}
        addresses = labels = 0
        for url, page in cited.items():
            if isinstance(page, Mapping) and page.get("validate_error") is not None:
                addresses += 1
                continue
            pages[url] = page
            verdicts = page.get("validate_res") if isinstance(page, Mapping) else None
            if isinstance(verdicts, list):
                # A value that is not an object stays, and is reported.
                good = [item for item in verdicts if not isinstance(item, Mapping) or _is_label(item.get("result"))]
                labels += len(verdicts) - len(good)
                pages[url] = {**page, "validate_res": good}
        return {**data, "citations_deduped": pages, "skipped_addresses": addresses, "skipped_labels": labels}


class FactPagesFailed(Unscored):
    """Error of a report with statements that have no labels.

    `pages` are all of the report's, with `validate_error` on those with such statements.
    """

    def __init__(self, pages: Mapping[str, CitedPage]) -> None:
        failed = {url: page.validate_error for url, page in pages.items() if page.validate_error is not None}
        url, reason = next(iter(failed.items()))
        super().__init__(f"{len(failed)} of {len(pages)} pages could not be compared; {url}: {reason}")
        self.pages = pages


@dataclass(frozen=True, slots=True)
class FactScore:
    """Score of one report's citations, with its evidence: citations, and pages with their statements' labels."""

    citations: tuple[Citation, ...]
    pages: Mapping[str, CitedPage]
    counts: Counts

    @property
    def statistics(self) -> Statistics:
        """Return the statistics of this report alone."""
        return compute_statistics([self.counts])


async def score_fact(asking: Asking, pages: Contents, report: Report) -> FactScore:
    """Return all stages, on one report. Raises Unscored."""
    citations = await extract_citations(asking, report)
    cited = await scrape_pages(pages, await deduplicate_pages(asking, report, citations))
    validated = await validate_pages(asking, report, cited)
    return FactScore(citations, validated, count_pages(validated, report.article))


async def extract_citations(asking: Asking, report: Report) -> tuple[Citation, ...]:
    """Return the report's citations. Raises Unscored."""
    return tuple(await extract(asking, report.case_id, report.language, report.article))


async def deduplicate_pages(asking: Asking, report: Report, citations: Iterable[Citation]) -> dict[str, CitedPage]:
    """Return each cited page by its canonical address with its statements, equivalent ones once. Raises Unscored.

    The address "" has the statements cited without one: nothing is asked about them.
    """

    async def page(number: int, url: str, facts: list[str]) -> CitedPage:
        if url:
            facts = await deduplicate(asking, report.case_id, report.language, facts, number)
        return CitedPage(facts=tuple(facts), url_content=None)

    pages = group_by_page(citations)
    kept = await gather_all(*(page(number, url, facts) for number, (url, facts) in enumerate(pages.items(), 1)))
    return dict(zip(pages, kept, strict=True))


async def scrape_pages(pages: Contents, cited: Mapping[str, CitedPage]) -> dict[str, CitedPage]:
    """Return the pages with their contents: `scrape failed: ...` for unavailable ones. Existing contents are kept."""

    async def page(url: str, page: CitedPage) -> CitedPage:
        # A row that is scraped again, as after an interruption, keeps the pages that it has.
        if page.readable:
            return page
        return page.model_copy(update={"url_content": await pages.content(url) if url else NO_URL})

    found = await gather_all(*(page(url, cited_page) for url, cited_page in cited.items()))
    return dict(zip(cited, found, strict=True))


async def validate_pages(asking: Asking, report: Report, cited: Mapping[str, CitedPage]) -> dict[str, CitedPage]:
    """Return the pages with a label for each statement. Raises FactPagesFailed once all are through."""
    firsts = _number_requests(cited.values())

    async def page(page: CitedPage, request: int) -> CitedPage:
        content, facts = page.url_content or "", list(page.facts)
        try:
            labels = await validate(asking, report.case_id, report.language, content, facts, request)
        except Unscored as error:
            # One page that fails does not end the others, which are being paid for: all are kept, and the row fails
            # with them.
            return page.model_copy(update={"validate_res": (), "validate_error": str(error)})
        results = tuple(Verdict(idx=idx, result=label) for idx, label in enumerate(labels))
        return page.model_copy(update={"validate_res": results, "validate_error": None})

    found = await gather_all(*(page(*pair) for pair in zip(cited.values(), firsts, strict=True)))
    pages = dict(zip(cited, found, strict=True))
    if any(checked_page.validate_error is not None for checked_page in found):
        raise FactPagesFailed(pages)
    return pages


def find_failure(row: Mapping[str, Any], stages: Sequence[str] = STAGES) -> tuple[str, str] | None:
    """Return the stage in which a row of a stage's file has failed, with the reason, or None."""
    errors = ((stage, row.get(f"{stage}_error")) for stage in stages)
    return next(((stage, str(error)) for stage, error in errors if error is not None), None)


def count_row(row: FactRow) -> Counts:
    """Return the citations of a row of validated.jsonl by their labels. Raises Unscored if it has failed, or lacks any.

    An OriginalFactRow counts by its labels, also if single addresses have failed.
    """
    original = isinstance(row, OriginalFactRow)
    if (failed := find_failure(row.model_extra or {}, list_counted_stages(compat=original))) is not None:
        raise Unscored("failed in {}: {}".format(*failed))
    if row.citations_deduped is None:
        raise Unscored("citations_deduped: missing, expected the pages that `fact validate` has compared")
    for url, page in row.citations_deduped.items():
        if page.validate_error is not None:
            raise Unscored(f"citations_deduped: {url}: validate_error: {page.validate_error}")
        if original and page.validate_res is not None:
            continue
        labelled = {verdict.idx for verdict in page.validate_res or ()}
        # Rows of other programs may have labels twice, or not for every statement: shares of these would be shares of
        # nothing.
        if not len(labelled) == len(page.validate_res or ()) == len(page.facts):
            if page.validate_res is None:
                found = "none"
            else:
                found = f"{len(page.validate_res)}, {len(labelled)} of them different"
            raise Unscored(
                f"citations_deduped: {url}: validate_res: found {found}, expected one for each of its "
                f"{len(page.facts)} facts"
            )
    counts = count_pages(row.citations_deduped, row.article)
    if isinstance(row, OriginalFactRow):
        return replace(counts, skipped_addresses=row.skipped_addresses, skipped_labels=row.skipped_labels)
    return counts


def count_pages(pages: Mapping[str, CitedPage], article: str) -> Counts:
    """Return the labels of pages that are all compared, with the article's length."""
    # The address "" has the statements that are cited without one; they are labelled `unknown`, and counted here too.
    labels: Counter[Label] = Counter(verdict.result for page in pages.values() for verdict in page.validate_res or ())
    return Counts(
        supported=labels["supported"],
        unsupported=labels["unsupported"],
        unknown=labels["unknown"],
        words=count_article(article).words,
        without_url=len(pages[""].facts) if "" in pages else 0,
    )


def dump_pages(pages: Mapping[str, CitedPage]) -> dict[str, dict[str, Any]]:
    """Return the pages as in `citations_deduped`, without fields of later stages."""
    # Unset fields and not None ones: a row that another program wrote keeps its explicit nulls.
    return {url: page.model_dump(mode="json", exclude_unset=True) for url, page in pages.items()}


def _number_requests(pages: Iterable[CitedPage]) -> Sequence[int]:
    """Return the number of each page's first request, from 1, as if all pages were asked about."""
    # Numbers of requests that turn out to be unnecessary stay unused: a scripted reply belongs to a fixed request.
    firsts, request = [], 1
    for page in pages:
        firsts.append(request)
        request += requests_for(page.url_content or "", page.facts)
    return firsts
