"""The gate: which runs count for which case, whether enough of them were judged, and enough passed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_agentbench.reports.table import column_of, format_apart

CaseKey = tuple[str, str]
"""The node id without model and repetition, and the case's id: cases of one name in two files are two."""

_VERDICTS = frozenset(("passed", "failed"))


def case_key(row: Mapping[str, Any]) -> CaseKey:
    """Return the key of a row's case, independent of model and repetition.

    All `parameters` of a hand-written test together are a case: each asks something else of a run.
    """
    # The node id and not the case id alone: files of several folders may name their cases alike
    place, parameters = row["nodeid"].rpartition("[")[0], row.get("parameters")
    if parameters is not None:
        place = f"{place}[{parameters}]"
    return place, row["case_id"]


def has_verdict(row: Mapping[str, Any]) -> bool:
    """Return whether the run passed or failed.

    Runs without a verdict count in no rate and no mean, even if they have measurements.
    """
    return row["outcome"] in _VERDICTS


def judged_cases(report: Mapping[str, Any], column: str) -> int:
    """Return how many cases of a column have a score; where only one has, how many of its runs."""
    scores = Counter(
        case_key(row)
        for row in report["runs"]
        if column_of(row) == column and row["final_score"] is not None and has_verdict(row)
    )
    if len(scores) == 1:
        return next(iter(scores.values()))
    return len(scores)


def find_empty_arms(models: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each variant of which every run was skipped: there are no pairs with other variants."""
    arms = [model for model in models if "variant" in model]
    empty = [arm for arm in arms if arm["skipped"] == arm["runs"]]
    if len(empty) == len(arms):
        return []
    return [f"No pairs: all {arm['runs']} runs of {column_of(arm)} were skipped." for arm in empty]


MIN_COMPLETION = 0.95
"""Default share of runs that must reach a verdict for the gate to pass."""


class Counts(NamedTuple):
    """Number of runs by outcome. A run is judged if it passed or failed: errors and skips do not rate the agent."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0

    @classmethod
    def of(cls, outcomes: Iterable[str]) -> Counts:
        """Count `passed`, `failed`, `error` and `skipped` runs."""
        numbers = Counter(outcomes)
        return cls(numbers["passed"], numbers["failed"], numbers["error"], numbers["skipped"])

    @property
    def runs(self) -> int:
        """Return how many there are, skipped ones too."""
        return self.passed + self.failed + self.errors + self.skipped

    @property
    def judged(self) -> int:
        """Return how many passed or failed."""
        return self.passed + self.failed

    @property
    def pass_rate(self) -> float | None:
        """Return passed / (passed + failed), or None if no run has a verdict."""
        if self.judged:
            return self.passed / self.judged
        return None

    @property
    def completion(self) -> float | None:
        """Return (passed + failed) / (passed + failed + errors), or None if nothing ran."""
        ran = self.judged + self.errors
        if ran:
            return self.judged / ran
        return None


def count_gated(rows: Iterable[Mapping[str, Any]]) -> Counts:
    """Count the runs that the gate is about: those of quarantined cases are left out, passed ones too."""
    return Counts.of(row["outcome"] for row in rows if row.get("policy") != "quarantined")


def fails_in_quarantine(row: Mapping[str, Any]) -> bool:
    """Return whether a run failed, and its case is quarantined. An error is no failure of the agent."""
    return row["outcome"] == "failed" and row.get("policy") == "quarantined"


def list_outvoted(rows: Iterable[Mapping[str, Any]], cases: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the failed runs of cases that only decide whether a skill is used, if the case passes by its rate.

    `cases` are the `cases[]` entries of the rows.
    """
    failed = [row for row in rows if row["outcome"] == "failed" and (row.get("skill") or {}).get("decides")]
    if not failed:
        return []
    passed = {
        (case["case"], column_of(case))
        for case in cases
        if case["thresholds"] and all(fact["met"] for fact in case["thresholds"].values())
    }
    return [row for row in failed if (case_key(row)[0], column_of(row)) in passed]


class Gate(NamedTuple):
    """Verdict on a session. `passed` is None if no gate was requested; `reasons` are sentences."""

    passed: bool | None
    pass_rate: float | None
    completion: float | None
    fail_under: float | None = None
    min_completion: float | None = None
    reasons: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the `session.gate` of report.json."""
        return {**self._asdict(), "reasons": list(self.reasons)}


def apply_gate(
    counts: Counts,
    fail_under: float | None,
    min_completion: float = MIN_COMPLETION,
    other_failures: Sequence[str] = (),
    *,
    compared: bool = False,
) -> Gate:
    """Return the gate's verdict: it fails below either fraction, without judged runs, and with any of `other_failures`.

    `other_failures` are sentences on problems that fail a gated session at any pass rate: collection errors, failures
    of tests that are not cases, failed cases that must pass (`case_failures`), an early stop, regressions. A session
    that is `compared` with another one is gated without `fail_under` too.
    """
    if fail_under is None and not compared:
        return Gate(None, counts.pass_rate, counts.completion)
    reasons = [*_shortfalls(counts, fail_under, min_completion), *other_failures]
    return Gate(not reasons, counts.pass_rate, counts.completion, fail_under, min_completion, tuple(reasons))


def _shortfalls(counts: Counts, fail_under: float | None, min_completion: float) -> list[str]:
    if counts.pass_rate is None or counts.completion is None:
        ended = f"{counts.errors} ended in infrastructure errors, {counts.skipped} were skipped"
        minimum = "" if fail_under is None else f" ({fail_under:.3f} is wanted)"
        return [f"No run was judged, so the pass rate is unknown{minimum}: {ended}."]
    reasons = []
    if fail_under is not None and counts.pass_rate < fail_under:
        rate, minimum = format_apart(counts.pass_rate, fail_under)
        reasons.append(f"Pass rate {rate} is below {minimum}: {counts.passed} of {counts.judged} judged runs passed.")
    if (missing := describe_shortfall(counts, min_completion)) is not None:
        reasons.append(f"Completion {missing}")
    return reasons


def describe_shortfall(counts: Counts, min_completion: float) -> str | None:
    """Return by how much the completion is below the minimum, as the end of a sentence, or None if it is not."""
    if counts.completion is None or counts.completion >= min_completion:
        return None
    share, minimum = format_apart(counts.completion, min_completion)
    ran = counts.judged + counts.errors
    return (
        f"{share} is below {minimum}: {counts.errors} of {ran} runs ended in infrastructure errors and were not judged."
    )


def case_failures(cases: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each `cases[]` entry that failed and must pass or is blocking, or misses its own threshold.

    Quarantined cases have none.
    """
    sentences = []
    for case in cases:
        name, ran = f"{case['case_id']} [{column_of(case)}]", case["repetitions"] - case["skipped"]
        if case.get("policy") == "quarantined":
            continue
        if case.get("policy") == "blocking" and case["failed"] and not case["must_pass"]:
            sentences.append(f"{name} is blocking: {case['passed']} of {ran} runs passed.")
        # Errors count as not passed here: a case that must pass is not passed by an outage.
        if case["must_pass"] and not case["thresholds"] and case["passed"] < ran:
            sentences.append(f"{name} must pass: {case['passed']} of {ran} runs passed.")
        for measure, fact in (case["thresholds"] or {}).items():
            title = {"pass_hat_k": "pass^k"}.get(measure, "pass rate")
            if fact["met"] is None and ran:
                sentences.append(
                    f"{name} has no {title} ({fact['required']:.3f} is wanted): no verdict on any of {ran} runs."
                )
            elif fact["met"] is False:
                actual, minimum = format_apart(fact["actual"], fact["required"])
                sentences.append(f"{name} has a {title} of {actual}, below its threshold {minimum}.")
    return sentences
