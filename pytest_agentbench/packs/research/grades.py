"""The grades of a research report: metrics with their thresholds, and the evidence that an evaluation keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from pytest_agentbench.models.pricing import Ledger
from pytest_agentbench.models.prompts import clip_middle
from pytest_agentbench.packs.research.business_report.figures import PoetRow
from pytest_agentbench.packs.research.config import PoetConfig
from pytest_agentbench.packs.research.efficiency import EfficiencyScore
from pytest_agentbench.packs.research.fact.rows import FactScore
from pytest_agentbench.packs.research.interaction import InteractionScore
from pytest_agentbench.packs.research.race_judging import RaceJudged
from pytest_agentbench.packs.research.records import (
    RACE_DIMENSIONS,
    CitedStatement,
    CriterionScore,
    Part,
    Report,
    ResearchScores,
    ResearchScoring,
    ResearchTask,
    StageCost,
)
from pytest_agentbench.packs.research.strategic import StrategicScore
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.evaluation import MetricResult
from pytest_agentbench.records.run import Usage

_NO_QUALITY = "the quality is not known: it takes RACE, and a citation that could be checked"


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a part came to nothing."""

    reason: str


@dataclass
class Found:
    """What each part came to; None where nobody asks for it."""

    race: RaceJudged | Failed | None
    fact: FactScore | Failed | None
    efficiency: EfficiencyScore | Failed | None
    strategic: StrategicScore | Failed | None
    interaction: InteractionScore | Failed | None
    poet: PoetRow | None = None

    def score(self, part: Part) -> Any:
        """Return what a part came to, None where that is nothing."""
        found = getattr(self, part)
        return None if isinstance(found, Failed) else found

    def why(self, part: Part) -> str | None:
        """Return why a part came to nothing; None where it did not."""
        found = getattr(self, part)
        if isinstance(found, Failed):
            return found.reason
        return "it is not among the parts that are scored" if found is None else None


Scores = Iterator[tuple[str, float | None, Mapping[str, Any]]]
"""Names and scores with their details, where there is no score the `reason` among them."""


def results(scoring: ResearchScoring, found: Found, usages: Mapping[Part, Usage]) -> list[MetricResult]:
    """Return a metric for each score of the parts that are asked for; one with an error for each part that failed.

    The score that stands for a part tells what judging it has used, of `usages`.
    """
    made: list[MetricResult] = []
    for part in scoring.parts:
        main, failed = _MAIN[part], getattr(found, part)
        scores = [(main, None, {})] if isinstance(failed, Failed) else _SCORES[part](found)
        for name, score, details in scores:
            least = scoring.thresholds.get(name)
            made.append(
                MetricResult(
                    name=name,
                    score=score,
                    threshold=least,
                    passed=None if least is None else score is not None and score >= least,
                    error=failed.reason if isinstance(failed, Failed) else None,
                    details=dict(details),
                    usage=usages.get(part) if name == main else None,
                )
            )
    return made


def _race(found: Found) -> Scores:
    race = found.score("race")
    none = {"reason": "the report and its reference have 0 points both"}
    draws = [draw.overall for draw in race.draws]
    yield "race", race.overall, {"draws": draws} if race.overall is not None else none
    for name in RACE_DIMENSIONS:
        yield f"race_{name}", race.dimensions[name], {} if race.dimensions[name] is not None else none
    yield "race_weighted_dims", race.weighted_dimensions, {} if race.weighted_dimensions is not None else none
    if race.sd is not None:
        yield "race_sd", race.sd, {}


def _fact(found: Found) -> Scores:
    counts = found.score("fact").counts
    labels = {"supported": counts.supported, "unsupported": counts.unsupported, "unknown": counts.unknown}
    none = {} if counts.known else {"reason": "no citation could be checked" if counts.total else "it has no citations"}
    yield "fact_accuracy", counts.accuracy, {**labels, **none}
    yield "fact_citations", float(counts.known), {}
    yield "fact_valid_citations", float(counts.supported), {}
    rich = counts.per_1000_words
    yield "fact_supported_per_1000_words", rich, {"words": counts.words} if rich is not None else _lacks("words")


def _efficiency(found: Found) -> Scores:
    work, row = found.score("efficiency"), found.poet
    for name, field in _OF_EFFICIENCY.items():
        score, reason = getattr(work, field), work.reasons.get(field)
        yield name, score, {} if score is not None else {"reason": reason or "not recorded"}
    per_token = row.resource_efficiency if row is not None else None
    yield "resource_efficiency", per_token, {} if per_token is not None else {"reason": _no_rate(row)}


def _no_rate(row: PoetRow | None) -> str:
    if row is None or row.quality_score is None:
        return _NO_QUALITY
    return "execution_metrics.token_usage has no numbers of tokens"


def _strategic(found: Found) -> Scores:
    strategic, row = found.score("strategic"), found.poet
    yield "strategic", strategic.strategic_score, {"scores": strategic.scores}
    adapted = row.complexity_adaptability if row is not None else None
    short = row is not None and row.quality_score is not None
    reason = "an expert takes less than half an hour, or no efficiency is scored" if short else _NO_QUALITY
    yield "complexity_adaptability", adapted, {} if adapted is not None else {"reason": reason}
    drawn = {"reused": len(strategic.reused), "repeated": strategic.repeated, "below_quality": strategic.below_quality}
    yield "knowledge_units", float(len(strategic.created)), drawn
    yield "knowledge_creation_value", strategic.knowledge_creation_value, {}


def _interaction(found: Found) -> Scores:
    web = found.score("interaction")
    score = web.efficiency["overall_efficiency"]
    details: dict[str, Any] = {"efficiency": web.efficiency, "strategic": web.strategic}
    if score is None:
        details["reason"] = f"not recorded: {', '.join(web.missing)}"
    yield "interaction_efficiency", score, details


def _poet(found: Found) -> Scores:
    row = found.poet
    assert row is not None
    why = [(part, f"{part}: {reason}") for part, reason in row.reasons.items()]
    of_quality = [reason for part, reason in why if part in ("race", "fact")]
    yield "quality", row.quality_score, {} if row.quality_score is not None else {"reason": _said(of_quality)}
    score = row.overall_poet_score
    yield "poet", score, {} if score is not None else {"reason": _said(reason for _, reason in why)}


def _said(reasons: Iterable[str]) -> str:
    return "; ".join(reasons) or _NO_QUALITY


def _lacks(what: str) -> dict[str, str]:
    return {"reason": f"the report has no {what}"}


_OF_EFFICIENCY = {
    "efficiency": "efficiency_score",
    "time_saving": "time_saving",
    "cost_saving_usd": "cost_saving_usd",
    "automation": "automation_rate",
}
_MAIN: dict[Part, str] = {
    "race": "race",
    "fact": "fact_accuracy",
    "efficiency": "efficiency",
    "strategic": "strategic",
    "interaction": "interaction_efficiency",
    "poet": "poet",
}
"""The score that stands for a part that failed."""
_SCORES = {
    "race": _race,
    "fact": _fact,
    "efficiency": _efficiency,
    "strategic": _strategic,
    "interaction": _interaction,
    "poet": _poet,
}


_MOST_CRITERIA = 100
_MOST_STATEMENTS = 300
_LONGEST = 500


def evidence(
    task: ResearchTask, report: Report, found: Found, config: PoetConfig, ledger: Ledger, judge: Model | None
) -> ResearchScores:
    """Return the evidence of the parts that came to something, and what judging all of them took.

    `judge` is the model that was asked, None where none was.
    """
    statements = list(_statements(found))
    strategic = found.score("strategic")
    return ResearchScores(
        row_id=task.row_id,
        model=report.model,
        language=report.language,
        domain=task.domain,
        complexity_level=task.complexity_level,
        execution_metrics=report.metrics,
        criteria=tuple(islice(_criteria(found), _MOST_CRITERIA)),
        statements=tuple(statements[:_MOST_STATEMENTS]),
        statements_left_out=max(0, len(statements) - _MOST_STATEMENTS),
        strategic={
            name: (score, clip_middle(strategic.score_reasons.get(name, ""), _LONGEST))
            for name, score in (strategic.scores if strategic is not None else {}).items()
        },
        knowledge=tuple(
            (clip_middle(each.text, _LONGEST), each.quality) for each in (strategic.created if strategic else ())
        ),
        summary=found.poet.model_dump(mode="json") if found.poet is not None else None,
        config=config.model_dump(mode="json", exclude_defaults=True),
        compat=task.scoring.compat,
        judge={stage: StageCost(**asdict(spent)) for stage, spent in ledger.stages.items() if spent.requests},
        judge_model=judge and judge.requested_model,
        judge_scripted=judge is not None and judge.scripted,
    )


def _criteria(found: Found) -> Iterator[CriterionScore]:
    race = found.score("race")
    for name, scored in (race.scored[0] if race is not None else {}).items():
        for each in scored:
            yield CriterionScore(
                dimension=name,
                criterion=clip_middle(each.criterion, _LONGEST),
                target=each.target,
                reference=each.reference,
                analysis=clip_middle(each.analysis, _LONGEST),
            )


def _statements(found: Found) -> Iterator[CitedStatement]:
    fact = found.score("fact")
    for url, page in (fact.pages if fact is not None else {}).items():
        for verdict in page.validate_res or ():
            text = clip_middle(page.facts[verdict.idx], _LONGEST)
            yield CitedStatement(url=clip_middle(url, _LONGEST), fact=text, label=verdict.result)
