"""The business report on a pytest session over `reports.yaml`, from its report.json and the evaluations it names."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from pytest_agentbench.cli.merge import read_report
from pytest_agentbench.cli.research.call import Call
from pytest_agentbench.cli.research.options import RAW_DATA, RESULTS
from pytest_agentbench.cli.research.reporting import compare, report_on
from pytest_agentbench.config.poet_config import PoetConfig
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.models import Spent
from pytest_agentbench.records import SCORES, Evaluation, ResearchScores, RowId
from pytest_agentbench.research.poet_report.rows import PoetRow
from pytest_agentbench.research.poet_report.writing import file_stem
from pytest_agentbench.store import Contents, load_evaluation

if TYPE_CHECKING:
    from pytest_agentbench.cli.merging import Part
    from pytest_agentbench.reports import Row

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
    "config": None,
    "model_pricing": None,
    "compat": False,
}
"""Options, with their defaults, whose part a session's own files and settings have."""
_NAMES = frozenset(name for names in SCORES.values() for name in names)


def report_on_session(args: argparse.Namespace) -> int:
    """Writes the report of one model of the session, or of each; the exit status.

    Raises ConfigError where the session has no reports, or has scored them in different ways.
    """
    if found := [name for name, default in _OF_SESSION.items() if getattr(args, name) != default]:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in found)
        message = f"found {names} beside --session, whose reports have theirs; leave it out"
        print(f"agentbench research poet: {message}", file=sys.stderr)
        return 2
    session, call = Session(args.session), Call("poet", args)
    session.tell(call)
    if args.model is not None and args.model not in session.models:
        there = ", ".join(session.models) or "no model"
        raise ConfigError(f"{session.part.name}: found no report of {args.model}; it has those of {there}")
    call.config, args.compat = session.scored_by
    return call.run(lambda: _reports(call, session))


async def _reports(call: Call, session: Session) -> None:
    args, models = call.args, session.models
    if args.model is not None:
        models = {args.model: models[args.model]}
    output = args.output_dir or RESULTS / "poet"
    outcomes = {}
    for model, reports in models.items():
        call.model = model if len(models) > 1 else None
        chosen = [each for each in reports if args.only in (None, each.language)][: args.limit]
        folder = output if args.model is not None and args.output_dir is not None else output / file_stem(model)
        outcomes[model] = await report_on(call, model, chosen, row_of, _label, folder, _spent(chosen))
    compare(call, outcomes, output)


@dataclass(frozen=True, slots=True)
class ScoredItem:
    """A report as the session has scored it: `scores`, or `lost` says why there are none.

    A repetition is a report of its own; from the second on `task_id` tells which.
    """

    nodeid: str
    task_id: RowId
    model: str
    language: str | None
    scores: ResearchScores | None
    lost: str


class Session:
    """A session's research reports. Raises ConfigError where it has none, or its files cannot be read."""

    def __init__(self, path: Path) -> None:
        report = path / _REPORT if path.is_dir() else path
        self.part: Part = read_report(report)
        self._contents = Contents(report.parent)
        self._rows = [row for row in self.part.runs if "research" in row]
        if not self._rows:
            raise ConfigError(
                f"{report}: found no research report among {len(self.part.runs)} runs, expected those of a session "
                "over a reports.yaml"
            )

    @cached_property
    def models(self) -> dict[str, list[ScoredItem]]:
        """The reports by their models, without those that could not be scored here (a language is not supported)."""
        named = len({row["dataset"] for row in self._rows}) > 1
        found: dict[str, list[ScoredItem]] = defaultdict(list)
        for row in self._rows:
            if not _is_left_out(row):
                found[row["model_id"]].append(self._item(row, named=named))
        return dict(found)

    @cached_property
    def scored_by(self) -> tuple[PoetConfig, bool]:
        """The configuration that all reports were scored with, and whether `compat` was set. Raises ConfigError."""
        ways: list[tuple[dict[str, Any], bool]] = []
        for each in (each for reports in self.models.values() for each in reports):
            if each.scores is not None and (way := (each.scores.config, each.scores.compat)) not in ways:
                ways.append(way)
        if len(ways) > 1:
            raise ConfigError(
                f"{self.part.name}: found reports that were scored with different configurations (config or compat of "
                "their reports.yaml), expected one; run a session for each"
            )
        config, compat = ways[0] if ways else ({}, False)
        return PoetConfig.model_validate(config), compat

    def tell(self, call: Call) -> None:
        """Says what a reader of the figures has to know of the session."""
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
        """`named`: ids of rows may be those of several files."""
        task_id: RowId = row["case_id"] if named else row["research"]["row_id"]
        if row["repetition"] > 1:
            task_id = f"{task_id}-r{row['repetition']}"
        scores, lost = None, row["message"] or f"the run ended {row['status'] or row['outcome']}"
        if (wanted := row["research"]["evaluation"]) is not None:
            try:
                scores = self._scores(row, wanted)
            except AgentbenchError as error:
                lost = str(error)
        return ScoredItem(row["nodeid"], task_id, row["model_id"], row["fields"].get("language"), scores, lost)

    def _scores(self, row: Row, fingerprint: str) -> ResearchScores:
        """Raises ConfigError where the evaluation is no longer stored, or another has taken its place."""
        for path, evaluation in self._evaluations(row):
            if evaluation.fingerprint == fingerprint and evaluation.research is not None:
                scores = {each.name: each.score for each in evaluation.metrics if each.name in _NAMES}
                if any(row["metrics"].get(name, score) != score for name, score in scores.items()):
                    raise ConfigError(f"{path}: has other scores than {self.part.name}: the report was judged again")
                return evaluation.research
        raise ConfigError(
            f"{self._contents.output}: found no evaluation {fingerprint[:12]}, which {self.part.name} names; name the "
            "output folder of that session, or run it again"
        )

    def _evaluations(self, row: Row) -> Iterator[tuple[Path, Evaluation]]:
        """Those that may be on the run."""
        run = row["artifact"] or ""
        if run.count("/") != _RUN_LEVELS - 1:
            return
        for place in self._contents.evaluated(self._contents.folder(run.rpartition("/")[0])):
            folder = self._contents.folder(place)
            for name in folder.repetitions.get(row["repetition"], ()):
                if folder.files[name].kind == "result":
                    path = self._contents.output / place / name
                    yield path, load_evaluation(path)


def row_of(item: ScoredItem) -> PoetRow:
    """The report's row. Raises ConfigError where it has none."""
    if item.scores is None:
        raise ConfigError(f"{item.nodeid}: {item.lost}")
    try:
        row = PoetRow.model_validate(item.scores.summary)
    except ValidationError as error:
        raise ConfigError(f"{item.nodeid}: its evaluation has no row of a business report: {error}") from error
    return row.model_copy(update={"task_id": item.task_id, "model_name": item.model})


def _spent(reports: Sequence[ScoredItem]) -> Mapping[str, Spent]:
    """What judges cost for the reports, by stage."""
    found: dict[str, Spent] = defaultdict(Spent)
    for stage, cost in (entry for each in reports if each.scores for entry in each.scores.judge.items()):
        found[stage].add(Spent(**cost.model_dump()))
    return dict(found)


def _is_left_out(row: Row) -> bool:
    """Whether the item was skipped for what it is; one that the session stopped before has failed."""
    return row["outcome"] == "skipped" and not str(row["message"]).startswith(_NOT_RUN)


def _label(item: ScoredItem) -> str:
    return repr(item.task_id)
