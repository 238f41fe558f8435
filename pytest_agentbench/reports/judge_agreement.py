"""How far the judges of a session can be trusted: one entry of report.json's `judges[]` for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from pytest_agentbench.reports.gate import CaseKey, case_key, has_verdict
from pytest_agentbench.reports.judge_votes import Votes
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.statistics.agreement import cv_percent, krippendorff_alpha, pairwise_agreement, within_sd
from pytest_agentbench.statistics.estimates import mean, mean_of, pair, pass_rate_interval


class Judge(NamedTuple):
    """What one entry is of. Judges of one name differ where their hash does: another prompt, threshold or request."""

    source: str
    name: str
    model: str
    profile: str | None
    hash: str | None


class Asked(NamedTuple):
    """What a judge said of one run, and which case the run is of."""

    case: CaseKey
    votes: Votes


Panels = dict[tuple[str | None, str | None], list[dict[Judge, float]]]
"""By profile and its judges' hash, of each run that several of these scored, the mean score of each."""

_ALONE = "no run has two votes of it"
_EQUAL = "all votes are the same, so no disagreement is to be expected"


def judge_results(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one entry for each judge, in order of first appearance: how far its votes on the same run agree, and with
    others.

    Over the runs with a verdict. A figure that is undefined is null, and `reasons` says why.
    """
    asked: dict[Judge, list[Asked]] = defaultdict(list)
    panels: Panels = defaultdict(list)
    for row in filter(has_verdict, rows):
        scored: dict[Judge, float] = {}
        for votes in row.get("judge_votes", ()):
            judge = _judge_of(votes, row)
            asked[judge].append(Asked(case_key(row), votes))
            if judge.source == "judge" and (known := _known(votes)):
                scored[judge] = mean_of(known)
        if len(scored) > 1:
            first = next(iter(scored))
            panels[first.profile, first.hash].append(scored)
    return [_entry(judge, runs, panels) for judge, runs in asked.items()]


def family_warnings(rows: Iterable[Row]) -> list[str]:
    """Return a sentence for each judge that judged models of its own maker."""
    judged: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for row in rows:
        for votes in row.get("judge_votes", ()):
            if "same_family" in votes:
                judged[votes["same_family"], votes["model"]][row["model_id"]] = None
    return [
        f"{model} judges {', '.join(names)} of its own family ({family}): judges favour it; "
        "take a judge of another family, or several"
        for (family, model), names in judged.items()
    ]


def _judge_of(votes: Votes, row: Row) -> Judge:
    by = votes["judge"] if votes["source"] == "metric" else votes["source"]
    hashed = next((judged["judge"] for judged in row.get("judged", ()) if judged["by"] == by), None)
    return Judge(votes["source"], votes["judge"], votes["model"], votes["profile"], hashed)


def _entry(judge: Judge, asked: Sequence[Asked], panels: Panels) -> dict[str, Any]:
    runs = [each.votes for each in asked]
    units = [_known(votes) for votes in runs]
    repeated = sum(len(unit) > 1 for unit in units)
    alpha = krippendorff_alpha(units)
    thresholds = {votes["pass_at"] for votes in runs}
    bar = next(iter(thresholds)) if len(thresholds) == 1 else None
    known = [score for unit in units for score in unit]
    return {
        "judge": judge.name,
        "source": judge.source,
        "model": judge.model,
        "profile": judge.profile,
        "hash": judge.hash,
        "scripted": runs[0]["scripted"],
        "runs": len(runs),
        "repeated": repeated,
        "votes": len(known),
        "failed": sum(len(votes["scores"]) for votes in runs) - len(known),
        "same_family": sum("same_family" in votes for votes in runs),
        "mean_score": mean(known),
        "cv_percent": cv_percent(units),
        "spread": within_sd(units),
        "alpha": alpha,
        "agreement": None if bar is None else pairwise_agreement(units, lambda score: score >= bar),
        "order_swap": _order_swap(asked),
        "between": _between(judge, panels[judge.profile, judge.hash]) if judge.source == "judge" else None,
        "reasons": {} if alpha is not None else {"alpha": _EQUAL if repeated else _ALONE},
    }


def _known(votes: Votes) -> list[float]:
    return [score for score in votes["scores"] if score is not None]


def _between(judge: Judge, panel: Sequence[dict[Judge, float]]) -> dict[str, Any] | None:
    """Return how far this judge and those it sat with agree, over the runs that it and others scored; each judge's
    mean.
    """
    shared = [judges for judges in panel if judge in judges]
    if not shared:
        return None
    units = [list(judges.values()) for judges in shared]
    names = dict.fromkeys(f"{each.name} ({each.model})" for judges in shared for each in judges)
    alpha = krippendorff_alpha(units)
    return {
        "judges": list(names),
        "runs": len(shared),
        "alpha": alpha,
        "cv_percent": cv_percent(units),
        "reasons": {} if alpha is not None else {"alpha": _EQUAL},
    }


def _order_swap(asked: Sequence[Asked]) -> dict[str, Any] | None:
    """Return how often and how far verdicts differ between two orders of the same material. None where there was one
    order.

    Between shuffled orders, which have no first and second, differences have no sign.
    """
    ordered = [(case, list(_pairs(votes)), votes["order"]) for case, votes in asked if "order" in votes]
    together = [differs for _, pairs, _ in ordered for differs in pairs]
    if not together:
        return None
    of_case: dict[CaseKey, list[bool]] = defaultdict(list)
    for case, pairs, _ in ordered:
        of_case[case] += [change for change, _ in pairs]
    changed = [(sum(changes), len(changes)) for changes in of_case.values()]
    order = ordered[0][2]
    return {
        "order": order,
        "runs": sum(bool(pairs) for _, pairs, _ in ordered),
        "pairs": len(together),
        "changed": sum(count for count, _ in changed),
        "changed_rate": mean([float(change) for change, _ in together]),
        "changed_ci95": pair(pass_rate_interval(changed)),
        "mean_difference": mean([difference for _, difference in together]) if order == "swapped" else None,
        "mean_abs_difference": mean([abs(difference) for _, difference in together]),
    }


def _pairs(votes: Votes) -> Iterator[tuple[bool, float]]:
    """Of each two votes in different orders whether the verdict changed, and the first score less the second.

    Swapped ones come in pairs, the report first and second; a tie with the reference is a verdict of its own. Without
    a least score that is good there is no verdict to change.
    """
    scores, bar = votes["scores"], votes["pass_at"]
    if bar is None:
        return
    swapped = votes["order"] == "swapped"
    couples = list(pairwise(scores))[::2] if swapped else combinations(scores, 2)
    for one, other in couples:
        if one is not None and other is not None:
            verdicts = [((score > bar) - (score < bar) if swapped else score >= bar) for score in (one, other)]
            yield verdicts[0] != verdicts[1], one - other
