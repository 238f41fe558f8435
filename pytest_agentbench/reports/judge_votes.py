"""What each judge said of one run, iteration by iteration (`judge_votes`), and which models come from one maker."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from pytest_agentbench.records.case import Case, Model
from pytest_agentbench.records.evaluation import Evaluation, JudgeIteration, JudgeResult, MetricResult
from pytest_agentbench.reports.sections import sections_of
from pytest_agentbench.reports.text import sendable
from pytest_agentbench.statistics.estimates import finite

# Which models come from one maker: judges favour answers of their own family.
#
# Panickssery et al. 2024, "LLM Evaluators Recognize and Favor Their Own Generations", arXiv:2404.13076; for the family
# rather than the model Verga et al. 2024, "Replacing Judges with Juries", arXiv:2404.18796.


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
"""What the models of a maker are called. Words of other uses, such as nova, count with what follows them only."""
_PATTERNS = {maker: re.compile(rf"(?<![a-z0-9])(?:{names})(?![a-z])") for maker, names in _NAMES.items()}
_TUNED = re.compile(r"\bft:([^:]+)")
"""The base model of OpenAI's tunes, `ft:gpt-4o:organisation:name:id`: what follows it is free text."""


@cache
def families(model_name: str) -> frozenset[str]:
    """Return the makers of the models that a model's name names, as its endpoint knows it, with or without a vendor's
    prefix.

    Several for one model made from another, as `deepseek-r1-distill-llama-70b` is; none where the name says nothing.
    """
    name = model_name.lower()
    base = _TUNED.search(name)
    plain = re.sub(r"[^a-z0-9]+", "-", base[1] if base else name)
    return frozenset(maker for maker, names in _PATTERNS.items() if names.search(plain))


def common_family(one: str, other: str) -> str | None:
    """Return the maker that two models share, or the name of one that is both; None where they share none, as far as
    known.
    """
    return min(families(one) & families(other), default=one if one == other else None)


Votes = dict[str, Any]

_ASKS_FOR_VOTES = "llm_judgement"
_EVEN = 0.5
"""Between the two verdicts on an answer."""


def votes_row(case: Case, model: Model | str, evaluation: Evaluation | None) -> dict[str, list[Votes]]:
    """`judge_votes`, where any judge was asked: those of the profile, of metrics that take votes, and of graders.

    `model` is what was judged, a name where that is no model. Each entry has the `judge` (judge run, metric, or what
    the grader calls it), its `source`, `model` and `profile`, whether it is `scripted`, the `scores` of its iterations,
    null for one that failed, and `pass_at`, the least score that is good. `order` says that the iterations saw what
    they judge in different orders: `shuffled` each in its own, `swapped` by turns the report first and its reference
    first. `same_family` is the maker of judge and judged, where they share it and neither is scripted.
    """
    if evaluation is None:
        return {}
    found = [
        *(_of_judges(evaluation.judge) if evaluation.judge is not None else ()),
        *_of_metrics(evaluation.metrics),
        *_of_sections(case, evaluation),
    ]
    judged = model.requested_model if isinstance(model, Model) and not model.scripted else None
    for votes in found:
        votes["profile"] = evaluation.evaluation_profile_id
        family = common_family(judged, votes["model"]) if judged and votes["model"] and not votes["scripted"] else None
        if family is not None:
            votes["same_family"] = family
    return {"judge_votes": found} if found else {}


def named(results: Iterable[MetricResult]) -> Iterator[tuple[str, MetricResult]]:
    """Metrics by the names of their scores: one that is used twice (with other arguments) is `name`, `name-2`, ..."""
    taken: set[str] = set()
    for result in results:
        name, used = sendable(result.name), 1
        while name in taken:
            used += 1
            name = f"{sendable(result.name)}-{used}"
        taken.add(name)
        yield name, result


def _of_judges(judged: JudgeResult) -> Iterator[Votes]:
    from pytest_agentbench.judging.verdicts import bar_of

    by_judge: dict[tuple[str, str], list[JudgeIteration]] = {}
    for iteration in judged.iterations:
        by_judge.setdefault((iteration.judge_run_id, iteration.model), []).append(iteration)
    for (judge, model), iterations in by_judge.items():
        scores = [None if each.verdict is None else each.verdict.overall.score for each in iterations]
        votes = _votes(judge, "judge", model, iterations[0].scripted, scores, bar_of(judged.pass_threshold))
        yield votes | ({"order": "shuffled"} if len(iterations) > 1 and iterations[0].shuffled else {})


def _of_metrics(results: Iterable[MetricResult]) -> Iterator[Votes]:
    for name, result in named(results):
        details = result.details
        if result.name == _ASKS_FOR_VOTES and details.get("votes"):
            scores: list[float | None] = [float(vote["correct"]) for vote in details["votes"]]
            scores += [None] * details["failed"]
            yield _votes(name, "metric", details["model"], details.get("scripted", False), scores, _EVEN)


def _of_sections(case: Case, evaluation: Evaluation) -> Iterator[Votes]:
    for section in sections_of(case, evaluation).values():
        for votes in section.votes(case, evaluation):
            named = {name: votes[name] for name in ("judge", "source", "model", "scripted", "pass_at")}
            yield {**votes, **_votes(**named, scores=[*votes["scores"]])}


def _votes(
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
