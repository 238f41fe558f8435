"""Two campaigns, case by case: what differs, whether that is more than chance, and how many runs could tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from statistics import fmean

from pytest_agentbench.reports.bootstrap import bootstrap_interval
from pytest_agentbench.reports.cases import CaseKey
from pytest_agentbench.reports.comparison import paired
from pytest_agentbench.reports.comparison.campaigns import Campaign, CaseRuns, Sample
from pytest_agentbench.reports.comparison.intervals import (
    FEWEST_CHANGED,
    difference_interval,
    rate_interval,
    sign_flip,
    single_run_interval,
)
from pytest_agentbench.reports.comparison.notes import model_notes, notes, unpaired
from pytest_agentbench.reports.comparison.results import (
    BETTER,
    NOTHING,
    SAME,
    UNCLEAR,
    WORSE,
    Change,
    Comparison,
    Measure,
    ModelComparison,
)
from pytest_agentbench.reports.comparison.wording import summary
from pytest_agentbench.reports.gate import MIN_COMPLETION, Counts

Cases = Mapping[CaseKey, CaseRuns]
Pairs = Sequence[tuple[Sample, Sample]]
SCORE = "score"


def compare(
    baseline: Campaign,
    current: Campaign,
    max_regressions: int | None = None,
    min_completion: float = MIN_COMPLETION,
) -> Comparison:
    """Pair the cases of both sides by node id and model, and test each model's pass rate and mean score.

    Models pair by id; where each side has a single one, these do whatever their names. A case counts once, by the mean
    of its judged repetitions: infrastructure errors and skips are left out and counted. Of a case that was judged more
    often on one side only as many runs count there as on the other: the mean of many runs scatters less than that of
    few, so where nothing differs their differences are not as often positive as negative, which the test rests on.
    """
    matched = _matched(baseline, current)
    compared = [_compare(baseline.models[old], current.models[new], old, new, len(matched)) for old, new in matched]
    models = tuple(_concluded(compared))
    return Comparison(
        baseline,
        current,
        models,
        only_baseline=tuple(model for model in baseline.models if model not in {old for old, _ in matched}),
        only_current=tuple(model for model in current.models if model not in {new for _, new in matched}),
        notes=(
            *notes(baseline, current, matched),
            *(said for model in models for said in model_notes(model, baseline, current)),
        ),
        unpaired=unpaired(baseline, current, models),
        max_regressions=max_regressions,
        min_completion=min_completion,
    )


def _matched(baseline: Campaign, current: Campaign) -> list[tuple[str, str]]:
    common = [(model, model) for model in current.models if model in baseline.models]
    if not common and len(baseline.models) == len(current.models) == 1:
        return [(*baseline.models, *current.models)]  # type: ignore[list-item]
    return common


def _compare(old: Cases, new: Cases, old_model: str, new_model: str, models: int) -> ModelComparison:
    """One model without its verdicts, which depend on the others'."""
    common = sorted(old.keys() & new.keys())  # in no file's order: what is drawn for the tests does not depend on it
    both = [(old[key], new[key]) for key in common]
    counted = [(pair, runs) for pair in both if (runs := min(len(side.judged) for side in pair))]
    pairs = [(before.first(runs), after.first(runs)) for (before, after), runs in counted]
    alpha = paired.ALPHA / models
    rates = [(before.pass_rate, after.pass_rate) for before, after in pairs]
    single = all(runs == 1 for _, runs in counted)
    tested = {
        before.key: after_rate - before_rate
        for ((before, _), _), (before_rate, after_rate) in zip(counted, rates, strict=True)
    }
    changes = [_change(old[key], new[key], tested[key]) for key in new if key in old and _differ(old[key], new[key])]
    return ModelComparison(
        baseline_model_id=old_model,
        model_id=new_model,
        runs=(_counts(old), _counts(new)),
        only_baseline=tuple(key[0] for key in old if key not in new),
        only_current=tuple(key[0] for key in new if key not in old),
        unjudged=tuple(pair[0].key[0] for pair in both if not all(side.judged for side in pair)),
        pass_rate=_tested(rates, alpha, rate=True, single=single),
        score=_tested(_values(pairs, SCORE), alpha),
        others={name: _told(_values(pairs, name)) for name in _names(pairs)},
        regressions=tuple(sorted((change for change in changes if change.difference < 0), key=_severity)),
        gains=tuple(sorted((change for change in changes if change.difference > 0), key=_severity)),
        by_chance=(),
        summary="",
    )


def _differ(before: CaseRuns, after: CaseRuns) -> bool:
    rates = before.pass_rate, after.pass_rate
    return None not in rates and rates[0] != rates[1]


def _counts(cases: Cases) -> Counts:
    every = [case.counts for case in cases.values()]
    fields = [(each.passed, each.failed, each.errors, each.skipped) for each in every]
    return Counts(*(reduce(add, column) for column in zip(*fields, strict=True)))


def _values(pairs: Pairs, name: str) -> list[tuple[float, float]]:
    """A figure of the cases that have it on both sides."""
    return [
        (before.values[name], after.values[name])
        for before, after in pairs
        if name in before.values and name in after.values
    ]


def _names(pairs: Pairs) -> list[str]:
    """The figures of either side but the score, in order of first appearance."""
    found = dict.fromkeys(name for pair in pairs for side in pair for name in side.values)
    return [name for name in found if name != SCORE]


def _told(values: Sequence[tuple[float, float]]) -> Measure:
    """Means, difference and intervals, which so few changed cases as can show nothing have none of."""
    if not values:
        return Measure(cases=0)
    differences = [after - before for before, after in values]
    resampled = sum(map(bool, differences)) >= FEWEST_CHANGED
    return Measure(
        cases=len(values),
        baseline=fmean(before for before, _ in values),
        current=fmean(after for _, after in values),
        difference=paired.mean_of(differences),
        ci95=difference_interval(differences),
        bootstrap_ci95=bootstrap_interval([(difference,) for difference in differences]) if resampled else None,
    )


def _tested(
    values: Sequence[tuple[float, float]], alpha: float, *, rate: bool = False, single: bool = False
) -> Measure:
    """The same with its test, and what so many cases could show at `alpha`: of a pass `rate`, maybe of single runs."""
    told = _told(values)
    if not values:
        return told
    differences = [after - before for before, after in values]
    if single:
        worse, better = sum(each < 0 for each in differences), sum(each > 0 for each in differences)
        test, p_value = paired.MCNEMAR, paired.mcnemar(worse, better)
        ends = single_run_interval(differences, p_value)
    else:
        test, p_value = sign_flip(differences)
        ends = rate_interval(differences) if rate else told.ci95
    return replace(
        told,
        ci95=ends,
        test=test,
        p_value=p_value,
        detectable=(paired.smallest_rate_difference if rate else paired.smallest_difference)(differences, alpha),
        cases_needed=paired.cases_needed(differences, alpha),
    )


def _severity(change: Change) -> tuple[bool, float]:
    """What must pass comes first, then the largest change."""
    return not change.must_pass, -abs(change.difference)


def _change(before: CaseRuns, after: CaseRuns, tested: float) -> Change:
    assert before.pass_rate is not None
    assert after.pass_rate is not None
    old, new = before.counts, after.counts
    difference = after.pass_rate - before.pass_rate
    nodeid, message = (after if difference < 0 else before).failure or (None, None)
    repeated = min(old.judged, new.judged) > 1
    return Change(
        case=after.key[0],
        case_id=after.key[1],
        must_pass=after.must_pass,
        baseline=(old.passed, old.judged),
        current=(new.passed, new.judged),
        difference=difference,
        tested=tested,
        p_value=paired.fisher((old.passed, old.failed), (new.passed, new.failed)) if repeated else None,
        nodeid=nodeid,
        message=message,
    )


def _concluded(models: Sequence[ModelComparison]) -> list[ModelComparison]:
    """The verdicts, by p values that Holm adjusted over the models; pass rate and score are a family each."""
    rates = _judged([model.pass_rate for model in models])
    scores = _judged([model.score for model in models])
    concluded = [
        replace(model, pass_rate=rate, score=score) for model, rate, score in zip(models, rates, scores, strict=True)
    ]
    tested = sum(rate.p_value is not None for rate in rates)
    return [replace(_without_chance(model), summary=summary(model, tested)) for model in concluded]


def _without_chance(model: ModelComparison) -> ModelComparison:
    """The model with those changes as regressions and gains that the test supports.

    Where it finds the pass rate worse, these are the cases that it goes by, and the other way round. Else a case has to
    stand alone: by Fisher's test of its repetitions, adjusted (Holm) for all cases that could. What must pass is named
    whatever chance can do.
    """
    changes = [*model.regressions, *model.gains]
    alone = [change for change in changes if change.p_value is not None]
    others = [1.0] * (model.pass_rate.cases - len(alone))
    adjusted = paired.holm([*(change.p_value or 0.0 for change in alone), *others])
    certain = {id(change) for change, p_value in zip(alone, adjusted, strict=False) if p_value <= paired.ALPHA}
    way = {WORSE: -1, BETTER: 1}.get(model.pass_rate.verdict or "", 0)

    def supported(change: Change) -> bool:
        by_all = way * change.tested > 0 and way * change.difference > 0
        return by_all or id(change) in certain or (change.must_pass and change.difference < 0)

    return replace(
        model,
        regressions=tuple(filter(supported, model.regressions)),
        gains=tuple(filter(supported, model.gains)),
        by_chance=tuple(change for change in changes if not supported(change)),
    )


def _judged(measures: Sequence[Measure]) -> list[Measure]:
    tested = [measure.p_value for measure in measures if measure.p_value is not None]
    adjusted = iter(paired.holm(tested))
    return [_verdict(measure, next(adjusted) if measure.p_value is not None else None) for measure in measures]


def _verdict(measure: Measure, p_adjusted: float | None) -> Measure:
    if p_adjusted is None or measure.difference is None:
        return replace(measure, verdict=NOTHING)
    if p_adjusted <= paired.ALPHA:
        return replace(
            measure, p_adjusted=p_adjusted, cases_needed=None, verdict=WORSE if measure.difference < 0 else BETTER
        )
    return replace(measure, p_adjusted=p_adjusted, verdict=UNCLEAR if measure.difference else SAME)
