"""`agentbench research race`: judges the quality of a model's reports, against references or alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.research.options import (
    CRITERIA,
    QUERIES,
    RAW_DATA,
    REFERENCES,
    RESULTS,
    add,
    add_compat,
    add_config,
    add_judge,
    add_rows,
)
from pytest_agentbench.errors import AgentbenchError

if TYPE_CHECKING:
    from pytest_agentbench.cli.research.call import Call
    from pytest_agentbench.records import Cleaning, Language, ReportRow
    from pytest_agentbench.research.race_judging import RaceJudged
    from pytest_agentbench.research.race_results import RaceRow
    from pytest_agentbench.sources.research_rows import GoodRow, LostRow

_USAGE = 2
RESULT, ROWS, DETAILS = "race_result.txt", "raw_results.jsonl", "race_details.jsonl"
_RESULTS = RESULTS / "race"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    parser = subparsers.add_parser(
        "race",
        help="judge the quality of reports",
        description=f"Let a model compare each report with the reference of its query, criterion by criterion. Writes "
        f"{RESULT} (means), {ROWS} (scores of each report) and {DETAILS} (what the judge said). The same command goes "
        "on where it was interrupted. Exit status 0: every report is scored; 1: some are not; 2: wrong usage.",
    )
    parser.add_argument("model", nargs="?", help="whose reports: the file <raw_data_dir>/<model>.jsonl")
    files = parser.add_argument_group("files")
    for name, default in {"--raw_data_dir": RAW_DATA, "--criteria_file": CRITERIA}.items():
        add(files, name, type=Path, default=default, metavar="PATH", help="(default: %(default)s)")
    add(files, "--query_file", type=Path, metavar="PATH", help=f"(default: {QUERIES}, where it is there)")
    add(files, "--reference_file", type=Path, metavar="PATH", help=f"(default: {REFERENCES})")
    add(files, "--output_dir", type=Path, metavar="DIR", help=f"(default: {_RESULTS}/<model>)")
    add(files, "--raw_results", type=Path, metavar="FILE", help=f"write {RESULT} of these scores; asks no model")
    add_judging(parser)
    add_config(files)
    add_rows(parser)
    add_judge(parser)


def add_judging(parser: argparse.ArgumentParser) -> None:
    """How reports are judged."""
    from pytest_agentbench.options import parse_positive

    group = parser.add_argument_group("the judging")
    add(group, "--pointwise", action="store_true", help="judge each report alone, without a reference")
    add(group, "--samples", type=parse_positive, default=1, metavar="K", help="ask K times and take the means")
    add(group, "--position_swap", action="store_true", help="ask in both orders and take the means")
    cleaning = group.add_mutually_exclusive_group()
    add(cleaning, "--skip_cleaning", action="store_true", help="judge texts with their links, markers and references")
    add(cleaning, "--model_cleaning", action="store_true", help="let the judge remove these, in place of fixed rules")
    add_compat(group)


def run(args: argparse.Namespace) -> int:
    """Judges the reports, or computes the means of stored scores."""
    from pytest_agentbench.cli.research.call import Call

    if (problem := _wrong_usage(args)) is not None:
        print(f"agentbench research race: {problem}", file=sys.stderr)
        return _USAGE
    call = Call("race", args)
    if args.raw_results is not None:
        return call.run(lambda: stored_scores(call, args.raw_results, args.output_dir))
    return call.run(lambda: judge_reports(call, args.model, args.output_dir or _RESULTS / args.model))


def _wrong_usage(args: argparse.Namespace) -> str | None:
    if args.raw_results is not None:
        return "--raw-results needs --output-dir" if args.output_dir is None else None
    if args.model is None:
        return "found no model; name the one whose reports are judged, or stored scores with --raw-results"
    if args.pointwise and args.reference_file is not None:
        return "--pointwise judges without a reference; leave out --reference-file"
    if args.pointwise and args.position_swap:
        return "--pointwise judges one text alone; leave out --position-swap"
    return None


async def stored_scores(call: Call, file: Path, output: Path) -> None:
    """Writes race_result.txt of a raw_results.jsonl. Raises ConfigError where that cannot be read."""
    from pytest_agentbench.cli.research.inputs import input_rows, label, value_of
    from pytest_agentbench.research.files import write_text
    from pytest_agentbench.research.race_results import RaceRow, race_means, result_text

    async def score(row: GoodRow[RaceRow] | LostRow) -> RaceRow:
        return value_of(row).scored

    def write(results: Sequence[RaceRow | AgentbenchError | None]) -> tuple[Path, ...]:
        scored = [result for result in results if isinstance(result, RaceRow)]
        return (write_text(output / RESULT, result_text(race_means(scored))),)

    results = await call.score("race", input_rows(call, file, RaceRow), score, label=label, write=write)
    _tell([result for result in results if isinstance(result, RaceRow)])


async def judge_reports(call: Call, model: str, output: Path) -> None:
    """Judges the reports of one model. Raises ConfigError where a file cannot be read, or no judge is named."""
    from pytest_agentbench.cli.printing import printable
    from pytest_agentbench.cli.research.inputs import chosen_rows, failed_row, label, value_of
    from pytest_agentbench.cli.research.partners import Partners
    from pytest_agentbench.records import ReportRow
    from pytest_agentbench.research.files import require_writable, write_rows, write_text
    from pytest_agentbench.research.race_judging import judge_race, rid_of_apparatus
    from pytest_agentbench.research.race_results import race_details, race_means, race_row, result_text
    from pytest_agentbench.research.report import article_digest
    from pytest_agentbench.sources.research_rows import read_research_rows

    args, reports = call.args, call.args.raw_data_dir / f"{model}.jsonl"
    partners = Partners.read(call, args.criteria_file, _references(args), _queries(args))
    found = list(read_research_rows(reports, ReportRow))
    rows = chosen_rows(call, reports, found, partners.language)
    if unanswered := partners.unanswered(found):
        call.warn(f"{reports}: found no report of these queries: {', '.join(repr(query.id) for query in unanswered)}")
    asking = await call.asking(reports)
    require_writable(output / RESULT, output / ROWS, output / DETAILS)

    async def score(row: GoodRow[ReportRow] | LostRow) -> tuple[RaceRow, RaceJudged]:
        question = await rid_of_apparatus(asking, partners.question(value_of(row)), _cleaning(args))
        judged = await judge_race(
            asking, question, samples=args.samples, position_swap=args.position_swap, compat=args.compat
        )
        scored = race_row(value_of(row).id, question.query, question.language, judged)
        return scored.model_copy(update={"article_digest": article_digest(value_of(row).article)}), judged

    def write(results: Sequence[tuple[RaceRow, RaceJudged] | AgentbenchError | None]) -> tuple[Path, ...]:
        lines: list[dict[str, Any]] = []
        scored: list[tuple[RaceRow, RaceJudged]] = []
        for row, result in zip(rows, results, strict=True):
            if isinstance(result, AgentbenchError):
                lines.append(failed_row(row, "race_error", result))
            elif result is not None:
                lines.append(result[0].model_dump(exclude_unset=True))
                scored.append(result)
        return (
            write_text(output / RESULT, result_text(race_means([row for row, _ in scored]))),
            write_rows(output / ROWS, lines),
            write_rows(output / DETAILS, [race_details(row.id, judged) for row, judged in scored]),
        )

    results = await call.score("race", rows, score, label=label, write=write)
    if call.model is not None:
        print(f"{printable(call.model)}:")
    _tell([result[0] for result in results if isinstance(result, tuple)])


def _cleaning(args: argparse.Namespace) -> Cleaning:
    return "none" if args.skip_cleaning else "model" if args.model_cleaning else "deterministic"


def _references(args: argparse.Namespace) -> Path | None:
    return None if args.pointwise else args.reference_file or REFERENCES


def _queries(args: argparse.Namespace) -> Path | None:
    return args.query_file or (QUERIES if QUERIES.exists() else None)


def _tell(rows: Sequence[RaceRow]) -> None:
    """Prints the means, also those of each language where there are several."""
    from pytest_agentbench.cli.research.inputs import spoken
    from pytest_agentbench.research.race_results import race_means, result_text

    print(result_text(race_means(rows)), end="")
    by_language: dict[Language, list[RaceRow]] = {}
    for row in rows:
        by_language.setdefault(spoken(row), []).append(row)
    for language, group in sorted(by_language.items()) if len(by_language) > 1 else ():
        print(f"Overall Score ({language}, {len(group)} of {len(rows)}): {race_means(group)['overall_score']:.4f}")
