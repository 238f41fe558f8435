"""The gate: which runs count for which case, whether enough of them were judged, and enough passed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_agentbench.reports.table import format_apart

CaseKey = tuple[str, str]
"""The node id without model and repetition, and the case's id: cases of one name in two files are two."""

_VERDICTS = frozenset(("passed", "failed"))


def case_key(row: Mapping[str, Any]) -> CaseKey:
    """Return the case that a row is of, whatever the model and the repetition.

    A parametrized test by hand is a case for each of its `variant`s: they ask different things of a run.
    """
    # The node id and not the case id alone: files of several folders may name their cases alike
    place, variant = row["nodeid"].rpartition("[")[0], row.get("variant")
    return place if variant is None else f"{place}[{variant}]", row["case_id"]


def has_verdict(row: Mapping[str, Any]) -> bool:
    """Return whether its run passed or failed.

    Others enter no rate and no mean, whatever was measured before they broke.
    """
    return row["outcome"] in _VERDICTS


def judged_cases(report: Mapping[str, Any], model_id: str) -> int:
    """Return how many cases of a model have a score; where only one has, how many of its runs."""
    scores = Counter(
        case_key(row)
        for row in report["runs"]
        if row["model_id"] == model_id and row["final_score"] is not None and has_verdict(row)
    )
    return next(iter(scores.values())) if len(scores) == 1 else len(scores)


MIN_COMPLETION = 0.95
"""The share of runs that must reach a verdict, where nobody says otherwise."""


class Counts(NamedTuple):
    """Runs by outcome. A run is judged when it passed or failed: errors and skips say nothing about the agent."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0

    @classmethod
    def of(cls, outcomes: Iterable[str]) -> Counts:
        """Count `passed`, `failed`, `error` and `skipped` runs."""
        counted = Counter(outcomes)
        return cls(counted["passed"], counted["failed"], counted["error"], counted["skipped"])

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
        """Return passed / (passed + failed), None where nothing was judged."""
        return self.passed / self.judged if self.judged else None

    @property
    def completion(self) -> float | None:
        """Return (passed + failed) / (passed + failed + errors), None where nothing ran."""
        ran = self.judged + self.errors
        return self.judged / ran if ran else None


class Gate(NamedTuple):
    """The verdict on a session. `passed` is None where no gate was asked for; `reasons` are sentences."""

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
    """Decide. Fails below either fraction, where nothing was judged, and for each of `other_failures` (sentences).

    `other_failures` tell what fails a gated session whatever its pass rate: collection errors, failures of tests that
    are not cases, cases that must pass (`case_failures`), a session that stopped early, regressions. A session that is
    `compared` with another is gated without `fail_under` too.
    """
    if fail_under is None and not compared:
        return Gate(None, counts.pass_rate, counts.completion)
    reasons = [*_shortfalls(counts, fail_under, min_completion), *other_failures]
    return Gate(not reasons, counts.pass_rate, counts.completion, fail_under, min_completion, tuple(reasons))


def _shortfalls(counts: Counts, fail_under: float | None, min_completion: float) -> list[str]:
    if counts.pass_rate is None or counts.completion is None:
        ended = f"{counts.errors} ended in infrastructure errors, {counts.skipped} were skipped"
        wanted = "" if fail_under is None else f" ({fail_under:.3f} is wanted)"
        return [f"No run was judged, so the pass rate is unknown{wanted}: {ended}."]
    reasons = []
    if fail_under is not None and counts.pass_rate < fail_under:
        rate, wanted = format_apart(counts.pass_rate, fail_under)
        reasons.append(f"Pass rate {rate} is below {wanted}: {counts.passed} of {counts.judged} judged runs passed.")
    if (missing := describe_shortfall(counts, min_completion)) is not None:
        reasons.append(f"Completion {missing}")
    return reasons


def describe_shortfall(counts: Counts, min_completion: float) -> str | None:
    """Return how far the completion is below what is wanted, the rest of a sentence that names it.

    None where it is not.
    """
    if counts.completion is None or counts.completion >= min_completion:
        return None
    share, wanted = format_apart(counts.completion, min_completion)
    ran = counts.judged + counts.errors
    return (
        f"{share} is below {wanted}: {counts.errors} of {ran} runs ended in infrastructure errors and were not judged."
    )


def case_failures(cases: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each `cases[]` entry of report.json that must pass and did not, or misses its own
    threshold."""
    sentences = []
    for case in cases:
        name, ran = f"{case['case_id']} [{case['model_id']}]", case["repetitions"] - case["skipped"]
        # Errors count as not passed here: a case that must pass is not passed by an outage.
        if case["must_pass"] and not case["thresholds"] and case["passed"] < ran:
            sentences.append(f"{name} must pass: {case['passed']} of {ran} runs passed.")
        for measure, fact in (case["thresholds"] or {}).items():
            title = {"pass_hat_k": "pass^k"}.get(measure, "pass rate")
            if fact["met"] is None and ran:
                sentences.append(
                    f"{name} has no {title} ({fact['required']:.3f} is wanted): none of {ran} runs was judged."
                )
            elif fact["met"] is False:
                actual, wanted = format_apart(fact["actual"], fact["required"])
                sentences.append(f"{name} has a {title} of {actual}, below its threshold {wanted}.")
    return sentences
