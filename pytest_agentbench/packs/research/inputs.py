"""Inputs of stages: the rows of a call, their partners in other files, and the results of failed rows."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_agentbench.bounded.writing import write_document
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.packs.research.annotations import TaskDefaults
from pytest_agentbench.packs.research.business_report.figures import average
from pytest_agentbench.packs.research.call import Call, case_id
from pytest_agentbench.packs.research.commands import ANNOTATIONS, QUERIES, RESULTS
from pytest_agentbench.packs.research.config import annotations_of
from pytest_agentbench.packs.research.records import (
    DefaultField,
    ExecutionMetrics,
    Language,
    QueryRow,
    RaceCriteria,
    ReferenceRow,
    Report,
    ReportRow,
)
from pytest_agentbench.packs.research.rows import (
    GoodRow,
    Joined,
    LostRow,
    Prompted,
    language_of,
    mark_repeated,
    read_research_rows,
)
from pytest_agentbench.packs.research.stages import PART_STAGES, Part

if TYPE_CHECKING:
    from pytest_agentbench.packs.research.annotations import Annotations


R = TypeVar("R", bound=ReportRow | QueryRow)
P = TypeVar("P", bound=ReportRow | QueryRow | RaceCriteria | ReferenceRow)
Q = TypeVar("Q", bound=Prompted)


def language_of_row(row: ReportRow | QueryRow) -> Language:
    """Return the language in which a row is judged: its own field, else its prompt's."""
    return row.language or language_of(row.prompt)


def input_rows(call: Call, path: Path, record: type[R]) -> list[GoodRow[R] | LostRow]:
    """Return the rows of a file that --only_zh, --only_en and --limit select. A duplicate prompt or id is lost.

    Rows in a language that the config does not support are skipped, with a note. Raises ConfigError if the file cannot
    be read, or has no row.
    """
    return chosen_rows(call, path, read_research_rows(path, record))


def chosen_rows(
    call: Call,
    path: Path,
    found_rows: Iterable[GoodRow[R] | LostRow],
    language: Callable[[R], Language] = language_of_row,
    *,
    limited: bool = True,
) -> list[GoodRow[R] | LostRow]:
    """Return the selected ones of rows that are already read; without `limited` --limit does not count."""
    rows: list[GoodRow[R] | LostRow] = []
    skipped: list[str] = []
    empty = True
    for row in mark_repeated(path, found_rows):
        empty = False
        if isinstance(row, GoodRow):
            row_language = language(row.value)
            if call.args.only not in (None, row_language):
                continue
            if row_language not in call.config.evaluation_settings.language_support:
                skipped.append(f"{row.value.id!r} ({row_language})")
                continue
            rows.append(row)
        else:
            # Lost rows stay among the rows: they count as failed, and --limit counts them.
            rows.append(replace(row, message=_explain_loss(path, row)))
        if limited and len(rows) == call.args.limit:
            break
    if empty:
        raise ConfigError(f"{path}:1:1: found no row")
    if skipped:
        call.warn(f"{path}: {len(skipped)} skipped, as language_support lacks their language: {', '.join(skipped)}")
    return rows


def language_by_query(queries: Joined[QueryRow] | None, report: ReportRow) -> Language:
    """Return the language of a report's query, or of the report if its query is missing."""
    if queries is None:
        return language_of_row(report)
    try:
        return language_of_row(queries.partner(report))
    # The rows are being chosen here: an error would end all of them for one.
    except ConfigError:  # told once the report is judged
        return language_of_row(report)


def join_rows(call: Call, path: Path, record: type[P]) -> Joined[P]:
    """Return the rows of a file by their prompts; unusable ones are printed. Raises ConfigError, like input_rows."""
    return join_briefs(call, path, record, lambda row: row)


def join_optional(call: Call, path: Path | None, record: type[P]) -> Joined[P] | None:
    """Return the rows of a file like `join_rows`, None without a file."""
    return None if path is None else join_rows(call, path, record)


def join_briefs(call: Call, path: Path, record: type[P], brief: Callable[[P], Q]) -> Joined[Q]:
    """Return the results of `brief` by prompt, so that rows with whole pages are not all in memory."""
    good = []
    for row in read_research_rows(path, record):
        if isinstance(row, GoodRow):
            good.append((row.line, brief(row.value)))
        else:
            earlier_error = _find_earlier_error(row)
            # Errors of an earlier stage of this call have been printed there.
            if earlier_error is None or not call.was_reported(earlier_error):
                call.warn(_explain_loss(path, row))
    joined: Joined[Q] = Joined(path, good)
    for problem in joined.problems:
        call.warn(problem)
    return joined


def require_value(row: GoodRow[R] | LostRow) -> R:
    """Return the content of a row. Raises ConfigError if it is lost."""
    if isinstance(row, LostRow):
        raise ConfigError(row.message)
    return row.value


def name_row(row: GoodRow[Any] | LostRow) -> str:
    """Return the name of a failed row."""
    if isinstance(row, LostRow):
        return f"line {row.line}"
    return repr(row.value.id)


def failed_row(row: GoodRow[Any] | LostRow, key: str, error: Exception) -> dict[str, Any]:
    """Return the entry of a failed row in a stage's file; `key` is such as `race_error`."""
    data = row.data or {}
    fields = {name: data[name] for name in ("id", "prompt") if name in data}
    return {**(fields or {"line": row.line}), key: str(error)}


def _explain_loss(path: Path, row: LostRow) -> str:
    """Return an earlier stage's error of the row, else the row's own problem."""
    earlier_error = _find_earlier_error(row)
    if earlier_error is None:
        return row.message
    return f"{path}:{row.line}:1: {earlier_error}"


def _find_earlier_error(row: LostRow) -> str | None:
    """Return an earlier stage's error of the row, or None."""
    errors = (value for key, value in (row.data or {}).items() if key.endswith("_error") and isinstance(value, str))
    return next(errors, None)


class Incomplete(AgentbenchError):
    """Error of a report without a score; `value` contains the known values."""

    def __init__(self, reason: str, value: Any) -> None:
        super().__init__(reason)
        self.value = value


@dataclass(frozen=True, slots=True)
class Tasks:
    """Annotations and queries of reports' tasks. `annotations` None: the default folder does not exist.

    `defaults` are for rows without domain or level.
    """

    annotations: Annotations | None
    queries: Joined[QueryRow] | None
    domain_map: dict[str, str]
    defaults: TaskDefaults

    def domain_and_level(self, row: ReportRow) -> tuple[str, int | str | None]:
        """Return a report's domain and complexity level, like `place`."""
        domain, level, _ = self.place(row)
        return domain, level

    def place(self, row: ReportRow) -> tuple[str, int | str | None, tuple[DefaultField, ...]]:
        """Return a report's domain in the annotations' terms, its complexity level, and which of both is a default.

        Both are from the report's row, or else its query's. Raises ConfigError if there is no domain, or the query
        has another id.
        """
        # The report's own fields come first; its query is needed only for missing ones, so a file without
        # queries suffices.
        domain, topic, level = row.domain, row.topic, row.complexity_level
        if self.queries is not None and ((domain or topic) is None or level is None):
            query = self.queries.partner(row)
            if domain is None and topic is None:
                domain, topic = query.domain, query.topic
            if level is None:
                level = query.complexity_level
        place = self.defaults.place(domain, topic, level, self.domain_map, self._knows_domain)
        if place.domain is None:
            raise ConfigError(
                "domain: found neither a domain nor a topic, expected one in the report's row or its query's"
            )
        return place.domain, place.level, place.defaults

    def _knows_domain(self, name: str) -> bool:
        return self.annotations is not None and self.annotations.knows_domain(name)


def read_tasks(call: Call, *, compat_defaults: bool = True) -> Tasks:
    """Return the annotations and queries of a call. Raises ConfigError for unreadable files.

    `compat_defaults`: compat mode has the original's default domain and level.
    """
    args = call.args
    defaults = TaskDefaults.choose(args.default_domain, args.default_complexity, compat=args.compat and compat_defaults)
    folder = args.annotation_dir or ANNOTATIONS
    # The default place may be absent, a named folder may not: reading it raises.
    annotated = args.annotation_dir is not None or folder.is_dir()
    return Tasks(
        defaults.complete(annotations_of(folder, call.config)) if annotated else None,
        join_optional(call, find_queries(args), QueryRow),
        dict(args.domain_map or ()),
        defaults,
    )


def find_queries(args: argparse.Namespace) -> Path | None:
    """Return the file of queries in the options, else the seed's if it exists, or None."""
    return args.query_file or (QUERIES if QUERIES.is_file() else None)


def warn_of_defaults(call: Call, file: Path, used: Iterable[Sequence[DefaultField]]) -> None:
    """Print the number of a file's reports that are scored with a default; `used` has the defaults of each report."""
    counts = Counter(name for defaults in used for name in defaults)
    if counts:
        fields = ", ".join(f"{name} of {count}" for name, count in sorted(counts.items()))
        noun = "report" if max(counts.values()) == 1 else "reports"
        call.warn(f"{file}: scored with defaults: {fields} {noun}")


def run_part(part: Part, args: argparse.Namespace) -> int:
    """Run the command of a part on the reports of --input-file; the exit status."""
    # By the table, for all parts whose command takes one file of reports.
    stage, call = PART_STAGES[part], Call(part, args)
    warn_of_unused(call)
    results: Path = getattr(args, "results_dir", RESULTS)
    output: Path = args.output_dir or results / stage.folder / args.input_file.stem
    return call.run(lambda: stage.load().score_reports(call, args.input_file, output))


def warn_of_unused(call: Call) -> None:
    """Print the settings of --config that have no effect."""
    for name in call.config.unused(compat=call.args.compat):
        call.warn(f"{call.args.config}: ignored: {name}")


def make_report(row: ReportRow, model: str) -> Report:
    """Return the report in the form that scorers take."""
    metrics = row.execution_metrics or ExecutionMetrics()
    return Report(row.id, case_id(row.id), model, row.prompt, row.article, language_of_row(row), metrics)


def outcome_document(
    model: str,
    rows: Sequence[GoodRow[ReportRow] | LostRow],
    results: Sequence[dict[str, Any] | AgentbenchError | None],
    error_key: str,
    means: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a stage's result file: the number of rows by result, the mean of each score over the rows that have it,
    the rows.

    A failed row has its reason under `error_key`, with its known values.
    """
    items = []
    for row, result in zip(rows, results, strict=True):
        if isinstance(result, AgentbenchError):
            values = result.value if isinstance(result, Incomplete) else {}
            items.append({**failed_row(row, error_key, result), **values})
        elif result is not None:
            items.append(result)
    failed = sum(isinstance(result, AgentbenchError) for result in results)
    document: dict[str, Any] = {
        "model": model,
        "n_total": len(rows),
        "n_scored": len(items) - failed,
        "n_failed": failed,
        "n_not_reached": len(rows) - len(items),
    }
    if means:
        document["means"] = {name: average(row.get(name) for row in items).model_dump() for name in means}
    return {**document, "results": items}


async def score_outcomes(
    call: Call,
    part: Part,
    file: Path,
    output: Path,
    rows: Sequence[GoodRow[ReportRow] | LostRow],
    score: Callable[[int, GoodRow[ReportRow] | LostRow], Awaitable[dict[str, Any]]],
    means: Sequence[str] = (),
) -> None:
    """Score the rows of a file of reports, and write the part's result file to the folder `output`.

    `score` gets a row with its number, from 0. The file is described at `outcome_document`.
    """

    async def score_numbered(numbered: tuple[int, GoodRow[ReportRow] | LostRow]) -> dict[str, Any]:
        return await score(*numbered)

    def write(results: Sequence[dict[str, Any] | AgentbenchError | None]) -> tuple[Path, ...]:
        document = outcome_document(file.stem, rows, results, f"{part}_error", means)
        warn_of_defaults(call, file, (row.get("defaults", ()) for row in document["results"]))
        return (write_document(output / PART_STAGES[part].rows, document),)

    await call.score(
        part, list(enumerate(rows)), score_numbered, label=lambda numbered: name_row(numbered[1]), write=write
    )


def require_annotations(tasks: Tasks) -> Annotations:
    """Return the annotations of the tasks. Raises ConfigError if there are none."""
    if tasks.annotations is None:
        raise ConfigError(f"{ANNOTATIONS}: there is no such folder; name the folder of annotations: --annotation-dir")
    return tasks.annotations
