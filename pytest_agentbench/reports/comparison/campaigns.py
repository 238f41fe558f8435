"""One side of a comparison: the cases of a report.json, of this session or on disk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.reports.ends import list_dropped
from pytest_agentbench.reports.gate import CaseKey, Counts, case_key, has_verdict
from pytest_agentbench.reports.reading import read_report
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.reports.table import column_of
from pytest_agentbench.statistics.estimates import mean_of


class Judged(NamedTuple):
    """Run with a verdict, and its figures by name (`score`, `metric.f1_score`, `cost_usd.run`, `tokens.total`)."""

    passed: bool
    values: Mapping[str, float]


class Sample(NamedTuple):
    """Some runs of a case: the share that passed, and the mean of each figure over those that have it."""

    pass_rate: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CaseRuns:
    """The repetitions of one case on one model.

    `judged` contains the runs that passed or failed, by repetition. `prints` are the (repetition, fingerprint) of its
    runs, `reused` those from the store; `replayed` counts runs from cassettes. `judges` and `rubrics` are (judge, hash)
    of the models that judged it; `measures` are hashes of its checks, metrics and judges together. `failed` and
    `passed` are the rows of its first failed and passed run; `dropped` contains request parameters that the endpoint
    refused.
    `dataset` is the dataset name at the start of the case's id, or None if the case is not in a dataset.
    """

    key: CaseKey
    must_pass: bool
    counts: Counts
    judged: tuple[Judged, ...]
    prints: frozenset[tuple[int, str]]
    reused: frozenset[tuple[int, str]]
    replayed: int
    measures: frozenset[str]
    judges: frozenset[tuple[str, str]]
    rubrics: frozenset[tuple[str, str]]
    failed: Row | None
    passed: Row | None
    dropped: frozenset[str] = frozenset()
    dataset: str | None = None

    @property
    def pass_rate(self) -> float | None:
        """Return the pass rate over the judged runs, or None if no run was judged."""
        return self.counts.pass_rate

    def first(self, runs: int) -> Sample:
        """Return its first `runs` judged runs, of at least one."""
        sample = self.judged[:runs]
        figures: dict[str, list[float]] = defaultdict(list)
        for name, value in (figure for run in sample for figure in run.values.items()):
            figures[name].append(value)
        return Sample(
            mean_of([run.passed for run in sample]), {name: mean_of(values) for name, values in figures.items()}
        )


@dataclass(frozen=True)
class Campaign:
    """A report's runs by column and case. A column is a model, or a variant of it, in ids of the form `model:variant`.

    `name` is the file's, None for the session itself; `model` the chosen column. `command` are the arguments that
    pytest was given.
    """

    name: str | None
    started_at: str | None
    profiles: Mapping[str, str | None]
    models: Mapping[str, Mapping[CaseKey, CaseRuns]]
    scripted: frozenset[str] = field(default=frozenset())
    command: tuple[str, ...] = ()
    model: str | None = None

    @cached_property
    def label(self) -> str:
        """Return the campaign's name for sentences."""
        name = self.name or "this session"
        return name if self.model is None else f"{name}#{self.model}"

    def as_dict(self) -> dict[str, Any]:
        """Return how report.json and pages name it."""
        return {
            "report": self.name,
            "model": self.model,
            "started_at": self.started_at,
            "profiles": dict(self.profiles),
        }


def build_campaign(report: Mapping[str, Any], name: str | None = None, model: str | None = None) -> Campaign:
    """Return the comparable data of a report, of one `model` or of all.

    `model` is a column, or a variant that only one model has. Raises ConfigError if the report does not contain it.
    """
    chosen = None if model is None else _find_column(report, name, model)
    groups: dict[str, dict[CaseKey, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in report["runs"]:
        if chosen is None or column_of(row) == chosen:
            groups[column_of(row)][case_key(row)].append(row)
    session = report["session"]
    return Campaign(
        name=name,
        started_at=session.get("started_at"),
        profiles=session.get("profiles") or {},
        models={
            model_id: {key: _gather_case(key, rows) for key, rows in cases.items()}
            for model_id, cases in groups.items()
        },
        scripted=frozenset(column_of(row) for row in report["runs"] if row.get("scripted")),
        command=tuple(session.get("command") or ()),
        model=model,
    )


def _find_column(report: Mapping[str, Any], name: str | None, model: str) -> str:
    """Return the column that a report's name has after its `#`. Raises ConfigError if there is no such column."""
    columns = dict.fromkeys(column_of(row) for row in report["runs"])
    if model in columns:
        return model
    of_variant = {column_of(row) for row in report["runs"] if row.get("variant") == model}
    if len(of_variant) == 1:
        return of_variant.pop()
    names = ", ".join(columns) or "no run"
    raise ConfigError(f"{name}#{model}: found no run of a model {model!r}; the report has {names}")


def _gather_case(key: CaseKey, rows: Sequence[Row]) -> CaseRuns:
    # By repetition, not as they were reported: xdist reports in another order each time, and the first runs count
    judged = [*filter(has_verdict, sorted(rows, key=lambda row: row["repetition"]))]
    verdicts = [verdict for row in rows for verdict in row.get("judged", ())]
    return CaseRuns(
        key=key,
        must_pass=any(row["must_pass"] for row in rows),
        counts=Counts.of(row["outcome"] for row in rows),
        judged=tuple(Judged(row["outcome"] == "passed", _list_figures(row)) for row in judged),
        prints=frozenset((row["repetition"], row["fingerprint"]) for row in rows if row["fingerprint"]),
        reused=frozenset(
            (row["repetition"], row["fingerprint"]) for row in rows if row["reused"] and row["fingerprint"]
        ),
        replayed=sum(row["cassette"] == "replayed" for row in judged),
        measures=frozenset(measure for row in judged if (measure := row.get("measure"))),
        judges=frozenset((verdict["by"], verdict["judge"]) for verdict in verdicts),
        rubrics=frozenset((verdict["by"], verdict["rubric"]) for verdict in verdicts),
        dropped=frozenset(list_dropped(rows)),
        dataset=rows[0]["dataset"],
        failed=next((row for row in judged if row["outcome"] == "failed"), None),
        passed=next((row for row in judged if row["outcome"] == "passed"), None),
    )


def _list_figures(row: Row) -> dict[str, float]:
    """Return the known figures of a run by name."""
    figures = {
        "score": row["final_score"],
        **{f"metric.{name}": value for name, value in row["metrics"].items()},
        **{f"judge.{name}": value for name, value in (row["judge"] or {}).items()},
        **{f"cost_usd.{part}": usd for part, usd in row["cost_usd"].items()},
        "tokens.total": (row["usage"] or {}).get("total_tokens"),
        "duration_seconds": row["duration_seconds"],
    }
    return {name: value for name, value in figures.items() if value is not None}


def split_report_name(text: str) -> tuple[Path, str | None]:
    """Return the file and the model of `REPORT.json` or `REPORT.json#MODEL`; a file of the whole name comes first."""
    path, mark, model = text.rpartition("#")
    # If a file with a `#` in its name exists, the argument is that file's path.
    if mark and path and model and not Path(text).exists():
        return (Path(path), model)
    return (Path(text), None)


def read_campaign(text: str, here: Path) -> tuple[Campaign, dict[str, Any]]:
    """Return a campaign and its whole report. Its name is the path relative to `here` if the file is below it.

    Raises ConfigError for a file that is not a report.json, and for a model without a run in it.
    """
    path, model = split_report_name(text)
    report = read_report(path)
    whole, here = path.resolve(), here.resolve()
    name = whole.relative_to(here) if whole.is_relative_to(here) else path
    return build_campaign(report, name.as_posix(), model), report
