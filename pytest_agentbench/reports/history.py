"""Trends of cases over sessions, and the policy that follows from them: blocking, quarantined, or neither."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from typing import Any, Literal

from pytest_agentbench.reports.recorded_sessions import RecordedSession, Verdict
from pytest_agentbench.statistics.flips import count_flips, flips_tail

ALPHA = 0.01
"""A case is quarantined if its flips are at most so likely by chance."""
Policy = Literal["blocking", "quarantined"]


@dataclass(frozen=True)
class Rules:
    """Rules of the policy. `passes` of the last runs in `days` days make a case blocking.

    `tolerance` is the share of runs that a case may fail by chance without being quarantined.
    """

    days: int = 7
    passes: int = 21
    tolerance: float = 0.05


@dataclass(frozen=True, order=True, slots=True)
class CaseSeries:
    """Name of a trend: a case on a model in a suite, "" for no suite."""

    case: str
    model: str
    suite: str
    case_id: str


@dataclass(frozen=True)
class Day:
    """Verdicts of a day (UTC)."""

    date: date
    passed: int
    judged: int


@dataclass(frozen=True)
class Trend:
    """A case's verdicts in the days of the rules. `days` has an entry for each of them, also without a verdict.

    `flips` counts verdicts that differ from the one before with nothing changed, among verdicts of the current checks
    and judges; `p_value` is the chance of at least so many. `changed` is the day of the last session in which
    fingerprint or checks differ from the session before.
    """

    series: CaseSeries
    days: tuple[Day, ...]
    passed: int
    judged: int
    errors: int
    flips: int
    p_value: float
    changed: date | None
    must_pass: bool
    policy: Policy | None

    def as_dict(self) -> dict[str, Any]:
        """Return the record in JSON values."""
        days = [{"date": day.date.isoformat(), "passed": day.passed, "judged": day.judged} for day in self.days]
        names = asdict(self.series) | {"suite": self.series.suite or None}
        fields = {"passed": self.passed, "judged": self.judged, "errors": self.errors, "flips": self.flips}
        changed = None if self.changed is None else self.changed.isoformat()
        end = {"changed": changed, "must_pass": self.must_pass, "policy": self.policy}
        return {**names, "days": days, **fields, "p_value": self.p_value, **end}

    @property
    def reason(self) -> str:
        """Return the reason of the policy in a few words."""
        if self.policy == "quarantined":
            return f"{self.flips} flips in {self.judged} runs, p = {self.p_value:.1g}"
        return f"{self.passed} of {self.judged} runs passed"


@dataclass(frozen=True)
class _Part:
    """The verdicts on a case in one session, by repetition. `is_changed`: with other inputs than the session before."""

    started_at: datetime
    verdicts: tuple[Verdict, ...]
    is_changed: bool = False


def find_trends(sessions: Iterable[RecordedSession], rules: Rules) -> list[Trend]:
    """Return the trend of each case that has a run in the last days (UTC), up to the day of the latest session.

    A session that occurs twice, in a history and as a report, counts once.
    """
    series: dict[CaseSeries, dict[datetime, dict[int, Verdict]]] = defaultdict(lambda: defaultdict(dict))
    for session in sessions:
        for verdict in session.verdicts:
            name = CaseSeries(verdict.case, verdict.model, session.suite or "", verdict.case_id)
            series[name][session.started_at][verdict.repetition] = verdict
    if not series:
        return []
    end = max(started_at for parts in series.values() for started_at in parts)
    trends = (_make_trend(name, _list_parts(parts), end, rules) for name, parts in sorted(series.items()))
    return [trend for trend in trends if trend is not None]


def _list_parts(verdicts: dict[datetime, dict[int, Verdict]]) -> list[_Part]:
    parts: list[_Part] = []
    before: dict[int, Verdict] = {}
    for started_at, by_repetition in sorted(verdicts.items()):
        is_changed = any(
            _differs(before[number], by_repetition[number]) for number in before if number in by_repetition
        )
        parts.append(_Part(started_at, tuple(verdict for _, verdict in sorted(by_repetition.items())), is_changed))
        before = by_repetition
    return parts


def _differs(one: Verdict, other: Verdict) -> bool:
    # A run that an error prevented has neither
    pairs = (one.fingerprint, other.fingerprint), (one.measure, other.measure)
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def _make_trend(name: CaseSeries, parts: Sequence[_Part], end: datetime, rules: Rules) -> Trend | None:
    """Return the trend of a case, or None if it has no run in the last days."""
    begin = end.date() - timedelta(days=rules.days - 1)
    recent = [part for part in parts if part.started_at.date() >= begin]
    if not recent:
        return None
    verdicts = [verdict for part in recent for verdict in part.verdicts]
    judged = [verdict.outcome == "passed" for verdict in verdicts if _has_verdict(verdict)]
    segments = _list_segments(recent)
    flips = count_flips(segments)
    p_value = flips_tail(flips, [len(segment) for segment in segments], rules.tolerance)
    must_pass = verdicts[-1].must_pass
    last = [passed for segment in segments for passed in segment][-rules.passes :]
    policy: Policy | None = None
    if len(last) == rules.passes and all(last):
        policy = "blocking"
    elif p_value <= ALPHA and not must_pass:
        policy = "quarantined"
    return Trend(
        name,
        days=_count_days(recent, end, rules.days),
        passed=sum(judged),
        judged=len(judged),
        errors=sum(verdict.outcome == "error" for verdict in verdicts),
        flips=flips,
        p_value=p_value,
        changed=next((part.started_at.date() for part in reversed(parts) if part.is_changed), None),
        must_pass=must_pass,
        policy=policy,
    )


def _has_verdict(verdict: Verdict) -> bool:
    return verdict.outcome in ("passed", "failed")


def _list_segments(parts: Sequence[_Part]) -> list[list[bool]]:
    """Return verdicts by the current checks and judges, in parts between which the run's inputs changed."""
    measures = [verdict.measure for part in parts for verdict in part.verdicts if _has_verdict(verdict)]
    segments: list[list[bool]] = [[]]
    for part in parts:
        if part.is_changed:
            segments.append([])
        segments[-1] += [
            verdict.outcome == "passed"
            for verdict in part.verdicts
            if _has_verdict(verdict) and verdict.measure == measures[-1]
        ]
    return segments


def _count_days(parts: Sequence[_Part], end: datetime, days: int) -> tuple[Day, ...]:
    counts: dict[date, list[bool]] = defaultdict(list)
    for part in parts:
        counts[part.started_at.date()] += [
            verdict.outcome == "passed" for verdict in part.verdicts if _has_verdict(verdict)
        ]
    dates = [end.date() - timedelta(days=back) for back in reversed(range(days))]
    return tuple(Day(day, sum(counts[day]), len(counts[day])) for day in dates)
