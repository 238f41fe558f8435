"""What efficiency, strategic, interaction and poet share: reports with their annotations, and their result files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.research.options import ANNOTATIONS, QUERIES, RESULTS, add
from pytest_agentbench.errors import AgentbenchError, ConfigError

if TYPE_CHECKING:
    from pytest_agentbench.cli.research.call import Call
    from pytest_agentbench.config.annotations import Annotations
    from pytest_agentbench.records import QueryRow, ReportRow
    from pytest_agentbench.research.report import Report
    from pytest_agentbench.sources.research_rows import GoodRow, Joined, LostRow


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
        """A report's domain, as annotations call it, and its complexity level, from its row or else its query's.

        Raises ConfigError where neither tells a domain, or the query has another id.
        """
        from pytest_agentbench.research.annotated import domain_of

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
    """Raises ConfigError where files that are named, or are there, cannot be read."""
    from pytest_agentbench.cli.research.inputs import joined
    from pytest_agentbench.records import QueryRow
    from pytest_agentbench.research.annotated import annotations_of

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
    """Says what the file of --config sets that changes nothing."""
    for name in call.config.unused(compat=call.args.compat):
        call.warn(f"{call.args.config}: not heeded: {name}")


def report_of(row: ReportRow, model: str) -> Report:
    """What scorers take."""
    from pytest_agentbench.cli.research.inputs import spoken
    from pytest_agentbench.cli.research.judge import case_id
    from pytest_agentbench.records import ExecutionMetrics
    from pytest_agentbench.research.report import Report

    metrics = row.execution_metrics or ExecutionMetrics()
    return Report(row.id, case_id(row.id), model, row.prompt, row.article, spoken(row), metrics)


def outcome_document(
    model: str,
    rows: Sequence[GoodRow[ReportRow] | LostRow],
    results: Sequence[dict[str, Any] | AgentbenchError | None],
    error_key: str,
    means: Sequence[str] = (),
) -> dict[str, Any]:
    """A stage's result file: how many rows came to what, the mean of each score over the rows that have it, the rows.

    A row that failed says why under `error_key`, with what is known of it.
    """
    from pytest_agentbench.cli.research.inputs import failed_row
    from pytest_agentbench.research.poet_report.figures import mean

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
    """Raises ConfigError where there are none."""
    if tasks.annotations is None:
        raise ConfigError(f"{ANNOTATIONS}: there is no such folder; name that of the annotations: --annotation-dir")
    return tasks.annotations
