"""`agentbench research fact`: check the citations of reports, stage by stage or all at once (seed 003)."""

from __future__ import annotations

import argparse
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.bounded.writing import write_text
from pytest_agentbench.cli.output import refuse_usage
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.models.prompts import clip_middle
from pytest_agentbench.packs.research.asking import Asking, Unscored
from pytest_agentbench.packs.research.call import Call, FailedBefore, case_id
from pytest_agentbench.packs.research.commands import (
    RAW_DATA,
    RESULTS,
    add,
    add_config,
    add_judge,
    add_output,
    add_rows,
    add_script,
)
from pytest_agentbench.packs.research.fact.citations import (
    LABELS,
    Citation,
    Counts,
    compute_statistics,
    format_result,
)
from pytest_agentbench.packs.research.fact.row_files import EndedRows, HeadRow, StoredRows
from pytest_agentbench.packs.research.fact.rows import (
    STAGES,
    CitedPage,
    Contents,
    FactPagesFailed,
    FactRow,
    FactScore,
    OriginalFactRow,
    count_row,
    deduplicate_pages,
    dump_pages,
    extract_citations,
    find_failure,
    list_counted_stages,
    score_fact,
    scrape_pages,
    validate_pages,
)
from pytest_agentbench.packs.research.inputs import chosen_rows, join_optional, language_of_row, name_row, require_value
from pytest_agentbench.packs.research.records import CitedStatement, Language, QueryRow, Report
from pytest_agentbench.packs.research.rows import GoodRow, Joined, LostRow, prompt_key, read_research_rows
from pytest_agentbench.packs.research.scores import LONGEST_EVIDENCE, describe_score
from pytest_agentbench.packs.research.stages import PART_STAGES

if TYPE_CHECKING:
    from pytest_agentbench.packs.research.grading import Grading, Metrics


_Adding = Callable[[FactRow, Report], Awaitable[Mapping[str, Any]]]

FILES = {
    "extract": "extracted.jsonl",
    "deduplicate": "deduplicated.jsonl",
    "scrape": "scraped.jsonl",
    "validate": PART_STAGES["fact"].rows,
}
"""File of each stage in the folder of a model."""
RESULT = "fact_result.txt"


async def all_stages(call: Call, source: Path, folder: Path, queries: Path | None = None) -> None:
    """Run every stage, from a file of reports to fact_result.txt, in the folder of one model.

    `queries` contain the language of each report. Raises ConfigError if a file cannot be read or no judge is named.
    """
    # Read once for all stages: problems of the file are printed once.
    languages = _Languages(call, queries)
    for stage in STAGES:
        target = folder / FILES[stage]
        await _run_stage(call, stage, source, target, languages)
        source = target
    await _count_labels(call, source, folder / RESULT, languages)


async def score_reports(call: Call, reports: Path, output: Path) -> None:
    """Take the reports of a file through every stage, with the options of `agentbench research run`."""
    await all_stages(call, reports, output, call.args.query_file)


async def _run_stage(call: Call, stage: str, source: Path, target: Path, languages: _Languages) -> None:
    """Add a stage's results to each row. Rows that failed before are copied."""
    with ExitStack() as files:
        stored = files.enter_context(StoredRows(source))
        rows = dict(enumerate(chosen_rows(call, source, stored.heads(), languages.of)))
        add = await _open_stage(call, stage, source)
        ended = files.enter_context(EndedRows(target))
        readable_pages: list[bool] = []

        async def score(number: int) -> int:
            # Raised here and not below: a traceback would hold the frames that hold the row with all its pages.
            error = await add_row(stored.data(rows[number]), number)
            if error is not None:
                raise error
            return number

        async def add_row(data: Mapping[str, Any], number: int) -> AgentbenchError | None:
            """Return why the row has failed. Nothing is left of it in memory, not even by an error's traceback."""
            try:
                added = await add(*_report(rows[number], data, stage, source, languages))
            except AgentbenchError as error:
                ended.add(number, _add_error(data, stage, error))
                return _drop_traceback(error)
            ended.add(number, {**_drop_errors(data, stage), **added})
            if stage == "scrape":
                cited = added["citations_deduped"].items()
                readable_pages.extend([CitedPage.model_validate(page).readable for url, page in cited if url])
            return None

        await call.score(
            stage,
            list(rows),
            score,
            label=lambda number: name_row(rows[number]),
            write=lambda results: (ended.write(),),
        )
        # If every single page failed, this machine's network is a likelier cause than the reports.
        if readable_pages and not any(readable_pages):
            call.mark_broken(f"0 of {len(readable_pages)} cited pages could be read; {target} has the reason for each")


def _report(
    row: HeadRow, data: Mapping[str, Any], stage: str, source: Path, languages: _Languages
) -> tuple[FactRow, Report]:
    """Return the content of a row. Raises AgentbenchError if it has failed before, or cannot be used."""
    if (failed := find_failure(data, STAGES[: STAGES.index(stage)])) is not None:
        raise FailedBefore(*failed)
    language = languages.expected(require_value(row))
    # Read and checked again here, where its turn is: only heads of rows are kept in memory.
    value = FactRow.model_validate(data)
    return value, Report(value.id, case_id(value.id), source.stem, value.prompt, value.article, language)


def _drop_traceback(error: AgentbenchError) -> AgentbenchError:
    """Return the error of its kind without its traceback."""
    if isinstance(error, FailedBefore):
        return FailedBefore(error.stage, error.reason)
    if isinstance(error, ConfigError):
        return ConfigError(str(error))
    return Unscored(str(error))


async def _count_labels(
    call: Call, source: Path, target: Path, languages: _Languages, reports: Path | None = None
) -> None:
    """Write the statistics of validated rows. Reports of the file `reports` that have no row count as failed."""
    record: type[FactRow] = OriginalFactRow if call.args.compat else FactRow
    with StoredRows(source) as stored:
        rows = chosen_rows(call, source, stored.heads(record), languages.of)
        if reports is not None:
            rows += _find_lost_reports(call, source, rows, reports, languages)

        async def score(row: HeadRow) -> Counts:
            if (failed := find_failure(row.data or {}, list_counted_stages(compat=call.args.compat))) is not None:
                raise FailedBefore(*failed)
            require_value(row)
            try:
                return count_row(record.model_validate(stored.data(row)))
            except Unscored as error:
                # Raised outside of the handler: within it the first error, with the row's pages in its frames, would
                # be its context.
                reason = f"{source}:{row.line}:1: {error}"
            raise Unscored(reason)

        def write(results: Sequence[Counts | AgentbenchError | None]) -> tuple[Path, ...]:
            counts = [result for result in results if isinstance(result, Counts)]
            failed = sum(isinstance(result, AgentbenchError) for result in results)
            return (write_text(target, format_result(compute_statistics(counts, failed), compat=call.args.compat)),)

        results = await call.score("stat", rows, score, label=name_row, write=write)
    for row, counts in zip(rows, results, strict=True):
        if isinstance(counts, Counts) and counts.without_url:
            share = f"{counts.without_url} of {counts.total} statements"
            call.warn(f"{name_row(row)}: {share} have no address in the report")
        if isinstance(counts, Counts) and counts.skipped:
            call.warn(
                f"{name_row(row)}: skipped {counts.skipped_addresses} addresses with a validate_error and "
                f"{counts.skipped_labels} labels other than {', '.join(LABELS)}"
            )


def _find_lost_reports(
    call: Call, source: Path, rows: Sequence[HeadRow], reports: Path, languages: _Languages
) -> list[LostRow]:
    """Return the reports without a row: the program that wrote the rows has lost them silently."""
    prompts = [(row.data or {}).get("prompt") for row in rows]
    known_prompts = {prompt_key(prompt) for prompt in prompts if isinstance(prompt, str)}
    report_rows = chosen_rows(call, reports, read_research_rows(reports, QueryRow), languages.of)
    return [
        LostRow(row.line, f"{reports}:{row.line}:1: the report {row.value.id!r} has no row in {source}")
        for row in report_rows
        if isinstance(row, GoodRow) and prompt_key(row.value.prompt) not in known_prompts
    ]


class _Languages:
    """Languages of rows: the language of the query if queries are given, else of the row."""

    def __init__(self, call: Call, queries: Path | None) -> None:
        self._queries: Joined[QueryRow] | None = join_optional(call, queries, QueryRow)

    def expected(self, row: QueryRow) -> Language:
        """Return the language of a row. Raises ConfigError if the queries lack its query."""
        if self._queries is None:
            return language_of_row(row)
        return self._queries.partner(row).language or language_of_row(row)

    def of(self, row: QueryRow) -> Language:
        """Return the language of a row; if its query is missing, from the row alone."""
        try:
            return self.expected(row)
        except ConfigError:
            return language_of_row(row)


async def _open_stage(call: Call, stage: str, source: Path) -> _Adding:
    """Return the function that adds a stage's results to a row."""
    if stage == "scrape":
        return partial(_scrape, await call.pages(source))
    judged_stages = {"extract": _extract, "deduplicate": _deduplicate, "validate": _validate}
    return partial(judged_stages[stage], await call.asking(source))


async def _extract(asking: Asking, row: FactRow, report: Report) -> Mapping[str, Any]:
    return {"citations": [asdict(citation) for citation in await extract_citations(asking, report)]}


async def _deduplicate(asking: Asking, row: FactRow, report: Report) -> Mapping[str, Any]:
    if row.citations is None:
        raise ConfigError("citations: missing, expected those that `agentbench research fact extract` adds")
    citations = [Citation(entry.fact, entry.ref_idx, entry.url) for entry in row.citations]
    return {"citations_deduped": dump_pages(await deduplicate_pages(asking, report, citations))}


async def _scrape(pages: Contents, row: FactRow, report: Report) -> Mapping[str, Any]:
    return {"citations_deduped": dump_pages(await scrape_pages(pages, _pages(row, "deduplicate")))}


async def _validate(asking: Asking, row: FactRow, report: Report) -> Mapping[str, Any]:
    pages = _pages(row, "scrape")
    # Validated without its content, a page would be `unknown` though nobody has fetched it.
    if any(page.url_content is None for page in pages.values()):
        raise ConfigError(
            "citations_deduped: found no url_content, expected the output of `agentbench research fact scrape`"
        )
    return {"citations_deduped": dump_pages(await validate_pages(asking, report, pages))}


def _pages(row: FactRow, stage: str) -> Mapping[str, CitedPage]:
    if row.citations_deduped is None:
        raise ConfigError(f"citations_deduped: missing, expected the output of `agentbench research fact {stage}`")
    return row.citations_deduped


def _add_error(data: Mapping[str, Any], stage: str, error: AgentbenchError) -> Mapping[str, Any]:
    """Return the row of the stage's file, with the reason for missing results. Earlier failures are copied."""
    if find_failure(data, STAGES[: STAGES.index(stage)]) is not None:
        return data
    # Labels of the other pages are kept, in the file too: they are paid for.
    pages = {"citations_deduped": dump_pages(error.pages)} if isinstance(error, FactPagesFailed) else {}
    return {**_drop_errors(data, stage), **pages, f"{stage}_error": str(error)}


def _drop_errors(data: Mapping[str, Any], stage: str) -> Mapping[str, Any]:
    """Return the row without its errors of this stage and later ones."""
    # Of later stages too: they concerned the results that this stage replaces.
    error_keys = {f"{later_stage}_error" for later_stage in STAGES[STAGES.index(stage) :]}
    return {name: value for name, value in data.items() if name not in error_keys}


_AT_ONCE = 50
_MOST_STATEMENTS = 300
"""Maximum statements of a report that an evaluation keeps."""


def add_pages(parser: argparse.ArgumentParser) -> None:
    """Add the options for permitted pages and concurrency."""
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


_RESULTS = RESULTS / PART_STAGES["fact"].folder

_STAGES = {
    "extract": "list the statements of each report that cite something",
    "deduplicate": "keep one of several equivalent statements on a page",
    "scrape": "fetch the pages that are cited",
    "validate": "judge for each statement whether its page supports it",
    "stat": "count supported citations; needs no model and no network",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command, and each of its stages as a separate command."""
    whole = subparsers.add_parser(
        "fact",
        # By hand: argparse cannot make a positional and an option exclude each other.
        usage="%(prog)s {MODEL | --raw-data-path FILE} [options]\n       %(prog)s STAGE [options]",
        description="Check the citations of reports: extract, deduplicate, scrape,\n"
        "validate, stat. Writes extracted.jsonl, deduplicated.jsonl, scraped.jsonl,\n"
        "validated.jsonl and fact_result.txt. The same command continues after\n"
        "an interruption. Exit status 0: all reports are scored; 1: some are not;\n"
        "2: wrong usage.",
        epilog="\n".join(["stages:", *(f"  {stage:<13}{summary}" for stage, summary in _STAGES.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("model", nargs="?", help="whose reports: the file <raw_data_dir>/<model>.jsonl")
    files = whole.add_argument_group("files")
    add(files, "--raw_data_dir", type=Path, default=RAW_DATA, metavar="DIR", help="(default: %(default)s)")
    add(files, "--raw_data_path", "--input_file", type=Path, metavar="FILE", help="the reports, at any path")
    add(files, "--output_dir", type=Path, metavar="DIR", help=f"(default: {_RESULTS}/<model>)")
    _add_queries(files)
    add_config(files)
    _add_compat(files)
    add_pages(whole)
    add_rows(whole)
    add_judge(whole)
    for stage, summary in _STAGES.items():
        _add_stage(subparsers, stage, summary)


def _add_stage(subparsers: argparse._SubParsersAction[argparse.ArgumentParser], stage: str, summary: str) -> None:
    parser = subparsers.add_parser(f"fact {stage}", description=f"{summary.capitalize()}.")
    files = parser.add_argument_group("files")
    source = "--input_path" if stage == "stat" else "--raw_data_path"
    rows = "the reports" if stage == "extract" else "the output of the previous stage"
    add(files, source, type=Path, required=True, dest="source", metavar="FILE", help=rows)
    add(files, "--output_path", type=Path, required=True, metavar="FILE", help="the output")
    _add_queries(files)
    add_config(files)
    if stage == "stat":
        lacking = "the reports; one that the input has no row of counts as failed, by name"
        add(files, "--raw_data_path", type=Path, metavar="FILE", help=lacking)
        _add_compat(files)
    if stage == "scrape":
        add_pages(parser)
        add_script(files, "read the pages from this script instead of the web: <name>.demo.yaml")
        add_output(files)
    add_rows(parser)
    if stage not in ("scrape", "stat"):
        add_judge(parser)


def _add_queries(files: argparse._ArgumentGroup) -> None:
    text = "queries with the language of each report; then every report needs a query"
    add(files, "--query_data_path", "--query_file", type=Path, metavar="FILE", help=text)


def _add_compat(files: argparse._ArgumentGroup) -> None:
    text = "count as the original does: skip addresses with a validate_error and unknown labels; write its three lines"
    add(files, "--compat", action="store_true", help=text)


def run(args: argparse.Namespace) -> int:
    """Run the stage that is named, else all of them."""
    # `fact extract` is a separate command for argparse; `chosen` has both words.
    stage = args.chosen.partition(" ")[2]
    if not stage and (args.model is None) == (args.raw_data_path is None):
        return refuse_usage("research fact", "expected a MODEL or --raw-data-path FILE, one of them")
    call = Call(args.chosen, args)
    queries = args.query_data_path
    if stage == "stat":
        source, target, reports = args.source, args.output_path, args.raw_data_path
        return call.run(lambda: _count_labels(call, source, target, _Languages(call, queries), reports))
    if stage:
        return call.run(lambda: _run_stage(call, stage, args.source, args.output_path, _Languages(call, queries)))
    source = args.raw_data_path or args.raw_data_dir / f"{args.model}.jsonl"
    folder = args.output_dir or _RESULTS / source.stem
    return call.run(lambda: all_stages(call, source, folder, queries))


async def grade_report(grading: Grading) -> FactScore:
    """Return whether the citations of one item's report hold. Raises Unscored."""
    return await score_fact(grading.asking, grading.pages(), grading.report)


def list_metrics(grading: Grading) -> Metrics:
    """Yield the share of citations that hold, and how many there are."""
    counts = grading.score("fact").counts
    labels = {"supported": counts.supported, "unsupported": counts.unsupported, "unknown": counts.unknown}
    why = "no citation could be checked" if counts.total else "it has no citations"
    yield "fact_accuracy", counts.accuracy, describe_score(counts.accuracy, why, **labels)
    yield "fact_citations", float(counts.known), {}
    yield "fact_valid_citations", float(counts.supported), {}
    rich = counts.per_1000_words
    details = {"words": counts.words} if rich is not None else {"reason": "the report has no words"}
    yield "fact_supported_per_1000_words", rich, details


def keep_evidence(score: FactScore) -> Mapping[str, Any]:
    """Return the first statements with the labels of their pages, and how many more there are."""
    statements = [
        CitedStatement(
            url=clip_middle(url, LONGEST_EVIDENCE),
            fact=clip_middle(page.facts[verdict.idx], LONGEST_EVIDENCE),
            label=verdict.result,
        )
        for url, page in score.pages.items()
        for verdict in page.validate_res or ()
    ]
    left_out = max(0, len(statements) - _MOST_STATEMENTS)
    return {"statements": tuple(statements[:_MOST_STATEMENTS]), "statements_left_out": left_out}
