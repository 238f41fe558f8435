"""`agentbench research ...`: scores research reports, stage by stage or all at once by `run`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_agentbench.cli.commands import Command, add_commands, run_chosen
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.packs.research.records import Language, QueryRow, RaceCriteria, ReferenceRow, ReportRow
from pytest_agentbench.packs.research.rows import (
    GoodRow,
    Joined,
    LostRow,
    Prompted,
    distinct,
    language_of,
    read_research_rows,
)

if TYPE_CHECKING:
    from pytest_agentbench.config.annotations import Annotations
    from pytest_agentbench.packs.research.call import Call
    from pytest_agentbench.packs.research.records import Report


_HERE = "pytest_agentbench.packs.research"
_COMMANDS = {
    "run": Command(
        "the whole pipeline: queries, criteria, RACE, FACT, efficiency, strategic, interaction, POET",
        f"{_HERE}.pipeline",
    ),
    "select-queries": Command(
        "score queries by seven dimensions and keep the valuable ones", f"{_HERE}.select_queries"
    ),
    "criteria": Command("make RACE's criteria for queries", f"{_HERE}.criteria"),
    "race": Command("judge the quality of reports, against references or alone", f"{_HERE}.race"),
    "fact": Command(
        "say whether the citations of reports hold: extract, deduplicate, scrape, validate, stat",
        f"{_HERE}.fact.command",
    ),
    "efficiency": Command("compare the time and cost of reports with an expert's", f"{_HERE}.efficiency"),
    "strategic": Command("judge what reports are worth beyond their task", f"{_HERE}.strategic"),
    "interaction": Command("say how the agent worked with the web", f"{_HERE}.interaction"),
    "poet": Command("put the parts together and write the business report", f"{_HERE}.poet"),
    "convert": Command("turn Markdown into JSONL", f"{_HERE}.convert"),
    "lint": Command("find what is wrong with queries, criteria, annotations, references and reports", f"{_HERE}.lint"),
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its own commands."""
    parser = subparsers.add_parser("research", help="research reports", description=__doc__)
    add_commands(parser, "research", _COMMANDS)


def run(args: argparse.Namespace) -> int:
    """Run one of them."""
    return run_chosen(_COMMANDS, args)


QUERIES = Path("data/prompt_data/query.jsonl")
CRITERIA = Path("data/criteria_data/criteria.jsonl")
REFERENCES = Path("data/reference/reference.jsonl")
RAW_DATA = Path("data/test_data/raw_data")
ANNOTATIONS = Path("data/annotation")
RESULTS = Path("results")
"""Where the seed has its files, unless an option names another place."""


def add(parser: argparse._ActionsContainer, *names: str, **settings: Any) -> None:
    """Add an option under each of its names, such as `--input_file`, and under the same with dashes."""
    spellings = [spelling for name in names for spelling in (name.replace("_", "-"), name)]
    settings.setdefault("dest", names[0].removeprefix("--"))
    parser.add_argument(*dict.fromkeys(spellings), **settings)


def add_judge(parser: argparse.ArgumentParser) -> None:
    """Who judges, what that may cost, where replies are kept."""
    from pytest_agentbench.options import parse_money

    group = parser.add_argument_group("the judge")
    add(group, "--judge", metavar="MODEL", help="the model that judges (default: OPENAI_MODEL at OPENAI_BASE_URL)")
    add(group, "--profile", metavar="NAME", help="an evaluation profile whose first judge judges")
    add_script(group, "what a scripted judge says: <name>.demo.yaml")
    add(group, "--max_cost", type=parse_money, metavar="USD", help="ask nothing more once this call has cost this much")
    add_output(group)


def add_script(parser: argparse._ActionsContainer, text: str) -> None:
    """Where a script is."""
    add(parser, "--script", type=Path, metavar="FILE", help=text)


def add_output(parser: argparse._ActionsContainer) -> None:
    """Where replies and pages are kept."""
    add(
        parser,
        "--kept",
        type=Path,
        default=Path("outputs"),
        metavar="DIR",
        help="where replies and pages are kept, so that nothing is paid for or fetched twice (default: %(default)s)",
    )


def add_config(parser: argparse._ActionsContainer) -> None:
    """Weights, languages and workers."""
    add(parser, "--config", type=Path, metavar="FILE", help="poet_algorithm_config.json (default: its usual values)")


def add_compat(parser: argparse._ActionsContainer) -> None:
    """What the original of seed 003 does otherwise."""
    add(parser, "--compat", action="store_true", help="compute as the original does, where that differs")


def add_rows(parser: argparse.ArgumentParser) -> None:
    """Which rows, and how many at once."""
    from pytest_agentbench.options import parse_positive

    group = parser.add_argument_group("the rows")
    add(
        group,
        "--max_workers",
        "--n_total_process",
        type=parse_positive,
        metavar="N",
        help="rows at once (default: the config's, else 10)",
    )
    add(group, "--limit", type=parse_positive, metavar="N", help="only the first N rows")
    languages = group.add_mutually_exclusive_group()
    add(languages, "--only_zh", action="store_const", const="zh", dest="only", help="only rows in Chinese")
    add(languages, "--only_en", action="store_const", const="en", dest="only", help="only rows in English")


R = TypeVar("R", bound=ReportRow | QueryRow)
P = TypeVar("P", bound=ReportRow | QueryRow | RaceCriteria | ReferenceRow)
Q = TypeVar("Q", bound=Prompted)


def spoken(row: ReportRow | QueryRow) -> Language:
    """Return the language that a row is judged in: what it says, else its prompt's."""
    return row.language or language_of(row.prompt)


def input_rows(
    call: Call, path: Path, record: type[R], language: Callable[[R], Language] = spoken
) -> list[GoodRow[R] | LostRow]:
    """Return the rows of a file that --only_zh, --only_en and --limit leave. One that repeats another's prompt or id is
    lost.

    Rows in a language that the config does not support are skipped, and told. Raises ConfigError where the file cannot
    be read, or has no row.
    """
    return chosen_rows(call, path, read_research_rows(path, record), language)


def chosen_rows(
    call: Call, path: Path, found_rows: Iterable[GoodRow[R] | LostRow], language: Callable[[R], Language] = spoken
) -> list[GoodRow[R] | LostRow]:
    """Return the same of rows that are already read."""
    rows: list[GoodRow[R] | LostRow] = []
    skipped: list[str] = []
    empty = True
    for row in distinct(path, found_rows):
        empty = False
        if isinstance(row, GoodRow):
            found = language(row.value)
            if call.args.only not in (None, found):
                continue
            if found not in call.config.evaluation_settings.language_support:
                skipped.append(f"{row.value.id!r} ({found})")
                continue
        rows.append(row if isinstance(row, GoodRow) else replace(row, message=_why_lost(path, row)))
        if len(rows) == call.args.limit:
            break
    if empty:
        raise ConfigError(f"{path}:1:1: found no row")
    if skipped:
        call.warn(f"{path}: {len(skipped)} skipped, as language_support lacks their language: {', '.join(skipped)}")
    return rows


def joined(call: Call, path: Path, record: type[P]) -> Joined[P]:
    """Return the rows of a file by their prompts; those that cannot be used are told. Raises ConfigError, like
    input_rows.
    """
    return joined_briefly(call, path, record, lambda row: row)


def joined_briefly(call: Call, path: Path, record: type[P], brief: Callable[[P], Q]) -> Joined[Q]:
    """Return the same of what `brief` makes of each row, so that rows with whole pages are not all in memory."""
    good = []
    for row in read_research_rows(path, record):
        if isinstance(row, GoodRow):
            good.append((row.line, brief(row.value)))
        else:
            said = _said(row)
            if said is None or not call.has_told(said):
                call.warn(_why_lost(path, row))
    found: Joined[Q] = Joined(path, good)
    for problem in found.problems:
        call.warn(problem)
    return found


def value_of(row: GoodRow[R] | LostRow) -> R:
    """Return what a row says. Raises ConfigError where it is lost."""
    if isinstance(row, LostRow):
        raise ConfigError(row.message)
    return row.value


def label(row: GoodRow[Any] | LostRow) -> str:
    """Return what a row is called where it failed."""
    return f"line {row.line}" if isinstance(row, LostRow) else repr(row.value.id)


def failed_row(row: GoodRow[Any] | LostRow, key: str, error: Exception) -> dict[str, Any]:
    """Return what a stage's file has of a row that failed; `key` is such as `race_error`."""
    data = row.data or {}
    named = {name: data[name] for name in ("id", "prompt") if name in data}
    return {**(named or {"line": row.line}), key: str(error)}


def _why_lost(path: Path, row: LostRow) -> str:
    """Return what an earlier stage said of the row, else what is wrong with it."""
    said = _said(row)
    return row.message if said is None else f"{path}:{row.line}:1: {said}"


def _said(row: LostRow) -> str | None:
    """Return what an earlier stage said of the row, where one did."""
    said = (value for key, value in (row.data or {}).items() if key.endswith("_error") and isinstance(value, str))
    return next(said, None)


class Incomplete(AgentbenchError):
    """Why a report has no score; `value` is what is known of it all the same."""

    def __init__(self, reason: str, value: Any) -> None:
        super().__init__(reason)
        self.value = value


@dataclass(frozen=True, slots=True)
class Tasks:
    """What is known of reports' tasks. `annotations` None: the default folder is not there."""

    annotations: Annotations | None
    queries: Joined[QueryRow] | None
    domain_map: dict[str, str]

    def placed(self, row: ReportRow) -> tuple[str, int | str | None]:
        """Return a report's domain, as annotations call it, and its complexity level, from its row or else its query's.

        Raises ConfigError where neither tells a domain, or the query has another id.
        """
        from pytest_agentbench.packs.research.efficiency import domain_of

        domain, topic, level = row.domain, row.topic, row.complexity_level
        if self.queries is not None and ((domain or topic) is None or level is None):
            query = self.queries.partner(row)
            if domain is None and topic is None:
                domain, topic = query.domain, query.topic
            level = query.complexity_level if level is None else level
        return domain_of(domain, topic, self.domain_map), level


def add_tasks(parser: argparse._ActionsContainer) -> None:
    """Where annotations and queries are."""
    add(
        parser,
        "--annotation_dir",
        type=Path,
        metavar="DIR",
        help=f"domain_expert_data.json, complexity_level_data.json, token_pricing_data.json (default: {ANNOTATIONS})",
    )
    add(
        parser,
        "--query_file",
        type=Path,
        metavar="FILE",
        help=f"queries with the domain and complexity_level of reports without them (default: {QUERIES}, if any)",
    )
    add(
        parser,
        "--domain_map",
        type=_pair,
        action="append",
        metavar="TOPIC=DOMAIN",
        help="what annotations call a topic's domain; may be given several times",
    )


def add_results(parser: argparse._ActionsContainer) -> None:
    """Where other stages have left theirs."""
    add(
        parser,
        "--results_dir",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help="results of other stages, such as <dir>/race/<model> (default: %(default)s)",
    )


def read_tasks(call: Call) -> Tasks:
    """Raise ConfigError where files that are named, or are there, cannot be read."""
    from pytest_agentbench.packs.research.efficiency import annotations_of
    from pytest_agentbench.packs.research.records import QueryRow

    args = call.args
    folder = args.annotation_dir or ANNOTATIONS
    annotated = args.annotation_dir is not None or folder.is_dir()
    queries = args.query_file or (QUERIES if QUERIES.is_file() else None)
    return Tasks(
        annotations_of(folder, call.config) if annotated else None,
        None if queries is None else joined(call, queries, QueryRow),
        dict(args.domain_map or ()),
    )


def tell_unused(call: Call) -> None:
    """Say what the file of --config sets that changes nothing."""
    for name in call.config.unused(compat=call.args.compat):
        call.warn(f"{call.args.config}: not heeded: {name}")


def report_of(row: ReportRow, model: str) -> Report:
    """Return what scorers take."""
    from pytest_agentbench.packs.research.call import case_id
    from pytest_agentbench.packs.research.records import ExecutionMetrics, Report

    metrics = row.execution_metrics or ExecutionMetrics()
    return Report(row.id, case_id(row.id), model, row.prompt, row.article, spoken(row), metrics)


def outcome_document(
    model: str,
    rows: Sequence[GoodRow[ReportRow] | LostRow],
    results: Sequence[dict[str, Any] | AgentbenchError | None],
    error_key: str,
    means: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a stage's result file: how many rows came to what, the mean of each score over the rows that have it, the
    rows.

    A row that failed says why under `error_key`, with what is known of it.
    """
    from pytest_agentbench.packs.research.business_report.figures import mean

    found = []
    for row, result in zip(rows, results, strict=True):
        if isinstance(result, AgentbenchError):
            known = result.value if isinstance(result, Incomplete) else {}
            found.append({**failed_row(row, error_key, result), **known})
        elif result is not None:
            found.append(result)
    failed = sum(isinstance(result, AgentbenchError) for result in results)
    return {
        "model": model,
        "n_total": len(rows),
        "n_scored": len(found) - failed,
        "n_failed": failed,
        "n_not_reached": len(rows) - len(found),
        **({"means": {name: mean(row.get(name) for row in found).model_dump() for name in means}} if means else {}),
        "results": found,
    }


def _pair(text: str) -> tuple[str, str]:
    topic, sign, domain = text.rpartition("=")
    if not sign or not topic.strip() or not domain.strip():
        raise argparse.ArgumentTypeError(f"found {text!r}, expected TOPIC=DOMAIN")
    return topic.strip(), domain.strip()


def need_annotations(tasks: Tasks) -> Annotations:
    """Raise ConfigError where there are none."""
    if tasks.annotations is None:
        raise ConfigError(f"{ANNOTATIONS}: there is no such folder; name that of the annotations: --annotation-dir")
    return tasks.annotations
