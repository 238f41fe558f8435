"""RACE: a judge compares a report with the reference, criterion by criterion, or scores it alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import stdev
from typing import Annotated, Any

from pydantic import Field, create_model

from pytest_agentbench.judging import InvalidReply, structured
from pytest_agentbench.models import ReplyPart, read_json
from pytest_agentbench.records import RACE_DIMENSIONS, Language, RaceCriteria, RaceDimension
from pytest_agentbench.research.asking import Asking
from pytest_agentbench.research.prompting import stage_messages
from pytest_agentbench.research.race import Race, Scored, UnmatchedCriteria, plain, race, require_all
from pytest_agentbench.research.replies import NUMBER, TEXT, listed
from pytest_agentbench.research.wording import PROMPT_VERSION, WORDINGS

STAGE = "race"

_Score = Annotated[float, Field(strict=True, ge=0, le=10, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class RaceQuestion:
    """What is judged: texts as the judge sees them. `reference` None: the article is judged alone."""

    case_id: str
    language: Language
    query: str
    article: str
    reference: str | None
    criteria: RaceCriteria


@dataclass(frozen=True, slots=True)
class RaceJudged:
    """The means over all draws. `sd` is the standard deviation of the overall score over them, None for a single one.

    `draws` are what each came to, in the article's point of view, `scored` what the judge said in each.
    """

    overall: float | None
    dimensions: dict[RaceDimension, float | None]
    weighted_dimensions: float | None
    sd: float | None
    draws: tuple[Race, ...]
    scored: tuple[dict[RaceDimension, tuple[Scored, ...]], ...]


class _Pair(ReplyPart):
    criterion: str
    analysis: str = ""
    article_1_score: _Score
    article_2_score: _Score


class _Single(ReplyPart):
    criterion: str
    analysis: str = ""
    target_score: _Score


def _reply(entry: type[ReplyPart]) -> type[ReplyPart]:
    fields: dict[str, Any] = dict.fromkeys(RACE_DIMENSIONS, (tuple[entry, ...], ...))  # type: ignore[valid-type]
    return create_model("_Reply", __base__=ReplyPart, **fields)


_PAIRS, _SINGLES = _reply(_Pair), _reply(_Single)


async def judge_race(
    asking: Asking, question: RaceQuestion, *, samples: int = 1, position_swap: bool = False
) -> RaceJudged:
    """Asks `samples` times, with `position_swap` in both orders. Raises Unscored where a draw is missing."""
    orders = (False, True) if position_swap and question.reference is not None else (False,)
    draws = [(swapped, number) for number in range(1, samples + 1) for swapped in orders]
    scored = await asyncio.gather(*(_draw(asking, question, swapped, number) for swapped, number in draws))
    return _together([race(question.criteria, each) for each in scored], scored)


async def _draw(
    asking: Asking, question: RaceQuestion, swapped: bool, number: int
) -> dict[RaceDimension, tuple[Scored, ...]]:
    wording = WORDINGS[question.language]
    criteria = criteria_text(question.criteria)
    if question.reference is None:
        task, form = wording.race_pointwise, _SINGLES
        material = {"article": question.article}
    else:
        task, form = wording.race_pairwise, _PAIRS
        both = (question.article, question.reference)
        first, second = reversed(both) if swapped else both
        material = {"article_1": first, "article_2": second}
    messages = stage_messages(question.language, task.format(), query=question.query, **material, criteria=criteria)
    return await asking(
        STAGE,
        question.case_id,
        messages,
        response_format(pairwise=question.reference is not None),
        lambda text: parse(text, form, question.criteria, swapped=swapped),
        version=PROMPT_VERSION,
        draw=number,
    )


def criteria_text(criteria: RaceCriteria) -> str:
    """The criteria as a judge sees them: without their weights, which are no matter of the scores."""
    parts = []
    for name in RACE_DIMENSIONS:
        lines = [f"- {each.criterion}\n  {each.explanation}".rstrip() for each in criteria.criterions[name]]
        parts.append("\n".join([f"# {name}", *lines]))
    return "\n\n".join(parts)


def response_format(*, pairwise: bool) -> dict[str, Any]:
    """A strict schema of the reply."""
    scores = ("article_1_score", "article_2_score") if pairwise else ("target_score",)
    entries = listed(criterion=TEXT, analysis=TEXT, **dict.fromkeys(scores, NUMBER))
    return structured(f"research_{STAGE}", dict.fromkeys(RACE_DIMENSIONS, entries))


def parse(
    text: str, form: type[ReplyPart], criteria: RaceCriteria, *, swapped: bool = False
) -> dict[RaceDimension, tuple[Scored, ...]]:
    """The scores in a reply, under the criteria's own texts. Raises InvalidReply unless every criterion has its own."""
    reply = read_json(text, form)
    found = {name: tuple(_scored(each, swapped) for each in getattr(reply, name)) for name in RACE_DIMENSIONS}
    try:
        require_all(criteria, found)
    except UnmatchedCriteria as error:
        raise InvalidReply(str(error)) from error
    return {name: _own_texts(criteria, name, scores) for name, scores in found.items()}


def _scored(entry: Any, swapped: bool) -> Scored:
    if isinstance(entry, _Single):
        return Scored(entry.criterion, entry.target_score, None, entry.analysis)
    scores = entry.article_1_score, entry.article_2_score
    target, reference = reversed(scores) if swapped else scores
    return Scored(entry.criterion, target, reference, entry.analysis)


def _own_texts(criteria: RaceCriteria, name: RaceDimension, scores: Sequence[Scored]) -> tuple[Scored, ...]:
    by_key = {plain(each.criterion): each for each in scores}
    ordered = [(each.criterion, by_key[plain(each.criterion)]) for each in criteria.criterions[name]]
    return tuple(Scored(text, each.target, each.reference, each.analysis) for text, each in ordered)


def _together(draws: Sequence[Race], scored: Sequence[Mapping[RaceDimension, tuple[Scored, ...]]]) -> RaceJudged:
    overall = [draw.overall for draw in draws if draw.overall is not None]
    return RaceJudged(
        overall=_mean([draw.overall for draw in draws]),
        dimensions={name: _mean([draw.dimensions[name] for draw in draws]) for name in RACE_DIMENSIONS},
        weighted_dimensions=_mean([draw.weighted_dimensions for draw in draws]),
        sd=stdev(overall) if len(overall) > 1 else None,
        draws=tuple(draws),
        scored=tuple(dict(each) for each in scored),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """None where any is."""
    known = [value for value in values if value is not None]
    return fsum(known) / len(known) if known and len(known) == len(values) else None
