"""Criteria of a query: how much each of RACE's dimensions counts for it, and what is judged in each (seed 003)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from math import fsum
from typing import Annotated

from pydantic import Field, StringConstraints

from pytest_agentbench.judging import InvalidReply, structured
from pytest_agentbench.models import ReplyPart, read_json
from pytest_agentbench.records import RACE_DIMENSIONS, Language, RaceCriteria, RaceCriterion, RaceDimension, RowId
from pytest_agentbench.research.asking import Asking
from pytest_agentbench.research.prompting import stage_messages
from pytest_agentbench.research.race import plain
from pytest_agentbench.research.replies import NUMBER, TEXT, exactly, listed
from pytest_agentbench.research.wording import PROMPT_VERSION, WORDINGS

WEIGHTS_STAGE, STAGE = "weights", "criteria"
SAMPLES = 5
"""How often the weights of the dimensions are asked for; their mean counts."""
SUM_ERROR = 1e-6
_FEWEST, _MOST = 2, 15

_Weight = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
_Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


_WEIGHTS_FORMAT = structured(
    f"research_{WEIGHTS_STAGE}",
    {"reasoning": TEXT, "weights": exactly(**dict.fromkeys(RACE_DIMENSIONS, NUMBER))},
)
_FORMAT = structured(
    f"research_{STAGE}",
    {"criteria": listed(criterion=TEXT, explanation=TEXT, weight=NUMBER)},
)


class _Weights(ReplyPart):
    weights: dict[RaceDimension, _Weight]


class _Criterion(ReplyPart):
    criterion: _Name
    explanation: str = ""
    weight: _Weight


class _Criteria(ReplyPart):
    criteria: tuple[_Criterion, ...]


async def make_criteria(asking: Asking, query_id: RowId, prompt: str, language: Language) -> RaceCriteria:
    """The criteria of a query. Raises Unscored."""
    weights, *criteria = await asyncio.gather(
        dimension_weights(asking, str(query_id), prompt, language),
        *(_criteria(asking, str(query_id), prompt, language, name) for name in RACE_DIMENSIONS),
    )
    by_dimension = dict(zip(RACE_DIMENSIONS, criteria, strict=True))
    return RaceCriteria(id=query_id, prompt=prompt, dimension_weight=weights, criterions=by_dimension)


async def dimension_weights(
    asking: Asking, case_id: str, prompt: str, language: Language
) -> dict[RaceDimension, float]:
    """The mean of five samples, which sums to 1. Raises Unscored where one is missing."""
    wording = WORDINGS[language]
    task = wording.weigh.format(dimensions="\n".join(f"- {text}" for text in wording.dimensions.values()))
    messages = stage_messages(language, task, query=prompt)
    samples = await asyncio.gather(
        *(
            asking(
                WEIGHTS_STAGE, case_id, messages, _WEIGHTS_FORMAT, _parse_weights, version=PROMPT_VERSION, draw=number
            )
            for number in range(1, SAMPLES + 1)
        )
    )
    return normalised(samples)


def normalised(samples: list[dict[RaceDimension, float]]) -> dict[RaceDimension, float]:
    """The mean of the samples, each as a share of its own sum."""
    shares = [{name: each[name] / fsum(each.values()) for name in RACE_DIMENSIONS} for each in samples]
    means = {name: fsum(each[name] for each in shares) / len(shares) for name in RACE_DIMENSIONS}
    total = fsum(means.values())
    return {name: mean / total for name, mean in means.items()}


def _parse_weights(text: str) -> dict[RaceDimension, float]:
    weights = read_json(text, _Weights).weights
    missing = [name for name in RACE_DIMENSIONS if name not in weights]
    if missing:
        raise InvalidReply("\n".join(f"- weights.{name}: missing" for name in missing))
    total = fsum(weights.values())
    if abs(total - 1) > 0.05:
        raise InvalidReply(f"- weights: found a sum of {total:g}, expected 1")
    return weights


async def _criteria(
    asking: Asking, case_id: str, prompt: str, language: Language, name: RaceDimension
) -> tuple[RaceCriterion, ...]:
    wording = WORDINGS[language]
    task = wording.criteria.format(dimension=wording.dimensions[name])
    messages = stage_messages(language, task, query=prompt)
    return await asking(STAGE, case_id, messages, _FORMAT, _parse, version=f"{PROMPT_VERSION} {name}")


def _parse(text: str) -> tuple[RaceCriterion, ...]:
    found = read_json(text, _Criteria).criteria
    problems = list(weight_problems([(each.criterion, each.weight) for each in found]))
    if not _FEWEST <= len(found) <= _MOST:
        problems.append(f"found {len(found)} criteria, expected {_FEWEST} to {_MOST}")
    if problems:
        raise InvalidReply("\n".join(f"- criteria: {problem}" for problem in problems))
    return tuple(RaceCriterion(**each.model_dump()) for each in found)


def problems_of(criteria: RaceCriteria) -> Iterator[str]:
    """What is wrong with a row of criteria: dimensions that are missing, sums that are not 1, criteria that repeat."""
    for name in RACE_DIMENSIONS:
        if name not in criteria.dimension_weight:
            yield f"dimension_weight: {name} is missing"
        found = criteria.criterions.get(name, ())
        if not found:
            yield f"criterions: {name} has no criterion"
        else:
            pairs = [(each.criterion, each.weight) for each in found]
            yield from (f"criterions.{name}: {problem}" for problem in weight_problems(pairs))
    total = fsum(criteria.dimension_weight.values())
    if abs(total - 1) > SUM_ERROR:
        yield f"dimension_weight: found a sum of {total:g}, expected 1"


def weight_problems(criteria: Iterable[tuple[str, float]]) -> Iterator[str]:
    """What is wrong with the criteria of one dimension, given as texts and weights."""
    seen: set[str] = set()
    total = 0.0
    for text, weight in criteria:
        total += weight
        if plain(text) in seen:
            yield f"found {text!r} twice"
        seen.add(plain(text))
    if abs(total - 1) > SUM_ERROR:
        yield f"found weights that sum to {total:g}, expected 1"
