"""Criteria of a query: how much each of RACE's dimensions counts for it, and what is judged in each (seed 003)."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from math import fsum
from typing import Annotated, Any, NamedTuple

from pydantic import Field, StringConstraints

from pytest_agentbench.judging import InvalidReply, structured
from pytest_agentbench.models import ReplyPart, read_json
from pytest_agentbench.records import RACE_DIMENSIONS, Language, RaceCriteria, RaceCriterion, RaceDimension, RowId
from pytest_agentbench.research.asking import Asking
from pytest_agentbench.research.pieces import together
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


async def make_criteria(
    asking: Asking,
    case_id: str,
    query_id: RowId,
    prompt: str,
    language: Language,
    weights: Mapping[RaceDimension, float] | None = None,
) -> RaceCriteria:
    """The criteria of a query. Raises Unscored.

    `case_id` is the query's name in scripts. Dimensions whose `weights` are given are not weighed.
    """
    asked: list[Awaitable[Any]] = [_criteria(asking, case_id, prompt, language, name) for name in RACE_DIMENSIONS]
    if weights is None:
        asked.append(dimension_weights(asking, case_id, prompt, language))
    found = await together(*asked)
    return RaceCriteria(
        id=query_id,
        prompt=prompt,
        dimension_weight=found.pop() if weights is None else dict(weights),
        criterions=dict(zip(RACE_DIMENSIONS, found, strict=True)),
    )


async def dimension_weights(
    asking: Asking, case_id: str, prompt: str, language: Language
) -> dict[RaceDimension, float]:
    """The mean of five samples, which sums to 1. Raises Unscored where one is missing."""
    wording = WORDINGS[language]
    task = wording.weigh.format(dimensions="\n".join(f"- {text}" for text in wording.dimensions.values()))
    messages = stage_messages(language, task, query=prompt)
    samples = await together(
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
    number = RACE_DIMENSIONS.index(name) + 1
    return await asking(STAGE, case_id, messages, _FORMAT, _parse, version=PROMPT_VERSION, request=number)


def _parse(text: str) -> tuple[RaceCriterion, ...]:
    found = read_json(text, _Criteria).criteria
    problems = [str(each) for each in weight_problems("criteria", [(each.criterion, each.weight) for each in found])]
    if not _FEWEST <= len(found) <= _MOST:
        problems.append(f"criteria: found {len(found)}, expected {_FEWEST} to {_MOST}")
    if problems:
        raise InvalidReply("\n".join(f"- {problem}" for problem in problems))
    return tuple(RaceCriterion(**each.model_dump()) for each in found)


class CriteriaProblem(NamedTuple):
    """What is wrong with a row of criteria, and where in it."""

    field: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.field}: found {self.found}, expected {self.expected}"


def lacks(criteria: RaceCriteria) -> Iterator[CriteriaProblem]:
    """The dimensions by which nothing can be judged, as they have no weight or no criterion that counts."""
    for name in RACE_DIMENSIONS:
        if name not in criteria.dimension_weight:
            yield CriteriaProblem(f"dimension_weight.{name}", "nothing", "a weight")
        if not (found := criteria.criterions.get(name)):
            yield CriteriaProblem(f"criterions.{name}", "no criterion", "at least one")
        elif not any(each.weight for each in found):
            yield CriteriaProblem(f"criterions.{name}", "weights that are all 0", "at least one above 0")
    if criteria.dimension_weight and not any(criteria.dimension_weight.values()):
        yield CriteriaProblem("dimension_weight", "weights that are all 0", "at least one above 0")


def problems_of(criteria: RaceCriteria) -> Iterator[CriteriaProblem]:
    """What is wrong with a row of criteria: dimensions that are missing, sums that are not 1, criteria that repeat."""
    yield from lacks(criteria)
    for name in RACE_DIMENSIONS:
        if found := criteria.criterions.get(name):
            yield from weight_problems(f"criterions.{name}", [(each.criterion, each.weight) for each in found])
    yield from _wrong_sum("dimension_weight", criteria.dimension_weight.values())


def weight_problems(field: str, criteria: Sequence[tuple[str, float]]) -> Iterator[CriteriaProblem]:
    """What is wrong with the criteria of one dimension, given as texts and weights."""
    seen: set[str] = set()
    for text, _ in criteria:
        if not plain(text):
            yield CriteriaProblem(field, "a criterion without a text", "what is judged")
        elif plain(text) in seen:
            yield CriteriaProblem(field, f"{text!r} twice", "each criterion once")
        seen.add(plain(text))
    yield from _wrong_sum(field, [weight for _, weight in criteria])


def _wrong_sum(field: str, weights: Iterable[float]) -> Iterator[CriteriaProblem]:
    total = fsum(weights)
    if abs(total - 1) > SUM_ERROR:
        yield CriteriaProblem(field, f"weights that sum to {total:.9g}", "1")
