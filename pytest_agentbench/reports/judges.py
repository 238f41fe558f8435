"""Votes of judges on a run (`judge_votes` of its row), and the reliability of each judge (report.json's `judges`)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from pytest_agentbench.records.case import Case, Model
from pytest_agentbench.records.evaluation import Evaluation, JudgeIteration, JudgeResult, MetricResult
from pytest_agentbench.reports.gate import CaseKey, case_key, has_verdict
from pytest_agentbench.reports.sections import sections_of
from pytest_agentbench.statistics.estimates import finite, mean, mean_of, pair, pass_rate_interval
from pytest_agentbench.terminal_text import sendable

_NAMES = {
    "OpenAI": r"gpt(?!-j|-neo|-sw|-?4all)|chatgpt|o\d(?!\d)|codex|davinci",
    "Anthropic": "claude",
    "Google": r"gemini|(code|med)?gemma|palm-?2|learnlm",
    "Meta": r"llama(?!-index|-cpp)|codellama",
    "Mistral AI": "mi(s|x|nis)tral|magistral|(code|dev|math)stral|(pix|vox)tral",
    "Alibaba": "(code)?qwen|qwq|qvq",
    "DeepSeek": "deepseek",
    "xAI": "grok",
    "Cohere": r"command-(r|a|light|nightly)|c4ai|aya-(expanse|vision|\d)",
    "Microsoft": r"phi-?\d|wizardlm",
    "Amazon": r"nova-(micro|lite|pro|premier|\d)|titan-(text|embed)",
    "Zhipu AI": r"(chat)?glm-?\d|codegeex",
    "Moonshot AI": "kimi|moonshot",
    "MiniMax": r"minimax|abab\d",
    "Baidu": "ernie",
    "Tencent": "hunyuan",
    "ByteDance": r"doubao|seed-(oss|\d)",
    "01.AI": r"yi-?(\d|large|lightning|medium|spark|vision)",
    "NVIDIA": "nemotron",
    "IBM": r"granite-?\d",
    "AI21": "jamba",
    "Perplexity": r"sonar(?=$|-pro|-reasoning|-deep)",
    "Ai2": "olmo|molmo|tulu",
    "LG AI Research": "exaone",
    "Shanghai AI Laboratory": "internlm",
    "Baichuan": "baichuan",
}
"""Name patterns of each maker's models. Words with other uses, such as nova, count only with a known suffix."""
_PATTERNS = {maker: re.compile(rf"(?<![a-z0-9])(?:{names})(?![a-z])") for maker, names in _NAMES.items()}
_TUNED = re.compile(r"\bft:([^:]+)")
"""Base model in a name of OpenAI's fine-tunes, `ft:gpt-4o:organisation:name:id`; the rest is free text."""


@cache
def families(model_name: str) -> frozenset[str]:
    """Return the makers of the models in a model's name, with or without a vendor's prefix.

    A model made from another has several (`deepseek-r1-distill-llama-70b`); an unknown name has none.
    Judges favour answers of their own family: Panickssery et al. 2024, "LLM Evaluators Recognize and Favor Their Own
    Generations", arXiv:2404.13076; for the family rather than the model Verga et al. 2024, "Replacing Judges with
    Juries", arXiv:2404.18796.
    """
    name = model_name.lower()
    # Only the base model of a tune: the organisation and name behind it may name any maker
    base = _TUNED.search(name)
    plain = re.sub(r"[^a-z0-9]+", "-", base[1] if base else name)
    return frozenset(maker for maker, names in _PATTERNS.items() if names.search(plain))


def common_family(one: str, other: str) -> str | None:
    """Return the maker that two models share, or their name if it is the same model, or None if unknown."""
    return min(families(one) & families(other), default=one if one == other else None)


Votes = dict[str, Any]

_ASKS_FOR_VOTES = "llm_judgement"
_EVEN = 0.5
"""Between the two verdicts on an answer."""


def votes_row(
    case: Case, model: Model | str, evaluation: Evaluation, metrics: Iterable[tuple[str, MetricResult]]
) -> dict[str, list[Votes]]:
    """Return `judge_votes` of the judges of the profile, of voting metrics and of graders, or {} if none was asked.

    `model` is the judged model, or a name for an own agent; `metrics` come with the names of their scores. Each entry
    has the `judge` (judge run, metric, or the grader's name for it), its `source`, `model` and `profile`, whether it is
    `scripted`, the `scores` of its iterations (null for a failed one), and `pass_at`, the minimum good score. `order`
    is set if the iterations saw the answers in different orders: `shuffled` (random in each), or `swapped` (alternately
    the report and its reference first). `same_family` is the maker of judge and judged model, if they share it and
    neither is scripted.
    """
    entries = [
        *_judge_votes(evaluation.judge),
        *_metric_votes(metrics),
        *_section_votes(case, evaluation),
    ]
    # A scripted model has no maker, even if its name contains one.
    judged = ""
    if isinstance(model, Model) and not model.scripted:
        judged = model.requested_model
    for votes in entries:
        votes["profile"] = evaluation.evaluation_profile_id
        have_makers = judged and votes["model"] and not votes["scripted"]
        if have_makers and (family := common_family(judged, votes["model"])) is not None:
            votes["same_family"] = family
    if entries:
        return {"judge_votes": entries}
    return {}


def _judge_votes(judged: JudgeResult | None) -> Iterator[Votes]:
    if judged is None:
        return
    from pytest_agentbench.judging.verdicts import bar_of

    by_judge: dict[tuple[str, str], list[JudgeIteration]] = {}
    for iteration in judged.iterations:
        by_judge.setdefault((iteration.judge_run_id, iteration.model), []).append(iteration)
    for (judge, model), iterations in by_judge.items():
        scores = [None if each.verdict is None else each.verdict.overall.score for each in iterations]
        votes = _make_votes(judge, "judge", model, iterations[0].scripted, scores, bar_of(judged.pass_threshold))
        if len(iterations) > 1 and iterations[0].shuffled:
            votes["order"] = "shuffled"
        yield votes


def _metric_votes(metrics: Iterable[tuple[str, MetricResult]]) -> Iterator[Votes]:
    for name, result in metrics:
        details = result.details
        if result.name == _ASKS_FOR_VOTES and details.get("votes"):
            scores: list[float | None] = [float(vote["correct"]) for vote in details["votes"]]
            scores += [None] * details["failed"]
            yield _make_votes(name, "metric", details["model"], details.get("scripted", False), scores, _EVEN)


def _section_votes(case: Case, evaluation: Evaluation) -> Iterator[Votes]:
    for section in sections_of(case, evaluation).values():
        for votes in section.votes(case, evaluation):
            stated = {name: votes[name] for name in ("judge", "source", "model", "scripted", "pass_at")}
            yield {**votes, **_make_votes(**stated, scores=[*votes["scores"]])}


def _make_votes(
    judge: str, source: str, model: str, scripted: bool, scores: list[float | None], pass_at: float | None
) -> Votes:
    return {
        "judge": sendable(judge),
        "source": source,
        "model": sendable(model),
        "scripted": scripted,
        "scores": [finite(score) for score in scores],
        "pass_at": pass_at,
    }


class Judge(NamedTuple):
    """Identity of a judge. Judges of one name differ where their hash does: another prompt, threshold or request."""

    source: str
    name: str
    model: str
    profile: str | None
    hash: str | None


class JudgedRun(NamedTuple):
    """Votes of a judge on one run, and the case that the run is of."""

    case: CaseKey
    votes: Votes


Panels = dict[tuple[str | None, str | None], list[dict[Judge, float]]]
"""By profile and its judges' hash, of each run that several of these scored, the mean score of each."""

_ALONE = "no run has two votes of it"
_EQUAL = "all votes are the same, so no disagreement is to be expected"


def judge_results(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry for each judge, in order of first appearance: its votes' agreement with each other and with
    others.

    Runs without a verdict are left out. An undefined figure is null, with an entry in `reasons`.
    """
    runs_by_judge: dict[Judge, list[JudgedRun]] = defaultdict(list)
    panels: Panels = defaultdict(list)
    for row in filter(has_verdict, rows):
        scored: dict[Judge, float] = {}
        for votes in row.get("judge_votes", ()):
            judge = _judge_of(votes, row)
            runs_by_judge[judge].append(JudgedRun(case_key(row), votes))
            if judge.source == "judge" and (scores := _known_scores(votes)):
                # One score for each judge: one that votes three times would outvote those that vote once
                scored[judge] = mean_of(scores)
        if len(scored) > 1:
            first = next(iter(scored))
            panels[first.profile, first.hash].append(scored)
    return [_judge_entry(judge, runs, panels) for judge, runs in runs_by_judge.items()]


def family_warnings(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each judge that judged models of its own maker."""
    judged: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for row in rows:
        for votes in row.get("judge_votes", ()):
            if "same_family" in votes:
                judged[votes["same_family"], votes["model"]][row["model_id"]] = None
    return [
        f"{model} judges {', '.join(names)} of the same family ({family}): judges favour it; "
        "use a judge of another family, or several"
        for (family, model), names in judged.items()
    ]


def _judge_of(votes: Votes, row: Mapping[str, Any]) -> Judge:
    by = votes["judge"] if votes["source"] == "metric" else votes["source"]
    hashed = next((judged["judge"] for judged in row.get("judged", ()) if judged["by"] == by), None)
    return Judge(votes["source"], votes["judge"], votes["model"], votes["profile"], hashed)


def _judge_entry(judge: Judge, judged_runs: Sequence[JudgedRun], panels: Panels) -> dict[str, Any]:
    runs = [judged_run.votes for judged_run in judged_runs]
    units = [_known_scores(votes) for votes in runs]
    repeated = sum(len(unit) > 1 for unit in units)
    thresholds = {votes["pass_at"] for votes in runs}
    agreement = _vote_agreement(units, next(iter(thresholds)) if len(thresholds) == 1 else None)
    scores = [score for unit in units for score in unit]
    return {
        "judge": judge.name,
        "source": judge.source,
        "model": judge.model,
        "profile": judge.profile,
        "hash": judge.hash,
        "scripted": runs[0]["scripted"],
        "runs": len(runs),
        "repeated": repeated,
        "votes": len(scores),
        "failed": sum(len(votes["scores"]) for votes in runs) - len(scores),
        "same_family": sum("same_family" in votes for votes in runs),
        "mean_score": mean(scores),
        **agreement,
        "order_swap": _order_swap(judged_runs),
        "between": _panel_agreement(judge, panels[judge.profile, judge.hash]),
        "reasons": {} if agreement["alpha"] is not None else {"alpha": _EQUAL if repeated else _ALONE},
    }


def _vote_agreement(units: Sequence[Sequence[float]], bar: float | None) -> dict[str, float | None]:
    """Return how far votes on the same runs agree; `bar` is the minimum good score, if the judge has one."""
    if all(len(unit) < 2 for unit in units):  # of most sessions: there is nothing to compute, and to import
        return dict.fromkeys(("cv_percent", "spread", "alpha", "agreement"))
    from pytest_agentbench.statistics.agreement import cv_percent, krippendorff_alpha, pairwise_agreement, within_sd

    return {
        "cv_percent": cv_percent(units),
        "spread": within_sd(units),
        "alpha": krippendorff_alpha(units),
        "agreement": None if bar is None else pairwise_agreement(units, lambda score: score >= bar),
    }


def _known_scores(votes: Votes) -> list[float]:
    return [score for score in votes["scores"] if score is not None]


def _panel_agreement(judge: Judge, panel: Sequence[dict[Judge, float]]) -> dict[str, Any] | None:
    """Return the agreement of a judge's panel by each judge's mean, over shared runs; None if it is in no panel."""
    shared = [judges for judges in panel if judge in judges]
    if not shared:
        return None
    units = [list(judges.values()) for judges in shared]
    names = dict.fromkeys(f"{member.name} ({member.model})" for judges in shared for member in judges)
    agreement = _vote_agreement(units, None)
    return {
        "judges": list(names),
        "runs": len(shared),
        "alpha": agreement["alpha"],
        "cv_percent": agreement["cv_percent"],
        "reasons": {} if agreement["alpha"] is not None else {"alpha": _EQUAL},
    }


def _order_swap(judged_runs: Sequence[JudgedRun]) -> dict[str, Any] | None:
    """Return how often and how far verdicts differ between two orders of the same material; None for one order.

    Between shuffled orders, which have no first and second, differences have no sign.
    """
    ordered = [(case, list(_ordered_pairs(votes)), votes["order"]) for case, votes in judged_runs if "order" in votes]
    together = [differs for _, pairs, _ in ordered for differs in pairs]
    if not together:
        return None
    of_case: dict[CaseKey, list[bool]] = defaultdict(list)
    for case, pairs, _ in ordered:
        of_case[case] += [change for change, _ in pairs]
    # By case: pairs of one case resemble each other, as its repetitions do
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


def _ordered_pairs(votes: Votes) -> Iterator[tuple[bool, float]]:
    """Yield for each two votes in different orders whether the verdict changed, and the difference of the scores.

    Swapped votes come in pairs, the report first and second; a tie with the reference is a third verdict. Without a
    minimum good score there is no verdict to change.
    """
    scores, bar = votes["scores"], votes["pass_at"]
    if bar is None:
        return
    swapped = votes["order"] == "swapped"
    # First with second, third with fourth: the second and the third are of two pairs
    couples = list(pairwise(scores))[::2] if swapped else combinations(scores, 2)
    for one, other in couples:
        if one is not None and other is not None:
            verdicts = [((score > bar) - (score < bar) if swapped else score >= bar) for score in (one, other)]
            yield verdicts[0] != verdicts[1], one - other
