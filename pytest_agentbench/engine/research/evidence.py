"""What the scores of a research report rest on, as an evaluation keeps it: bounded, however long the report is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice

from pytest_agentbench.config.poet_config import PoetConfig
from pytest_agentbench.engine.research.results import Found
from pytest_agentbench.models import Ledger, clipped
from pytest_agentbench.records import CitedStatement, CriterionScore, Model, ResearchScores, ResearchTask, StageCost
from pytest_agentbench.research.report import Report

_MOST_CRITERIA = 100
_MOST_STATEMENTS = 300
_LONGEST = 500


def evidence(
    task: ResearchTask, report: Report, found: Found, config: PoetConfig, ledger: Ledger, judge: Model | None
) -> ResearchScores:
    """The evidence of the parts that came to something, and what judging all of them took.

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
            name: (score, clipped(strategic.score_reasons.get(name, ""), _LONGEST))
            for name, score in (strategic.scores if strategic is not None else {}).items()
        },
        knowledge=tuple(
            (clipped(each.text, _LONGEST), each.quality) for each in (strategic.created if strategic else ())
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
                criterion=clipped(each.criterion, _LONGEST),
                target=each.target,
                reference=each.reference,
                analysis=clipped(each.analysis, _LONGEST),
            )


def _statements(found: Found) -> Iterator[CitedStatement]:
    fact = found.score("fact")
    for url, page in (fact.pages if fact is not None else {}).items():
        for verdict in page.validate_res or ():
            text = clipped(page.facts[verdict.idx], _LONGEST)
            yield CitedStatement(url=clipped(url, _LONGEST), fact=text, label=verdict.result)
