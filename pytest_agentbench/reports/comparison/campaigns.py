"""One side of a comparison: what a report.json says of its cases, small enough to keep while a session runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.reports.cases import CaseKey, case_key, has_verdict
from pytest_agentbench.reports.gate import Counts
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.reports.statistics import mean

_MESSAGE = 200


@dataclass(frozen=True, slots=True)
class CaseRuns:
    """The repetitions of one case on one model.

    `values` has the mean of each figure over the runs that have it: `score`, `metric.f1_score`, `judge.task`,
    `cost_usd.run`, `tokens.total`, `duration_seconds`. `prints` are (repetition, fingerprint) of its runs, `reused` of
    those that came from the store. `judges` and `rubrics` are (who asked, hash) of what models judged it by. `failure`
    is the node id and the message of the first run that failed.
    """

    key: CaseKey
    must_pass: bool
    counts: Counts
    values: Mapping[str, float]
    prints: frozenset[tuple[int, str]]
    reused: frozenset[tuple[int, str]]
    judges: frozenset[tuple[str, str]]
    rubrics: frozenset[tuple[str, str]]
    failure: tuple[str, str] | None

    @property
    def pass_rate(self) -> float | None:
        """Over its judged runs, None where there are none."""
        return self.counts.pass_rate


@dataclass(frozen=True)
class Campaign:
    """A report's runs by model and case. `name` is the file's, None for the session itself; `model` the chosen one."""

    name: str | None
    started_at: str | None
    profiles: Mapping[str, str | None]
    models: Mapping[str, Mapping[CaseKey, CaseRuns]]
    scripted: frozenset[str] = field(default=frozenset())
    model: str | None = None

    @cached_property
    def label(self) -> str:
        """What it is called in sentences."""
        shown = self.name or "this session"
        return shown if self.model is None else f"{shown}#{self.model}"

    def as_dict(self) -> dict[str, Any]:
        """How report.json and pages name it."""
        return {
            "report": self.name,
            "model": self.model,
            "started_at": self.started_at,
            "profiles": dict(self.profiles),
        }


def campaign(report: Mapping[str, Any], name: str | None = None, model: str | None = None) -> Campaign:
    """What of a report is compared, of one `model` or of all. Raises ConfigError for a model it does not have."""
    groups: dict[str, dict[CaseKey, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in report["runs"]:
        if model is None or row["model_id"] == model:
            groups[row["model_id"]][case_key(row)].append(row)
    if model is not None and not groups:
        known = ", ".join(dict.fromkeys(row["model_id"] for row in report["runs"])) or "no run at all"
        raise ConfigError(f"{name}#{model}: found no run of a model {model!r}; the report has {known}")
    session = report["session"]
    return Campaign(
        name=name,
        started_at=session.get("started_at"),
        profiles=session.get("profiles") or {},
        models={each: {key: _case(key, rows) for key, rows in cases.items()} for each, cases in groups.items()},
        scripted=frozenset(row["model_id"] for row in report["runs"] if row.get("scripted")),
        model=model,
    )


def _case(key: CaseKey, rows: Sequence[Row]) -> CaseRuns:
    figures: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for name, value in _figures(row):
            if value is not None:
                figures[name].append(value)
    verdicts = [verdict for row in rows for verdict in row.get("judged", ())]
    failed = next((row for row in rows if row["outcome"] == "failed"), None)
    return CaseRuns(
        key=key,
        must_pass=rows[0]["must_pass"],
        counts=Counts.of(row["outcome"] for row in rows),
        values={name: found for name, values in figures.items() if (found := mean(values)) is not None},
        prints=frozenset((row["repetition"], row["fingerprint"]) for row in rows if row["fingerprint"]),
        reused=frozenset(
            (row["repetition"], row["fingerprint"]) for row in rows if row["reused"] and row["fingerprint"]
        ),
        judges=frozenset((verdict["by"], verdict["judge"]) for verdict in verdicts),
        rubrics=frozenset((verdict["by"], verdict["rubric"]) for verdict in verdicts),
        failure=None if failed is None else (failed["nodeid"], (failed["message"] or "").partition("\n")[0][:_MESSAGE]),
    )


def _figures(row: Row) -> list[tuple[str, float | None]]:
    """A judged run's figures by name; an infrastructure error has none worth comparing."""
    if not has_verdict(row):
        return []
    return [
        ("score", row["final_score"]),
        *((f"metric.{name}", value) for name, value in row["metrics"].items()),
        *((f"judge.{name}", value) for name, value in (row["judge"] or {}).items()),
        ("cost_usd.run", row["cost_usd"]["run"]),
        ("cost_usd.judge", row["cost_usd"]["judge"]),
        ("tokens.total", (row["usage"] or {}).get("total_tokens")),
        ("duration_seconds", row["duration_seconds"]),
    ]
