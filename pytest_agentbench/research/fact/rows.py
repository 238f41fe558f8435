"""FACT on one report, stage by stage, and what the rows of its files say (seed 003, `results/fact/<model>/`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ConfigDict

from pytest_agentbench.records import Record, ReportRow
from pytest_agentbench.research.asking import Asking, Unscored
from pytest_agentbench.research.counting import counted
from pytest_agentbench.research.fact.citations import Citation, by_page
from pytest_agentbench.research.fact.deduplicating import deduplicate
from pytest_agentbench.research.fact.extracting import AnyText, extract
from pytest_agentbench.research.fact.statistics import Counts, Label, Statistics, statistics
from pytest_agentbench.research.fact.validating import SCRAPE_FAILED, AnyCaseLabel, requests_for, validate
from pytest_agentbench.research.pieces import together
from pytest_agentbench.research.report import Report

STAGES = ("extract", "deduplicate", "scrape", "validate")
"""Each adds its keys to a row, or `<stage>_error`."""

NO_URL = f"{SCRAPE_FAILED}the report gives no address"


class Contents(Protocol):
    """Whoever has pages, such as `Pages`."""

    async def content(self, url: str) -> str:
        """Title, description and text of a page, or `scrape failed: <reason>`."""
        ...


class CitationEntry(Record):
    """One of `citations`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    fact: str
    ref_idx: AnyText = ""
    url: AnyText = ""


class Verdict(Record):
    """One of `validate_res`: the label of the page's statement `idx`, from 0."""

    model_config = ConfigDict(frozen=True, extra="allow")

    idx: int
    result: AnyCaseLabel


class CitedPage(Record):
    """What `citations_deduped` has of one address: statements, then the page's content, then their labels."""

    model_config = ConfigDict(frozen=True, extra="allow")

    facts: tuple[str, ...]
    url_content: str | None = None
    validate_res: tuple[Verdict, ...] | None = None
    validate_error: str | None = None

    @property
    def readable(self) -> bool:
        """Whether its content could be had."""
        return bool(self.url_content) and not str(self.url_content).startswith(SCRAPE_FAILED)


class FactRow(ReportRow):
    """A row of a stage's file; what stages to come will add is None. Such a row may have failed: see `failure`."""

    citations: tuple[CitationEntry, ...] | None = None
    citations_deduped: dict[str, CitedPage] | None = None


class FactPagesFailed(Unscored):
    """Some pages' statements have no labels. `pages` are all of the report's, with `validate_error` at these."""

    def __init__(self, pages: Mapping[str, CitedPage]) -> None:
        failed = {url: page.validate_error for url, page in pages.items() if page.validate_error is not None}
        url, reason = next(iter(failed.items()))
        super().__init__(f"{len(failed)} of {len(pages)} pages could not be compared; {url}: {reason}")
        self.pages = pages


@dataclass(frozen=True, slots=True)
class FactScore:
    """What FACT says of one report, with its evidence: citations, and pages with the labels of their statements."""

    citations: tuple[Citation, ...]
    pages: Mapping[str, CitedPage]
    counts: Counts

    @property
    def statistics(self) -> Statistics:
        """Those of this report alone."""
        return statistics([self.counts])


async def score_fact(asking: Asking, pages: Contents, report: Report) -> FactScore:
    """All stages, on one report. Raises Unscored."""
    citations = await extracted(asking, report)
    cited = await scraped(pages, await deduplicated(asking, report, citations))
    found = await validated(asking, report, cited)
    return FactScore(citations, found, counts_of_pages(found, report.article))


async def extracted(asking: Asking, report: Report) -> tuple[Citation, ...]:
    """The report's citations. Raises Unscored."""
    return tuple(await extract(asking, report.case_id, report.language, report.article))


async def deduplicated(asking: Asking, report: Report, citations: Iterable[Citation]) -> dict[str, CitedPage]:
    """Each cited page by its canonical address with its statements, those that say the same once. Raises Unscored.

    The address "" has those that are cited without one: nothing is asked about them.
    """

    async def page(number: int, url: str, facts: list[str]) -> CitedPage:
        if url:
            facts = await deduplicate(asking, report.case_id, report.language, facts, number)
        return CitedPage(facts=tuple(facts), url_content=None)

    pages = by_page(citations)
    kept = await together(*(page(number, url, facts) for number, (url, facts) in enumerate(pages.items(), 1)))
    return dict(zip(pages, kept, strict=True))


async def scraped(pages: Contents, cited: Mapping[str, CitedPage]) -> dict[str, CitedPage]:
    """The pages with their contents: `scrape failed: ...` for those that cannot be had. What is there is kept."""

    async def page(url: str, page: CitedPage) -> CitedPage:
        if page.readable:
            return page
        return page.model_copy(update={"url_content": await pages.content(url) if url else NO_URL})

    found = await together(*(page(url, each) for url, each in cited.items()))
    return dict(zip(cited, found, strict=True))


async def validated(asking: Asking, report: Report, cited: Mapping[str, CitedPage]) -> dict[str, CitedPage]:
    """The pages with a label for each statement. Raises FactPagesFailed once all are through."""
    firsts = _first_requests(cited.values())

    async def page(page: CitedPage, request: int) -> CitedPage:
        content, facts = page.url_content or "", list(page.facts)
        try:
            labels = await validate(asking, report.case_id, report.language, content, facts, request)
        except Unscored as error:
            return page.model_copy(update={"validate_res": (), "validate_error": str(error)})
        results = tuple(Verdict(idx=idx, result=label) for idx, label in enumerate(labels))
        return page.model_copy(update={"validate_res": results, "validate_error": None})

    found = await together(*(page(each, request) for each, request in zip(cited.values(), firsts, strict=True)))
    pages = dict(zip(cited, found, strict=True))
    if any(each.validate_error is not None for each in found):
        raise FactPagesFailed(pages)
    return pages


def failure(row: Mapping[str, Any], stages: Sequence[str] = STAGES) -> tuple[str, str] | None:
    """The stage in which a row of a stage's file has failed, with the reason; None where it has in none of `stages`."""
    errors = ((stage, row.get(f"{stage}_error")) for stage in stages)
    return next(((stage, str(error)) for stage, error in errors if error is not None), None)


def counts_of(row: FactRow) -> Counts:
    """The citations of a row of validated.jsonl by their labels. Raises Unscored where it has failed, or lacks any."""
    if (failed := failure(row.model_extra or {})) is not None:
        raise Unscored("failed in {}: {}".format(*failed))
    if row.citations_deduped is None:
        raise Unscored("citations_deduped: missing, expected the pages that `fact validate` has compared")
    for url, page in row.citations_deduped.items():
        if page.validate_error is not None:
            raise Unscored(f"citations_deduped: {url}: validate_error: {page.validate_error}")
        labelled = {each.idx for each in page.validate_res or ()}
        if not len(labelled) == len(page.validate_res or ()) == len(page.facts):
            found = (
                "none" if page.validate_res is None else f"{len(page.validate_res)}, {len(labelled)} of them different"
            )
            raise Unscored(
                f"citations_deduped: {url}: validate_res: found {found}, expected one for each of its "
                f"{len(page.facts)} facts"
            )
    return counts_of_pages(row.citations_deduped, row.article)


def counts_of_pages(pages: Mapping[str, CitedPage], article: str) -> Counts:
    """The labels of pages that are all compared, with the article's length."""
    labels: Counter[Label] = Counter(each.result for page in pages.values() for each in page.validate_res or ())
    return Counts(
        supported=labels["supported"],
        unsupported=labels["unsupported"],
        unknown=labels["unknown"],
        words=counted(article).words,
        without_url=len(pages[""].facts) if "" in pages else 0,
    )


def pages_as_json(pages: Mapping[str, CitedPage]) -> dict[str, dict[str, Any]]:
    """As `citations_deduped` has them, without what no stage has said yet."""
    return {url: page.model_dump(mode="json", exclude_unset=True) for url, page in pages.items()}


def _first_requests(pages: Iterable[CitedPage]) -> Sequence[int]:
    """The number of each page's first request, from 1, as if all pages were asked about."""
    firsts, request = [], 1
    for page in pages:
        firsts.append(request)
        request += requests_for(page.url_content or "", page.facts)
    return firsts
