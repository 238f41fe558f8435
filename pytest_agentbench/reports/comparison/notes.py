"""What a reader of a comparison has to know beside its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_agentbench.reports.comparison.campaigns import Campaign, CaseRuns

if TYPE_CHECKING:
    from pytest_agentbench.reports.comparison.results import ModelComparison


_BY_OUTCOME = ("--lf", "--last-failed", "--sw", "--stepwise", "--sw-skip", "--stepwise-skip")


def notes(baseline: Campaign, current: Campaign, matched: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Sentences about both sides as a whole."""
    for old, new in matched:
        if old != new and (baseline.model is None or current.model is None):
            yield f"{new} is compared with {old}, the only model of {baseline.label}."
    for old, new in matched:
        if (old in baseline.scripted) != (new in current.scripted):
            scripted, model = (baseline, old) if old in baseline.scripted else (current, new)
            yield f"{model} of {scripted.label} answered from scripts: it is no model."
    for side in (baseline, current):
        if chosen := [option for option in side.command if option in _BY_OUTCOME]:
            yield (
                f"The cases of {side.label} were chosen by how they ended before ({chosen[0]}): whatever is said of "
                "the difference here holds for no other cases, and failed ones may pass by chance alone."
            )
    for kind in dict.fromkeys([*baseline.profiles, *current.profiles]):
        before, now = baseline.profiles.get(kind), current.profiles.get(kind)
        if before != now:
            what = kind if kind == "suite" else f"{kind} profile"
            yield f"The {what} differs: {before or 'none'} in {baseline.label}, {now or 'none'} in {current.label}."


def model_notes(model: ModelComparison, baseline: Campaign, current: Campaign) -> Iterator[str]:
    """Sentences about one model: what was left out, and whether both sides ran the same."""
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
        taken = sum(len(after.reused & before.prints) for before, after in common)
        if taken:
            yield _reused(model.model_id, taken, sum(len(after.prints) for _, after in common))
    pairs = [(old[key], new[key]) for key in new if key in old]
    yield from _other_measures(model.model_id, pairs)
    yield from _uneven(model.model_id, pairs, labels)
    for side, cases, counts in zip(labels, (old, new), model.runs, strict=True):
        if replayed := sum(case.replayed for case in cases.values()):
            yield (
                f"{replayed} of {counts.judged} judged runs of {model.model_id} in {side} were replayed from "
                "cassettes: their answers are as old as these."
            )
        if counts.errors:
            runs = "1 run" if counts.errors == 1 else f"{counts.errors} runs"
            yield f"{runs} of {model.model_id} ended in infrastructure errors in {side} and count for nothing."


def unpaired(baseline: Campaign, current: Campaign, models: Sequence[ModelComparison]) -> str | None:
    """Why not a single case could be compared, None where one was."""
    if any(model.pass_rate.cases for model in models):
        return None
    if not models:
        there, here = (", ".join(side.models) or "no model" for side in (baseline, current))
        return f"no model is in both: it has {there}, {current.label} has {here}."
    if any(model.unjudged for model in models):
        return "no case that both have passed or failed on both sides."
    first = models[0]
    there, here = (names[0] if names else "none" for names in (first.only_baseline, first.only_current))
    return (
        f"no case is in both, for example {there} there and {here} here; cases pair by node id, so start both sessions "
        "in the same folder."
    )


def _reused(model_id: str, taken: int, runs: int) -> str:
    came = f"{taken} of {runs} runs of {model_id} came from the store with the baseline's fingerprints"
    if taken < runs:
        return f"{came}: nothing that they depend on changed, so they are most likely the same runs."
    return (
        f"{came}: they are most likely the baseline's own runs, and say nothing about a difference. Run again with "
        "--agentbench-no-reuse."
    )


def _other_measures(model_id: str, pairs: Sequence[tuple[CaseRuns, CaseRuns]]) -> Iterator[str]:
    """Sentences on what the cases on both sides are measured by, where it is not the same."""
    both = [(before, after) for before, after in pairs if before.judges and after.judges]
    for what, changed in (
        ("judge", sum(before.judges != after.judges for before, after in both)),
        ("rubric", sum(before.rubrics != after.rubrics for before, after in both)),
    ):
        if changed:
            yield (
                f"{changed} of {len(both)} judged cases of {model_id} have another {what} than in the baseline: what "
                "differs may be that."
            )
    measured = [(before, after) for before, after in pairs if before.measures and after.measures]
    same_judged = [each for each in measured if each[0].judges == each[1].judges and each[0].rubrics == each[1].rubrics]
    if changed := sum(before.measures != after.measures for before, after in same_judged):
        yield (
            f"{changed} of {len(measured)} cases of {model_id} are not decided as in the baseline: their checks, "
            "metrics, thresholds or reference answers changed, or the evaluation profile; what differs may be that."
        )


def _uneven(model_id: str, pairs: Sequence[tuple[CaseRuns, CaseRuns]], labels: tuple[str, str]) -> Iterator[str]:
    """A sentence for each side on which cases were judged more often than on the other."""
    counts = [(before.counts.judged, after.counts.judged) for before, after in pairs]
    for more, label in enumerate(labels):
        found = [each for each in counts if each[1 - more] and each[more] > each[1 - more]]
        if found:
            example = " and ".join(f"{runs} in {side}" for runs, side in zip(found[0], labels, strict=True))
            yield (
                f"{len(found)} of {len(pairs)} cases of {model_id} were judged more often in {label}, for example "
                f"{example}: only as many of its runs are tested as the other side has, the first ones."
            )


def _fingerprints(case: CaseRuns) -> frozenset[str]:
    return frozenset(fingerprint for _, fingerprint in case.prints)
