"""Compare two campaigns case by case, with the notes that a reader of the figures needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

from pytest_agentbench.reports.comparison.campaigns import Campaign, CaseRuns, Sample, build_campaign
from pytest_agentbench.reports.comparison.columns import Column, pair_columns
from pytest_agentbench.reports.comparison.pairing import describe_renamed, pair_renamed
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
from pytest_agentbench.reports.gate import MIN_COMPLETION, CaseKey, Counts
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.reports.table import column_of
from pytest_agentbench.statistics import paired
from pytest_agentbench.statistics.estimates import mean_of
from pytest_agentbench.statistics.paired import (
    FEWEST_CHANGED,
    difference_interval,
    rate_interval,
    sign_flip,
    single_run_interval,
)
from pytest_agentbench.statistics.resampling import bootstrap_interval
from pytest_agentbench.terminal_text import count_text

_MESSAGE = 200
_BY_OUTCOME = ("--lf", "--last-failed", "--sw", "--stepwise", "--sw-skip", "--stepwise-skip")


def notes(baseline: Campaign, current: Campaign, matched: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Return sentences about both sides as a whole."""
    for old, new in matched:
        if old != new and (baseline.model is None or current.model is None):
            yield f"{new} is compared with {old}, the only model of {baseline.label}."
    for old, new in matched:
        if (old in baseline.scripted) != (new in current.scripted):
            scripted, model = (baseline, old) if old in baseline.scripted else (current, new)
            yield f"{model} of {scripted.label} answered from scripts: it is not a model."
    for side in (baseline, current):
        if chosen := [option for option in side.command if option in _BY_OUTCOME]:
            yield (
                f"The cases of {side.label} were chosen by how they ended before ({chosen[0]}): the difference "
                "applies to no other cases, and failed cases may pass by chance alone."
            )
    for kind in dict.fromkeys([*baseline.profiles, *current.profiles]):
        before, now = baseline.profiles.get(kind), current.profiles.get(kind)
        if before != now:
            what = kind if kind == "suite" else f"{kind} profile"
            yield f"The {what} differs: {before or 'none'} in {baseline.label}, {now or 'none'} in {current.label}."


def model_notes(model: ModelComparison, baseline: Campaign, current: Campaign) -> Iterator[str]:
    """Return sentences about one model: omitted cases, and differences between the two sides' runs."""
    old, new = baseline.models[model.baseline_model_id], current.models[model.model_id]
    labels = baseline.label, current.label
    if model.baseline_model_id == model.model_id:
        common = [(old[key], new[key]) for key in new if key in old and old[key].prints and new[key].prints]
        other = sum(_fingerprints(before).isdisjoint(_fingerprints(after)) for before, after in common)
        if other:
            yield (
                f"{other} of {len(common)} cases of {model.model_id} have other fingerprints than in the baseline: the "
                "case, the agent or model with its settings, or the run profile changed."
            )
        reused = sum(len(after.reused & before.prints) for before, after in common)
        if reused:
            yield _describe_reuse(model.model_id, reused, sum(len(after.prints) for _, after in common))
    pairs = [(old[key], new[key]) for key in new if key in old]
    yield from _describe_other_measures(model.model_id, pairs)
    yield from _describe_uneven(model.model_id, pairs, labels)
    yield from _describe_dropped(model, old, new, labels)
    for side, cases, counts in zip(labels, (old, new), model.runs, strict=True):
        if replayed := sum(case.replayed for case in cases.values()):
            yield (
                f"{replayed} of {counts.judged} judged runs of {model.model_id} in {side} were replayed from "
                "cassettes: their answers are as old as these."
            )
        if counts.errors:
            runs = count_text(counts.errors, "run")
            yield f"{runs} of {model.model_id} ended in infrastructure errors in {side} and count for nothing."


def unpaired(baseline: Campaign, current: Campaign, models: Sequence[ModelComparison]) -> str | None:
    """Return why no case could be compared, or None if at least one could."""
    if any(model.pass_rate.cases for model in models):
        return None
    if not models:
        there, here = (", ".join(side.models) or "no model" for side in (baseline, current))
        return f"no model is in both: it has {there}, {current.label} has {here}."
    if any(model.unjudged for model in models):
        return "no case that both have passed or failed on both sides."
    first = models[0]
    there, here = ((names or ("none",))[0] for names in (first.only_baseline, first.only_current))
    return (
        f"no case is in both, for example {there} there and {here} here; cases pair by node id, or by case id if their "
        "file or its root has moved."
    )


def _describe_reuse(model_id: str, reused: int, runs: int) -> str:
    sentence = f"{reused} of {runs} runs of {model_id} came from the store with the baseline's fingerprints"
    if reused < runs:
        return f"{sentence}: nothing that they depend on changed, so they are most likely the same runs."
    return (
        f"{sentence}: they are most likely the baseline's own runs, which cannot show a difference. Run again with "
        "--agentbench-no-reuse."
    )


def _describe_other_measures(model_id: str, pairs: Sequence[tuple[CaseRuns, CaseRuns]]) -> Iterator[str]:
    """Return sentences on differences between the two sides' checks, metrics and judges."""
    both = [(before, after) for before, after in pairs if before.judges and after.judges]
    for what, changed in (
        ("judge", sum(before.judges != after.judges for before, after in both)),
        ("rubric", sum(before.rubrics != after.rubrics for before, after in both)),
    ):
        if changed:
            yield (
                f"{changed} of {len(both)} judged cases of {model_id} have another {what} than in the baseline: that "
                "may explain a difference."
            )
    measured = [(before, after) for before, after in pairs if before.measures and after.measures]
    # A changed judge or rubric changes the measure too. It is reported above, so it is left out here.
    same_judged = [pair for pair in measured if pair[0].judges == pair[1].judges and pair[0].rubrics == pair[1].rubrics]
    if changed := sum(before.measures != after.measures for before, after in same_judged):
        yield (
            f"{changed} of {len(measured)} cases of {model_id} are not decided as in the baseline: their checks, "
            "metrics, thresholds, reference answers or evaluation profile changed; that may explain a difference."
        )


def _describe_uneven(
    model_id: str, pairs: Sequence[tuple[CaseRuns, CaseRuns]], labels: tuple[str, str]
) -> Iterator[str]:
    """Yield a sentence for each side on which cases were judged more often than on the other."""
    counts = [(before.counts.judged, after.counts.judged) for before, after in pairs]
    for more, label in enumerate(labels):
        uneven = [count for count in counts if count[1 - more] and count[more] > count[1 - more]]
        if uneven:
            example = " and ".join(f"{runs} in {side}" for runs, side in zip(uneven[0], labels, strict=True))
            yield (
                f"{len(uneven)} of {len(pairs)} cases of {model_id} were judged more often in {label}, for example "
                f"{example}: only as many of its runs are tested as the other side has, the first ones."
            )


def _describe_dropped(model: ModelComparison, old: Cases, new: Cases, labels: tuple[str, str]) -> Iterator[str]:
    """Yield which parameters the endpoint of one side alone did not take."""
    before, now = (frozenset().union(*(case.dropped for case in cases.values())) for cases in (old, new))
    for parameter in sorted(before ^ now):
        name, side = model.model_id, labels[1]
        if parameter in before:
            name, side = model.baseline_model_id, labels[0]
        yield f"{name} in {side} went without {parameter}, which its endpoint refused; the other side did not."


def _fingerprints(case: CaseRuns) -> frozenset[str]:
    return frozenset(fingerprint for _, fingerprint in case.prints)


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

    Cases with different node ids on both sides are paired by the store's rules (`pairing`). Models are paired by id; if
    each side has a single model, these are paired. Each case counts once, by the mean of its judged repetitions.
    Infrastructure errors and skips are left out and counted. If one side judged a case more often, only as many of its
    runs count as on the other side. The mean of many runs varies less than the mean of few, so without this rule
    positive and negative differences would not be equally likely under the null hypothesis, as the test assumes.
    """
    matched = _match_models(baseline, current)
    baseline, renamed = pair_renamed(baseline, current, matched)
    compared = [
        _compare_model(baseline.models[old], current.models[new], old, new, len(matched)) for old, new in matched
    ]
    models = tuple(_conclude(compared))
    return Comparison(
        baseline,
        current,
        models,
        only_baseline=tuple(model for model in baseline.models if model not in {old for old, _ in matched}),
        only_current=tuple(model for model in current.models if model not in {new for _, new in matched}),
        notes=(
            *notes(baseline, current, matched),
            *describe_renamed(renamed, baseline),
            *(note for model in models for note in model_notes(model, baseline, current)),
        ),
        unpaired=unpaired(baseline, current, models),
        max_regressions=max_regressions,
        min_completion=min_completion,
    )


def compare_columns(report: Mapping[str, Any]) -> list[ModelComparison]:
    """Return each column of a report against the one that `pair_columns` pairs it with, tested together."""
    if len(report["models"]) < 2:
        return []
    cases = build_campaign(report).models
    pairs = [(old.name, new.name) for old, new in pair_columns([*_list_columns(report, cases)])]
    compared = [_compare_model(cases[old], cases[new], old, new, len(pairs)) for old, new in pairs]
    return _conclude(compared, "variants" if report.get("variants") else "models")


def _list_columns(report: Mapping[str, Any], cases: Mapping[str, Cases]) -> Iterator[Column]:
    variants = report.get("variants", {})
    for entry in report["models"]:
        variant = entry.get("variant")
        # Variants in reports of earlier versions have no reference of their own
        reference = variants.get(variant, {}).get("reference", report.get("reference_variant"))
        yield Column(entry["model_id"], variant, reference, entry["scripted"], cases[column_of(entry)].keys())


def add_column_comparisons(report: dict[str, Any]) -> None:
    """Add `column_comparisons` to a report of several columns."""
    if compared := compare_columns(report):
        report["column_comparisons"] = [each.as_dict() for each in compared]


def _match_models(baseline: Campaign, current: Campaign) -> list[tuple[str, str]]:
    common = [(model, model) for model in current.models if model in baseline.models]
    if not common and len(baseline.models) == len(current.models) == 1:
        # A single model on each side: most comparisons rename the model or try another one.
        return [(*baseline.models, *current.models)]  # type: ignore[list-item]
    return common


def _compare_model(old: Cases, new: Cases, old_model: str, new_model: str, models: int) -> ModelComparison:
    """Return one model without its verdicts, which depend on the others'."""
    common = sorted(old.keys() & new.keys())  # in no file's order: what is drawn for the tests does not depend on it
    both = [(old[key], new[key]) for key in common]
    judged_pairs = _pair_judged(both)
    pairs = [(before.first(runs), after.first(runs)) for (before, after), runs in judged_pairs]
    # Holm compares the smallest p value with ALPHA / models. A model below this bound is significant on its own.
    alpha = paired.ALPHA / models
    rates = [(before.pass_rate, after.pass_rate) for before, after in pairs]
    single = all(runs == 1 for _, runs in judged_pairs)
    tested = {
        before.key: after_rate - before_rate
        for ((before, _), _), (before_rate, after_rate) in zip(judged_pairs, rates, strict=True)
    }
    changes = [
        _make_change(old[key], new[key], tested[key]) for key in new if key in old and _rates_differ(old[key], new[key])
    ]
    return ModelComparison(
        baseline_model_id=old_model,
        model_id=new_model,
        runs=(_sum_counts(old), _sum_counts(new)),
        only_baseline=tuple(key[0] for key in old if key not in new),
        only_current=tuple(key[0] for key in new if key not in old),
        unjudged=tuple(pair[0].key[0] for pair in both if not all(side.judged for side in pair)),
        pass_rate=_test_difference(rates, alpha, rate=True, single=single),
        score=_test_difference(_pair_values(pairs, SCORE), alpha),
        others={name: _measure_difference(_pair_values(pairs, name)) for name in _figure_names(pairs)},
        regressions=tuple(sorted((change for change in changes if change.difference < 0), key=_rank_change)),
        gains=tuple(sorted((change for change in changes if change.difference > 0), key=_rank_change)),
        by_chance=(),
        summary="",
    )


def compare_rates(old: Cases, new: Cases) -> Measure:
    """Return the tested difference of pass rates of two columns, as in their `ModelComparison`, and nothing else."""
    judged_pairs = _pair_judged([(old[key], new[key]) for key in sorted(old.keys() & new.keys())])
    if not judged_pairs:
        return Measure(cases=0)
    differences = [after.first(runs).pass_rate - before.first(runs).pass_rate for (before, after), runs in judged_pairs]
    if all(runs == 1 for _, runs in judged_pairs):
        test, p_value = _test_single_runs(differences)
        ends = single_run_interval(differences, p_value)
    else:
        test, p_value = sign_flip(differences)
        ends = rate_interval(differences)
    return Measure(
        cases=len(differences),
        difference=paired.mean_difference(differences),
        ci95=ends,
        test=test,
        p_value=p_value,
    )


def _pair_judged(both: Sequence[tuple[CaseRuns, CaseRuns]]) -> list[tuple[tuple[CaseRuns, CaseRuns], int]]:
    """Return the cases with a verdict on both sides, each with the number of runs that both sides have."""
    return [(pair, runs) for pair in both if (runs := min(len(side.judged) for side in pair))]


def _rates_differ(before: CaseRuns, after: CaseRuns) -> bool:
    rates = before.pass_rate, after.pass_rate
    return None not in rates and rates[0] != rates[1]


def _sum_counts(cases: Cases) -> Counts:
    every = [case.counts for case in cases.values()]
    fields = [(side.passed, side.failed, side.errors, side.skipped) for side in every]
    return Counts(*(reduce(add, column) for column in zip(*fields, strict=True)))


def _pair_values(pairs: Pairs, name: str) -> list[tuple[float, float]]:
    """Return a figure of the cases that have it on both sides."""
    return [
        (before.values[name], after.values[name])
        for before, after in pairs
        if name in before.values and name in after.values
    ]


def _figure_names(pairs: Pairs) -> list[str]:
    """Return the figures of either side but the score, in order of first appearance."""
    names = dict.fromkeys(name for pair in pairs for side in pair for name in side.values)
    return [name for name in names if name != SCORE]


def _measure_difference(values: Sequence[tuple[float, float]]) -> Measure:
    """Return means, difference and intervals; no interval for so few changed cases as can show nothing."""
    if not values:
        return Measure(cases=0)
    differences = [after - before for before, after in values]
    # A resample of differences that are nearly all 0 is 0 most of the time: its interval would look certain
    resampled = sum(map(bool, differences)) >= FEWEST_CHANGED
    return Measure(
        cases=len(values),
        baseline=mean_of([before for before, _ in values]),
        current=mean_of([after for _, after in values]),
        difference=paired.mean_difference(differences),
        ci95=difference_interval(differences),
        bootstrap_ci95=bootstrap_interval([(difference,) for difference in differences]) if resampled else None,
    )


def _test_difference(
    values: Sequence[tuple[float, float]], alpha: float, *, rate: bool = False, single: bool = False
) -> Measure:
    """Return the measure with its test and the detectable difference at `alpha`; `rate` marks pass rates."""
    measure = _measure_difference(values)
    if not values:
        return measure
    differences = [after - before for before, after in values]
    if single:
        test, p_value = _test_single_runs(differences)
        ends = single_run_interval(differences, p_value)
    else:
        test, p_value = sign_flip(differences)
        ends = rate_interval(differences) if rate else measure.ci95
    return replace(
        measure,
        ci95=ends,
        test=test,
        p_value=p_value,
        detectable=(paired.smallest_rate_difference if rate else paired.smallest_difference)(differences, alpha),
        cases_needed=paired.cases_needed(differences, alpha),
    )


def _test_single_runs(differences: Sequence[float]) -> tuple[str, float]:
    """Return the name and the p value of the test for cases with one run on each side."""
    worse = sum(difference < 0 for difference in differences)
    better = sum(difference > 0 for difference in differences)
    return paired.MCNEMAR, paired.mcnemar(worse, better)


def _rank_change(change: Change) -> tuple[bool, float]:
    """Return a sort key: cases that must pass first, then the largest change."""
    return not change.must_pass, -abs(change.difference)


def _make_change(before: CaseRuns, after: CaseRuns, tested: float) -> Change:
    assert before.pass_rate is not None
    assert after.pass_rate is not None
    old, new = before.counts, after.counts
    difference = after.pass_rate - before.pass_rate
    # A case got worse or better in some of its repetitions: the runs shown are those that differ.
    if difference < 0:
        baseline_run, current_run, failed = before.passed or before.failed, after.failed or after.passed, after.failed
    else:
        baseline_run, current_run, failed = before.failed or before.passed, after.passed or after.failed, before.failed
    # With one run on each side, p is 1 for any change.
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
        nodeid=_read_text(failed, "nodeid"),
        message=None if failed is None else (failed["message"] or "").partition("\n")[0][:_MESSAGE],
        question=_read_text(current_run, "question"),
        expected=_read_text(current_run, "expected"),
        baseline_answer=_read_text(baseline_run, "answer"),
        current_answer=_read_text(current_run, "answer"),
    )


def _read_text(run: Row | None, name: str) -> str | None:
    """Return a text of a run, None if it has none: runs in reports of earlier releases have no question or answer."""
    text: str | None = None if run is None else run.get(name)
    return text


def _conclude(models: Sequence[ModelComparison], plural: str = "models") -> list[ModelComparison]:
    """Return the verdicts, by p values that Holm adjusted over the models; pass rate and score are a family each.

    `plural` names the models in sentences.
    """
    rates = _adjust_measures([model.pass_rate for model in models])
    scores = _adjust_measures([model.score for model in models])
    concluded = [
        replace(model, pass_rate=rate, score=score) for model, rate, score in zip(models, rates, scores, strict=True)
    ]
    tested = sum(rate.p_value is not None for rate in rates)
    return [replace(_drop_chance(model), summary=summary(model, tested, plural)) for model in concluded]


def _drop_chance(model: ModelComparison) -> ModelComparison:
    """Return the model with only those changes as regressions and gains that the test supports.

    If the pass rate is significantly worse, the worse cases are regressions; if it is better, the better ones are
    gains. Otherwise a case needs its own significance: Fisher's test of its repetitions, adjusted (Holm) for all cases
    that could reach it. Cases that must pass are always named.
    """
    changes = [*model.regressions, *model.gains]
    alone = [change for change in changes if change.p_value is not None]
    # Cases with one run cannot be significant on their own, but they are looked through too, so Holm counts them.
    others = [1.0] * (model.pass_rate.cases - len(alone))
    adjusted = paired.holm([*(change.p_value or 0.0 for change in alone), *others])
    certain = {id(change) for change, p_value in zip(alone, adjusted, strict=False) if p_value <= paired.ALPHA}
    way = {WORSE: -1, BETTER: 1}.get(model.pass_rate.verdict or "", 0)

    def supported(change: Change) -> bool:
        # `tested` is of as many runs as both sides have, `difference` of all: the case must go the way by both
        by_all = way * change.tested > 0 and way * change.difference > 0
        return by_all or id(change) in certain or (change.must_pass and change.difference < 0)

    return replace(
        model,
        regressions=tuple(filter(supported, model.regressions)),
        gains=tuple(filter(supported, model.gains)),
        by_chance=tuple(change for change in changes if not supported(change)),
    )


def _adjust_measures(measures: Sequence[Measure]) -> list[Measure]:
    tested = [measure.p_value for measure in measures if measure.p_value is not None]
    adjusted = iter(paired.holm(tested))
    return [_decide_measure(measure, next(adjusted) if measure.p_value is not None else None) for measure in measures]


def _decide_measure(measure: Measure, p_adjusted: float | None) -> Measure:
    if p_adjusted is None or measure.difference is None:
        return replace(measure, verdict=NOTHING)
    if p_adjusted <= paired.ALPHA:
        return replace(
            measure, p_adjusted=p_adjusted, cases_needed=None, verdict=WORSE if measure.difference < 0 else BETTER
        )
    return replace(measure, p_adjusted=p_adjusted, verdict=UNCLEAR if measure.difference else SAME)
