"""`agentbench research fact`: say whether the citations of reports hold, stage by stage or all at once (seed 003)."""

from __future__ import annotations

import argparse
import ipaddress
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.packs.research.asking import Asking, Unscored
from pytest_agentbench.packs.research.call import FailedBefore, case_id
from pytest_agentbench.packs.research.commands import (
    RAW_DATA,
    RESULTS,
    add,
    add_config,
    add_judge,
    add_output,
    add_rows,
    add_script,
    chosen_rows,
    joined,
    label,
    spoken,
    value_of,
)
from pytest_agentbench.packs.research.fact.citations import Citation, Counts, result_text, statistics
from pytest_agentbench.packs.research.fact.rows import (
    STAGES,
    CitedPage,
    Contents,
    EndedRows,
    FactPagesFailed,
    FactRow,
    HeadRow,
    StoredRows,
    counts_of,
    deduplicated,
    extracted,
    failure,
    pages_as_json,
    scraped,
    validated,
)
from pytest_agentbench.packs.research.records import Language, QueryRow, Report
from pytest_agentbench.packs.research.rows import GoodRow, Joined, LostRow, prompt_key, read_research_rows
from pytest_agentbench.store.output_files import write_text

if TYPE_CHECKING:
    from pytest_agentbench.packs.research.call import Call


_Adding = Callable[[FactRow, Report], Awaitable[Mapping[str, Any]]]

FILES = {
    "extract": "extracted.jsonl",
    "deduplicate": "deduplicated.jsonl",
    "scrape": "scraped.jsonl",
    "validate": "validated.jsonl",
}
"""What each stage writes to the folder of a model."""
RESULT = "fact_result.txt"


async def all_stages(call: Call, source: Path, folder: Path, queries: Path | None = None) -> None:
    """Every stage, from a file of reports to fact_result.txt, in the folder of one model.

    `queries` say which language each report is in. Raises ConfigError where a file cannot be read or no judge is named.
    """
    languages = _Languages(call, queries)
    for stage in STAGES:
        target = folder / FILES[stage]
        await _add_keys(call, stage, source, target, languages)
        source = target
    await _count(call, source, folder / RESULT, languages)


async def one_stage(call: Call, stage: str, source: Path, target: Path, queries: Path | None = None) -> None:
    """One of STAGES, like `all_stages`."""
    await _add_keys(call, stage, source, target, _Languages(call, queries))


async def count(
    call: Call, source: Path, target: Path, queries: Path | None = None, reports: Path | None = None
) -> None:
    """The statistics of validated rows, like `all_stages`. Those of `reports` that no row is of count as failed."""
    await _count(call, source, target, _Languages(call, queries), reports)


async def _add_keys(call: Call, stage: str, source: Path, target: Path, languages: _Languages) -> None:
    """What a stage says of each row, added to it. Rows that failed before are passed on."""
    with ExitStack() as opened:
        stored = opened.enter_context(StoredRows(source))
        rows = dict(enumerate(chosen_rows(call, source, stored.heads(), languages.of)))
        add = await _adding(call, stage, source)
        ended = opened.enter_context(EndedRows(target))
        reached: list[bool] = []

        async def score(number: int) -> int:
            error = await _ended(stored.data(rows[number]), number)
            if error is not None:
                raise error
            return number

        async def _ended(data: Mapping[str, Any], number: int) -> AgentbenchError | None:
            """Return why the row has failed. Nothing is left of it in memory, not even by an error's traceback."""
            try:
                added = await add(*_report(rows[number], data, stage, source, languages))
            except AgentbenchError as error:
                ended.add(number, _failed(data, stage, error))
                return _bare(error)
            ended.add(number, {**_cleared(data, stage), **added})
            if stage == "scrape":
                cited = added["citations_deduped"].items()
                reached.extend([CitedPage.model_validate(page).readable for url, page in cited if url])
            return None

        await call.score(
            stage, list(rows), score, label=lambda number: label(rows[number]), write=lambda results: (ended.write(),)
        )
        if reached and not any(reached):
            call.broke(f"none of {len(reached)} cited pages could be read; {target} says of each why")


def _report(
    row: HeadRow, data: Mapping[str, Any], stage: str, source: Path, languages: _Languages
) -> tuple[FactRow, Report]:
    """Return what a row says. Raises AgentbenchError where it has failed before, or cannot be used."""
    if (failed := failure(data, STAGES[: STAGES.index(stage)])) is not None:
        raise FailedBefore(*failed)
    language = languages.expected(value_of(row))
    value = FactRow.model_validate(data)
    return value, Report(value.id, case_id(value.id), source.stem, value.prompt, value.article, language)


def _bare(error: AgentbenchError) -> AgentbenchError:
    """Return the error of its kind without its traceback."""
    if isinstance(error, FailedBefore):
        return FailedBefore(error.stage, error.reason)
    return ConfigError(str(error)) if isinstance(error, ConfigError) else Unscored(str(error))


async def _count(call: Call, source: Path, target: Path, languages: _Languages, reports: Path | None = None) -> None:
    with StoredRows(source) as stored:
        rows = chosen_rows(call, source, stored.heads(), languages.of)
        if reports is not None:
            rows += _lost_before(call, source, rows, reports, languages)

        async def score(row: HeadRow) -> Counts:
            if (failed := failure(row.data or {})) is not None:
                raise FailedBefore(*failed)
            value_of(row)
            try:
                return counts_of(FactRow.model_validate(stored.data(row)))
            except Unscored as error:
                reason = f"{source}:{row.line}:1: {error}"
            raise Unscored(reason)

        def write(results: Sequence[Counts | AgentbenchError | None]) -> tuple[Path, ...]:
            counts = [result for result in results if isinstance(result, Counts)]
            failed = sum(isinstance(result, AgentbenchError) for result in results)
            return (write_text(target, result_text(statistics(counts, failed), compat=call.args.compat)),)

        results = await call.score("stat", rows, score, label=label, write=write)
    for row, counts in zip(rows, results, strict=True):
        if isinstance(counts, Counts) and counts.without_url:
            share = f"{counts.without_url} of {counts.total} statements"
            call.warn(f"{label(row)}: {share} are cited without an address that stands in the report")


def _lost_before(
    call: Call, source: Path, rows: Sequence[HeadRow], reports: Path, languages: _Languages
) -> list[LostRow]:
    """Return the reports that no row is of: what wrote the rows has lost them without a word."""
    prompts = [row.value.prompt if isinstance(row, GoodRow) else (row.data or {}).get("prompt") for row in rows]
    known = {prompt_key(prompt) for prompt in prompts if isinstance(prompt, str)}
    found = chosen_rows(call, reports, read_research_rows(reports, QueryRow), languages.of)
    return [
        LostRow(row.line, f"{reports}:{row.line}:1: the report {row.value.id!r} has no row in {source}")
        for row in found
        if isinstance(row, GoodRow) and prompt_key(row.value.prompt) not in known
    ]


class _Languages:
    """The language of each row: that of its query, where queries are given."""

    def __init__(self, call: Call, queries: Path | None) -> None:
        self._queries: Joined[QueryRow] | None = None if queries is None else joined(call, queries, QueryRow)

    def expected(self, row: QueryRow) -> Language:
        """Raise ConfigError where the queries lack the row's."""
        partner = self._queries.partner(row) if self._queries is not None else None
        return (partner.language if partner is not None else None) or spoken(row)

    def of(self, row: QueryRow) -> Language:
        """Return the same, by the row alone where its query is missing."""
        try:
            return self.expected(row)
        except ConfigError:
            return spoken(row)


async def _adding(call: Call, stage: str, source: Path) -> _Adding:
    """Return what a stage adds to a row."""
    if stage == "scrape":
        return partial(_scrape, await call.pages(source))
    judged = {"extract": _extract, "deduplicate": _deduplicate, "validate": _validate}
    return partial(judged[stage], await call.asking(source))


async def _extract(asking: Asking, row: FactRow, report: Report) -> Mapping[str, Any]:
    return {"citations": [asdict(citation) for citation in await extracted(asking, report)]}


async def _deduplicate(asking: Asking, row: FactRow, report: Report) -> Mapping[str, Any]:
    if row.citations is None:
        raise ConfigError("citations: missing, expected those that `agentbench research fact extract` adds")
    citations = [Citation(each.fact, each.ref_idx, each.url) for each in row.citations]
    return {"citations_deduped": pages_as_json(await deduplicated(asking, report, citations))}


async def _scrape(pages: Contents, row: FactRow, report: Report) -> Mapping[str, Any]:
    return {"citations_deduped": pages_as_json(await scraped(pages, _pages(row, "deduplicate")))}


async def _validate(asking: Asking, row: FactRow, report: Report) -> Mapping[str, Any]:
    pages = _pages(row, "scrape")
    if any(page.url_content is None for page in pages.values()):
        raise ConfigError(
            "citations_deduped: found no url_content, expected what `agentbench research fact scrape` adds"
        )
    return {"citations_deduped": pages_as_json(await validated(asking, report, pages))}


def _pages(row: FactRow, stage: str) -> Mapping[str, CitedPage]:
    if row.citations_deduped is None:
        raise ConfigError(f"citations_deduped: missing, expected what `agentbench research fact {stage}` adds")
    return row.citations_deduped


def _failed(data: Mapping[str, Any], stage: str, error: AgentbenchError) -> Mapping[str, Any]:
    """Return the row as the stage's file has it, with why the stage has nothing to add. What failed before stays as it
    is.
    """
    if failure(data, STAGES[: STAGES.index(stage)]) is not None:
        return data
    found = {"citations_deduped": pages_as_json(error.pages)} if isinstance(error, FactPagesFailed) else {}
    return {**_cleared(data, stage), **found, f"{stage}_error": str(error)}


def _cleared(data: Mapping[str, Any], stage: str) -> Mapping[str, Any]:
    """Return the row without what it said of this stage and later ones."""
    since = {f"{each}_error" for each in STAGES[STAGES.index(stage) :]}
    return {name: value for name, value in data.items() if name not in since}


_AT_ONCE = 50


def add_pages(parser: argparse.ArgumentParser) -> None:
    """What may be fetched, and how much at once."""
    from pytest_agentbench.options import parse_positive

    group = parser.add_argument_group(
        "the pages", "They are fetched from here, or by the Jina reader where JINA_API_KEY is set."
    )
    add(
        group,
        "--allow_private",
        type=_network,
        action="append",
        default=[],
        metavar="NETWORK",
        help="fetch from this address or network too though it is not public; repeatable",
    )
    text = "pages at once (default: %(default)s)"
    add(group, "--page_concurrency", type=parse_positive, default=_AT_ONCE, metavar="N", help=text)


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, such as 10.0.0.0/8") from error
    return text


_USAGE = 2
_RESULTS = RESULTS / "fact"

_STAGES = {
    "extract": "list the statements of each report that cite something",
    "deduplicate": "of statements that cite one page and say the same keep one",
    "scrape": "fetch the pages that are cited",
    "validate": "say of each statement whether its page backs it",
    "stat": "count what holds; needs neither a model nor a network",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command, and each of its stages as a command of its own."""
    whole = subparsers.add_parser(
        "fact",
        help="say whether the citations of reports hold",
        usage="%(prog)s {MODEL | --raw-data-path FILE} [options]\n       %(prog)s STAGE [options]",
        description="Say whether the citations of reports hold: extract, deduplicate, scrape,\n"
        "validate, stat. Writes extracted.jsonl, deduplicated.jsonl, scraped.jsonl,\n"
        "validated.jsonl and fact_result.txt. The same command goes on where it was\n"
        "interrupted. Exit status 0: all reports are through; 1: some are not; 2: wrong\n"
        "usage.",
        epilog="\n".join(["stages:", *(f"  {stage:<13}{summary}" for stage, summary in _STAGES.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("model", nargs="?", help="whose reports: the file <raw_data_dir>/<model>.jsonl")
    files = whole.add_argument_group("files")
    add(files, "--raw_data_dir", type=Path, default=RAW_DATA, metavar="DIR", help="(default: %(default)s)")
    add(files, "--raw_data_path", "--input_file", type=Path, metavar="FILE", help="the reports, wherever they lie")
    add(files, "--output_dir", type=Path, metavar="DIR", help=f"(default: {_RESULTS}/<model>)")
    _add_queries(files)
    add_config(files)
    _add_compat(files)
    _add_network(whole)
    add_rows(whole)
    add_judge(whole)
    for stage, summary in _STAGES.items():
        _add_stage(subparsers, stage, summary)


def _add_stage(subparsers: argparse._SubParsersAction[argparse.ArgumentParser], stage: str, summary: str) -> None:
    parser = subparsers.add_parser(f"fact {stage}", help=summary, description=f"{summary.capitalize()}.")
    files = parser.add_argument_group("files")
    source = "--input_path" if stage == "stat" else "--raw_data_path"
    rows = "the reports" if stage == "extract" else "what the stage before has written"
    add(files, source, type=Path, required=True, dest="source", metavar="FILE", help=rows)
    add(files, "--output_path", type=Path, required=True, metavar="FILE", help="what to write")
    _add_queries(files)
    add_config(files)
    if stage == "stat":
        lacking = "the reports; one that the input has no row of counts as failed, by name"
        add(files, "--raw_data_path", type=Path, metavar="FILE", help=lacking)
        _add_compat(files)
    if stage == "scrape":
        _add_network(parser)
        add_script(files, "take the pages from this script, not from the web: <name>.demo.yaml")
        add_output(files)
    add_rows(parser)
    if stage not in ("scrape", "stat"):
        add_judge(parser)


def _add_queries(files: argparse._ArgumentGroup) -> None:
    text = "the queries, where they say which language each is in; every report needs its own then"
    add(files, "--query_data_path", "--query_file", type=Path, metavar="FILE", help=text)


def _add_compat(files: argparse._ArgumentGroup) -> None:
    add(files, "--compat", action="store_true", help="fact_result.txt has the original's three lines and no others")


def _add_network(parser: argparse.ArgumentParser) -> None:

    add_pages(parser)


def run(args: argparse.Namespace) -> int:
    """Run the stage that is named, else all of them."""
    from pytest_agentbench.packs.research.call import Call

    stage = args.chosen.partition(" ")[2]
    if not stage and (args.model is None) == (args.raw_data_path is None):
        print("agentbench research fact: expected a MODEL or --raw-data-path FILE, one of them", file=sys.stderr)
        return _USAGE
    call = Call(args.chosen, args)
    if stage == "stat":
        return call.run(lambda: count(call, args.source, args.output_path, args.query_data_path, args.raw_data_path))
    if stage:
        return call.run(lambda: one_stage(call, stage, args.source, args.output_path, args.query_data_path))
    source = args.raw_data_path or args.raw_data_dir / f"{args.model}.jsonl"
    folder = args.output_dir or _RESULTS / source.stem
    return call.run(lambda: all_stages(call, source, folder, args.query_data_path))
