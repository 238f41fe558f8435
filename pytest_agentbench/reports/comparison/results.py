"""Results of a comparison: frozen records and their JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pytest_agentbench.reports.comparison.campaigns import Campaign
from pytest_agentbench.reports.gate import MIN_COMPLETION, Counts, describe_shortfall
from pytest_agentbench.reports.table import and_more
from pytest_agentbench.statistics.estimates import Interval, pair
from pytest_agentbench.statistics.paired import ALPHA, POWER

WORSE, BETTER, SAME, UNCLEAR, NOTHING = "worse", "better", "no_difference_seen", "not_enough_runs", "nothing_compared"


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure on both sides: means over `cases` paired cases, each case counting once. None: undefined.

    `ci95` is the interval of the difference that agrees with the test; `bootstrap_ci95` is from resampled cases.
    `detectable` is the smallest difference that this many cases show with 80 % power at 5 % for all models together.
    `cases_needed` is the number of cases that would show the observed difference, if these do not. `p_adjusted` is
    Holm's over the models of the comparison. Untested figures have neither test nor verdict.
    """

    cases: int
    baseline: float | None = None
    current: float | None = None
    difference: float | None = None
    ci95: Interval | None = None
    bootstrap_ci95: Interval | None = None
    test: str | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    detectable: float | None = None
    cases_needed: int | None = None
    verdict: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the record as report.json has it."""
        return {**asdict(self), "ci95": pair(self.ci95), "bootstrap_ci95": pair(self.bootstrap_ci95)}


@dataclass(frozen=True, slots=True)
class Change:
    """A case whose pass rate differs. Sides are (passed, judged) runs.

    `tested` is the difference over equally many runs of both sides, which the test uses. `p_value` is Fisher's for this
    case alone, if both sides repeated it. `nodeid` and `message` are from the first failed run on the worse side. The
    answers are from that run and from the first passed one on the other side. Texts have up to 500 characters.
    """

    case: str
    case_id: str
    must_pass: bool
    baseline: tuple[int, int]
    current: tuple[int, int]
    difference: float
    tested: float
    p_value: float | None
    nodeid: str | None
    message: str | None
    question: str | None = None
    expected: str | None = None
    baseline_answer: str | None = None
    current_answer: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the record as report.json has it."""
        sides = {"baseline": self.baseline, "current": self.current}
        return {
            **{name: value for name, value in asdict(self).items() if name != "tested"},
            **{side: {"passed": passed, "judged": judged} for side, (passed, judged) in sides.items()},
        }


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """A model of the current side against a model of the baseline, usually the same one.

    Cases are node ids without brackets. `unjudged` cases are on both sides, but all their runs on one side were
    infrastructure errors or skips. `runs` counts all runs of both sides by outcome. `others` are untested figures by
    name. `regressions` and `gains` are the cases that the test supports, `by_chance` the others whose rate differs,
    worse ones first.
    """

    baseline_model_id: str
    model_id: str
    runs: tuple[Counts, Counts]
    only_baseline: tuple[str, ...]
    only_current: tuple[str, ...]
    unjudged: tuple[str, ...]
    pass_rate: Measure
    score: Measure
    others: dict[str, Measure]
    regressions: tuple[Change, ...]
    gains: tuple[Change, ...]
    by_chance: tuple[Change, ...]
    summary: str

    @property
    def worse(self) -> list[Change]:
        """Return every case whose pass rate fell, supported by the test or not."""
        return [*self.regressions, *(change for change in self.by_chance if change.difference < 0)]

    def as_dict(self) -> dict[str, Any]:
        """Return an entry of `models`."""
        return {
            "model_id": self.model_id,
            "baseline_model_id": self.baseline_model_id,
            "verdict": self.pass_rate.verdict,
            "summary": self.summary,
            "runs": {name: runs._asdict() for name, runs in zip(("baseline", "current"), self.runs, strict=True)},
            "cases": {
                "paired": self.pass_rate.cases,
                "unjudged": list(self.unjudged),
                "only_baseline": list(self.only_baseline),
                "only_current": list(self.only_current),
            },
            "pass_rate": self.pass_rate.as_dict(),
            "score": self.score.as_dict(),
            "others": {name: measure.as_dict() for name, measure in self.others.items()},
            "regressions": [change.as_dict() for change in self.regressions],
            "gains": [change.as_dict() for change in self.gains],
            "by_chance": [change.as_dict() for change in self.by_chance],
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two campaigns side by side. `only_baseline` and `only_current` are models without a partner.

    `unpaired` is the reason why no case could be compared, or None. `min_completion` is the share of the baseline's
    runs that must have a verdict.
    """

    baseline: Campaign
    current: Campaign
    models: tuple[ModelComparison, ...]
    only_baseline: tuple[str, ...]
    only_current: tuple[str, ...]
    notes: tuple[str, ...]
    unpaired: str | None = None
    max_regressions: int | None = None
    min_completion: float = MIN_COMPLETION

    @property
    def failures(self) -> list[str]:
        """Return reasons to fail a gate: a significant regression, too many worse cases, nothing to compare.

        The completion of a single current model is checked by its session's own gate.
        """
        failures = [*self._failures()]
        if len(self.current.models) > 1:
            failures += self.incomplete
        return failures

    @property
    def incomplete(self) -> list[str]:
        """Return sentences on models of which too many runs have no verdict on the current side."""
        missing = {model.model_id: describe_shortfall(model.runs[1], self.min_completion) for model in self.models}
        return [f"Completion of {model_id} {text}" for model_id, text in missing.items() if text is not None]

    def _failures(self) -> Iterator[str]:
        if self.unpaired is not None:
            yield f"Nothing could be compared with {self.baseline.label}: {self.unpaired}"
        for model in self.models:
            if self.unpaired is None and not model.pass_rate.cases and model.runs[0].completion is not None:
                yield (
                    f"Nothing of {model.model_id} could be compared with {self.baseline.label}: no case has a verdict "
                    "on both sides."
                )
            # A baseline of which half is missing proves nothing; one without any verdict has been named above
            if model.runs[0].judged and (missing := describe_shortfall(model.runs[0], self.min_completion)) is not None:
                yield f"{self.baseline.label} is too incomplete to compare {model.model_id} with: completion {missing}"
            if model.pass_rate.verdict == WORSE:
                yield f"Significant regression: {model.summary}"
        # All worse cases count here, not only significant ones: the user of this limit counts cases.
        worse = sum(len(model.worse) for model in self.models)
        if self.max_regressions is not None and worse > self.max_regressions:
            named = [f"{change.case_id} [{model.model_id}]" for model in self.models for change in model.worse]
            more = and_more(worse, 5)
            cases = "1 case is" if worse == 1 else f"{worse:,} cases are"
            allowed = f"at most {self.max_regressions} may be"
            yield f"{cases} worse than in {self.baseline.label}, {allowed}: {', '.join(named[:5])}{more}."

    def as_dict(self) -> dict[str, Any]:
        """Return the `comparison` of report.json, which `agentbench compare --json` prints too."""
        return {
            "baseline": self.baseline.as_dict(),
            "current": self.current.as_dict(),
            "alpha": ALPHA,
            "power": POWER,
            "max_regressions": self.max_regressions,
            "models": [model.as_dict() for model in self.models],
            "only_baseline": list(self.only_baseline),
            "only_current": list(self.only_current),
            "notes": list(self.notes),
            "failures": self.failures,
        }
