"""Write the business report on a model or several, wherever their scores come from, and on a pytest session."""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from pytest_agentbench.bounded.folders import slug
from pytest_agentbench.bounded.writing import format_document, write_text
from pytest_agentbench.cli.merging import read_report
from pytest_agentbench.cli.output import refuse_usage
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.models.ledger import Spent
from pytest_agentbench.packs.research.arithmetic import weights_of
from pytest_agentbench.packs.research.business_report.aggregates import PoetReport, Scored, comparison, poet_report
from pytest_agentbench.packs.research.business_report.figures import SUMMARY_FIELDS, PoetRow
from pytest_agentbench.packs.research.business_report.text import comparison_text, report_text
from pytest_agentbench.packs.research.call import Call, StageOutcome
from pytest_agentbench.packs.research.commands import RAW_DATA, RESULTS, add
from pytest_agentbench.packs.research.config import PoetConfig
from pytest_agentbench.packs.research.inputs import Incomplete
from pytest_agentbench.packs.research.records import Language, ResearchScores, RowId
from pytest_agentbench.packs.research.stages import PART_STAGES, SCORES
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.reports.table import column_of
from pytest_agentbench.store.contents import Contents
from pytest_agentbench.store.documents import load_evaluation

if TYPE_CHECKING:
    from pytest_agentbench.cli.merging import Part
    from pytest_agentbench.reports.rows import Row


COUNTS = ("n_total", "n_scored", "n_failed", "n_not_reached")
COMPARISON = "poet_comparison"
LONGEST_STEM = 200
"""Bytes of a file's name, of which file systems bear 255, for the model."""


def write_poet_files(
    rows: Sequence[PoetRow],
    folder: Path,
    model: str,
    config: PoetConfig,
    spent: Mapping[str, Spent] | None = None,
    *,
    lost: Sequence[str] = (),
    not_reached: int = 0,
    language: Language = "en",
    race_max: float = 1.0,
    made: datetime | None = None,
) -> tuple[Path, ...]:
    """Write the files of `reporting_settings`: `{model}_poet_{detailed,summary,report}.json` and `_report.txt`.

    `model` is in the files' names as far as file systems accept it. `spent` is the judges' cost for these reports by
    stage; `lost` contains the reason of each input row without a PoetRow; `not_reached` counts the rows after an
    interruption; `race_max` is the divisor of RACE in the quality score. `made` is the time on the reports, in UTC
    (default: now). Raises UnwritableError.
    """
    report = poet_report(
        rows, model, config, spent, lost=lost, not_reached=not_reached, language=language, race_max=race_max
    )
    scored, made = Scored(report, rows), made or datetime.now(UTC)
    return tuple(
        write_text(folder / f"{file_stem(model)}_poet_{name}", text)
        for name, text in _texts(scored, config, language, made)
    )


def write_comparison(
    models: Mapping[str, Sequence[PoetRow]],
    folder: Path,
    config: PoetConfig,
    spent: Mapping[str, Mapping[str, Spent]] | None = None,
    *,
    lost: Mapping[str, Sequence[str]] | None = None,
    not_reached: Mapping[str, int] | None = None,
    language: Language = "en",
    race_max: float = 1.0,
    made: datetime | None = None,
) -> tuple[Path, ...]:
    """Write `poet_comparison.{json,txt}`: several models side by side, each as `write_poet_files` has it."""
    scored = [
        Scored(
            poet_report(
                rows,
                model,
                config,
                (spent or {}).get(model),
                lost=(lost or {}).get(model, ()),
                not_reached=(not_reached or {}).get(model, 0),
                language=language,
                race_max=race_max,
            ),
            rows,
        )
        for model, rows in models.items()
    ]
    counts = {name: sum(getattr(model_scores.report, name) for model_scores in scored) for name in COUNTS}
    made = made or datetime.now(UTC)
    compared_models = comparison(scored)
    document = {
        "made": made.isoformat(timespec="seconds"),
        **counts,
        "comparison": compared_models and compared_models.model_dump(mode="json"),
        "models": [model_scores.report.model_dump(mode="json") for model_scores in scored],
    }
    text = comparison_text([model_scores.report for model_scores in scored], compared_models, made, language)
    return (
        write_text(folder / f"{COMPARISON}.json", format_document(document)),
        write_text(folder / f"{COMPARISON}.txt", text),
    )


def file_stem(model: str) -> str:
    """Return a model's name as the beginning of a file's, which cannot lead to another folder."""
    # Models are named by files and sessions of others: a name is no path, and the longest suffix still has to fit
    # into 255 bytes.
    bad = set(model) & {"/", "\\"} or model.startswith(".") or not model.isprintable()
    if bad or len(os.fsencode(model)) > LONGEST_STEM:
        return slug(model)
    return model


def _texts(scored: Scored, config: PoetConfig, language: Language, made: datetime) -> Iterator[tuple[str, str]]:
    report, reporting = scored.report, config.reporting_settings
    if reporting.generate_detailed_report:
        yield "detailed.json", format_document(_detailed(report, scored.rows))
    if reporting.generate_summary_report:
        yield "summary.json", format_document(_summary(report, scored.rows))
    # Always written, with any settings: other programs read this one.
    yield "report.json", format_document({"made": made.isoformat(timespec="seconds"), **report.model_dump(mode="json")})
    if reporting.generate_text_report:
        yield "report.txt", report_text(report, made, language)


def _summary(report: PoetReport, rows: Sequence[PoetRow]) -> dict[str, Any]:
    return {**_counts(report), "results": [row.model_dump(mode="json", include=set(SUMMARY_FIELDS)) for row in rows]}


def _detailed(report: PoetReport, rows: Sequence[PoetRow]) -> dict[str, Any]:
    results = [row.model_dump(mode="json") for row in rows]
    return {**_counts(report), "weights": report.weights, "lost": list(report.lost), "results": results}


def _counts(report: PoetReport) -> dict[str, Any]:
    return {"model": report.model, **{name: getattr(report, name) for name in COUNTS}}


S = TypeVar("S")


def add_report_language(parser: argparse._ActionsContainer) -> None:
    """Add the language of the business report's text."""
    add(parser, "--report_language", choices=("en", "zh"), default="en", help="of the text (default: %(default)s)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of a model's reports: rows, reasons of missing ones, and the judges' cost for them."""

    rows: tuple[PoetRow, ...]
    lost: tuple[str, ...]
    spent: Mapping[str, Spent]


def write_models_comparison(call: Call, outcomes: Mapping[str, Outcome], output: Path) -> None:
    """Write the comparison of several models; nothing for a single one."""
    if len(outcomes) > 1:
        files = write_comparison(
            {model: outcome.rows for model, outcome in outcomes.items()},
            output,
            call.config,
            {model: outcome.spent for model, outcome in outcomes.items()},
            lost={model: outcome.lost for model, outcome in outcomes.items()},
            language=call.args.report_language,
            race_max=weights_of(call.config, compat=call.args.compat).race_max,
        )
        call.ends.append(StageOutcome("comparison", len(outcomes), len(outcomes), 0, files))


async def write_model_report(
    call: Call,
    model: str,
    rows: Sequence[S],
    row_of: Callable[[S], PoetRow],
    label: Callable[[S], str],
    output: Path,
    spent: Mapping[str, Spent],
) -> Outcome:
    """Write the business report from the results of `row_of` for each row, which raises AgentbenchError for a lost
    one.
    """

    async def score(row: S) -> PoetRow:
        poet_row = row_of(row)
        if poet_row.overall_poet_score is None:
            reasons = "; ".join(f"{part}: {reason}" for part, reason in poet_row.reasons.items())
            raise Incomplete(f"no composite: {reasons}", poet_row)
        return poet_row

    def write(results: Sequence[PoetRow | AgentbenchError | None]) -> tuple[Path, ...]:
        outcome = _outcome(results, spent)
        return write_poet_files(
            outcome.rows,
            output,
            model,
            call.config,
            spent,
            lost=outcome.lost,
            not_reached=sum(result is None for result in results),
            language=call.args.report_language,
            race_max=weights_of(call.config, compat=call.args.compat).race_max,
        )

    return _outcome(await call.score("poet", rows, score, label=label, write=write), spent)


def _outcome(results: Sequence[PoetRow | AgentbenchError | None], spent: Mapping[str, Spent]) -> Outcome:
    values = [result.value if isinstance(result, Incomplete) else result for result in results]
    rows = (value for value in values if value is not None and not isinstance(value, AgentbenchError))
    return Outcome(tuple(rows), tuple(str(value) for value in values if isinstance(value, AgentbenchError)), spent)


_REPORT = "report.json"
_RUN_LEVELS = 6
"""Names on the path of a run's file."""
_NOT_RUN = "not run: "
"""How the message of an item begins that the session stopped before."""
_DONE = (0, 1)
"""Exit statuses of sessions that have come to their end."""
_OF_SESSION: dict[str, Any] = {
    "raw_data_dir": RAW_DATA,
    "input_file": None,
    "results_dir": RESULTS,
    "annotation_dir": None,
    "query_file": None,
    "domain_map": None,
    "default_domain": None,
    "default_complexity": None,
    "config": None,
    "model_pricing": None,
    "compat": False,
}
"""Options, with their defaults, whose part a session's own files and settings have."""
_NAMES = frozenset(name for names in SCORES.values() for name in names)


def report_on_session(args: argparse.Namespace) -> int:
    """Write the report of one model of the session, or of each; return the exit status.

    Raises ConfigError if the session has no reports, or has scored them in different ways.
    """
    # A session has scored by its own files: an ignored option would seem to count.
    if refused := [name for name, default in _OF_SESSION.items() if getattr(args, name) != default]:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in refused)
        return refuse_usage("research poet", f"found {names} next to --session, which has its own values; leave it out")
    session, call = Session(args.session), Call("poet", args)
    session.tell(call)
    if args.model is not None and args.model not in session.models:
        there = ", ".join(session.models) or "no model"
        raise ConfigError(f"{session.part.name}: found no report of {args.model}, expected one of {there}")
    call.config, args.compat = session.scored_by
    return call.run(lambda: _reports(call, session))


async def _reports(call: Call, session: Session) -> None:
    args, models = call.args, session.models
    if args.model is not None:
        models = {args.model: models[args.model]}
    output = args.output_dir or RESULTS / PART_STAGES["poet"].folder
    outcomes = {}
    for model, reports in models.items():
        call.begin_model(model, models=len(models))
        chosen = [report for report in reports if args.only in (None, report.language)][: args.limit]
        folder = output / file_stem(model)
        if args.model is not None and args.output_dir is not None:
            folder = output
        outcomes[model] = await write_model_report(call, model, chosen, row_of_item, _label, folder, _spent(chosen))
    write_models_comparison(call, outcomes, output)


@dataclass(frozen=True, slots=True)
class ScoredItem:
    """Report with the session's `scores`; without scores `lost` has the reason.

    A repetition is a separate report; from the second on `task_id` contains its number.
    """

    nodeid: str
    task_id: RowId
    model: str
    language: str | None
    scores: ResearchScores | None
    lost: str


class Session:
    """Research reports of a pytest session. Raises ConfigError if it has none, or its files cannot be read."""

    def __init__(self, path: Path) -> None:
        report = path / _REPORT if path.is_dir() else path
        self.part: Part = read_report(report)
        self._contents = Contents(report.parent)
        self._rows = [row for row in self.part.runs if "research" in row]
        if not self._rows:
            raise ConfigError(
                f"{report}: found no research report among {len(self.part.runs)} runs, expected a session "
                "that scored a reports.yaml"
            )

    @cached_property
    def models(self) -> dict[str, list[ScoredItem]]:
        """Return the reports by their models, without those that could not be scored here (a language is not
        supported).
        """
        # Ids are unique in a file: with several files, the case ids distinguish their rows.
        several_files = len({row["dataset"] for row in self._rows}) > 1
        items: dict[str, list[ScoredItem]] = defaultdict(list)
        for row in self._rows:
            if not _is_left_out(row):
                items[column_of(row)].append(self._item(row, named=several_files))
        return dict(items)

    @cached_property
    def scored_by(self) -> tuple[PoetConfig, bool]:
        """Return the configuration that all reports were scored with, and whether `compat` was set.

        Raises ConfigError.
        """
        ways: list[tuple[dict[str, Any], bool]] = []
        for item in (item for reports in self.models.values() for item in reports):
            # Two configurations weigh parts differently, and a mean over both is of nothing.
            if item.scores is not None and (way := (item.scores.config, item.scores.compat)) not in ways:
                ways.append(way)
        if len(ways) > 1:
            raise ConfigError(
                f"{self.part.name}: found reports that were scored with different configurations (config or compat of "
                "their reports.yaml), expected one; run a session for each"
            )
        config, compat = ways[0] if ways else ({}, False)
        return PoetConfig.model_validate(config), compat

    def tell(self, call: Call) -> None:
        """Print notes on the session for readers of the figures."""
        name, status = self.part.name, self.part.session.get("exit_status")
        if status not in _DONE:
            call.warn(f"{name}: the session ended with exit status {status}: it may lack reports")
        for warning in self.part.session.get("warnings", ()):
            call.warn(f"{name}: {warning}")
        left_out = [row for row in self._rows if _is_left_out(row)]
        for reason in dict.fromkeys(row["message"] for row in left_out):
            count = sum(row["message"] == reason for row in left_out)
            call.warn(f"{name}: {count} skipped: {reason}")

    def _item(self, row: Row, *, named: bool) -> ScoredItem:
        """Return a row of report.json with its scores. `named`: ids of rows may be from several files."""
        task_id: RowId = row["case_id"] if named else row["research"]["row_id"]
        # As item ids have it, so that the first of several keeps the id that a single one has.
        if row["repetition"] > 1:
            task_id = f"{task_id}-r{row['repetition']}"
        # The message first: it has the provider's or the judge's own words.
        scores, lost = None, row["message"] or f"the run ended {row['status'] or row['outcome']}"
        if (fingerprint := row["research"]["evaluation"]) is not None:
            try:
                scores = self._scores(row, fingerprint)
            except AgentbenchError as error:
                lost = str(error)
        return ScoredItem(row["nodeid"], task_id, row["model_id"], row["fields"].get("language"), scores, lost)

    def _scores(self, row: Row, fingerprint: str) -> ResearchScores:
        """Return the stored scores. Raises ConfigError if the evaluation is no longer stored, or was replaced."""
        for path, evaluation in self._evaluations(row):
            evidence = evaluation.part(ResearchScores)
            if evaluation.fingerprint == fingerprint and evidence is not None:
                scores = {metric.name: metric.score for metric in evaluation.metrics if metric.name in _NAMES}
                # Judged again after the report was written: its rows would mix two judgements.
                if any(row["metrics"].get(name, score) != score for name, score in scores.items()):
                    raise ConfigError(f"{path}: has other scores than {self.part.name}: the report was judged again")
                return evidence
        raise ConfigError(
            f"{self._contents.output}: found no evaluation {fingerprint[:12]}, which {self.part.name} names; name the "
            "output folder of that session, or run it again"
        )

    def _evaluations(self, row: Row) -> Iterator[tuple[Path, Evaluation]]:
        """Yield those that may be on the run."""
        run = row["artifact"] or ""
        # The path comes from report.json, which may be anybody's: only one of the store's own form is followed.
        if run.count("/") != _RUN_LEVELS - 1:
            return
        for place in self._contents.evaluation_folders(self._contents.folder(run.rpartition("/")[0])):
            folder = self._contents.folder(place)
            for name in folder.repetitions.get(row["repetition"], ()):
                if folder.files[name].kind == "result":
                    output = self._contents.output
                    yield output / place / name, load_evaluation(output, f"{place}/{name}")


def row_of_item(item: ScoredItem) -> PoetRow:
    """Return the report's row. Raises ConfigError if it has none."""
    if item.scores is None:
        raise ConfigError(f"{item.nodeid}: {item.lost}")
    try:
        row = PoetRow.model_validate(item.scores.summary)
    except ValidationError as error:
        raise ConfigError(f"{item.nodeid}: its evaluation has no row of a business report: {error}") from error
    # As the session names them: evaluations are shared by sessions, whose models and ids may be called otherwise.
    return row.model_copy(update={"task_id": item.task_id, "model_name": item.model})


def _spent(reports: Sequence[ScoredItem]) -> Mapping[str, Spent]:
    """Return the judges' cost for the reports, by stage."""
    costs: dict[str, Spent] = defaultdict(Spent)
    for stage, cost in (entry for report in reports if report.scores for entry in report.scores.judge.items()):
        costs[stage].add(Spent(**cost.model_dump()))
    return dict(costs)


def _is_left_out(row: Row) -> bool:
    """Return whether the item was skipped by its own nature; an item after the session's stop has failed."""
    # A report in a language that is not supported is left out; one that the session never reached has no score, and
    # is a failure.
    return row["outcome"] == "skipped" and not str(row["message"]).startswith(_NOT_RUN)


def _label(item: ScoredItem) -> str:
    return repr(item.task_id)
