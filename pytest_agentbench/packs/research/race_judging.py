"""RACE: a judge compares a report with a reference or scores it alone, and its scores are weighted (seed 003)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, isfinite
from statistics import stdev
from typing import Annotated, Any, TypeVar

from pydantic import Field, create_model

from pytest_agentbench.judging.verdicts import structured
from pytest_agentbench.models.replies import InvalidReply, ReplyPart, read_json
from pytest_agentbench.packs.research.articles import clean_by_model, clean_by_rules
from pytest_agentbench.packs.research.asking import (
    NUMBER,
    PROMPT_VERSION,
    TEXT,
    Asking,
    Unscored,
    gather_all,
    list_schema,
)
from pytest_agentbench.packs.research.records import (
    RACE_DIMENSIONS,
    Cleaning,
    Language,
    RaceCriteria,
    RaceCriterion,
    RaceDimension,
)
from pytest_agentbench.statistics.estimates import mean

# RACE: criterion scores of a judge to the scores of a report (seed 003; DeepResearch Bench, section 3.1).
# `T_d = sum(s1 w) / sum(w)` over the criteria of a dimension, `R_d` likewise for the reference; `T = sum(T_d
# W_d)`; overall `T / (T + R)`, a dimension's score `T_d / (T_d + R_d)`. Pointwise, without a reference, both
# are `T / 10`. `W_d` are shares: weights with another sum are divided by it.


TOP = 10.0


@dataclass(frozen=True, slots=True)
class Scored:
    """A judge's scores of one criterion, 0-10. `reference` is None if the judge saw no reference."""

    criterion: str
    target: float
    reference: float | None = None
    analysis: str = ""


@dataclass(frozen=True, slots=True)
class Race:
    """A report's RACE scores, 0-1; `target` and `reference` are the weighted totals, 0-10, None if pointwise.

    `weighted_dimensions` is the sum of the dimensions by their weights (the seed's wording of the overall score). A
    score is None if target and reference both have 0 points; in compat mode it is 0.
    """

    overall: float | None
    dimensions: dict[RaceDimension, float | None]
    weighted_dimensions: float | None
    target: float
    reference: float | None


class UnmatchedCriteria(ValueError):
    """Error of scores that do not match the criteria: `missing`, `unknown` and `repeated` texts."""

    def __init__(self, missing: Sequence[str], unknown: Sequence[str], repeated: Sequence[str]) -> None:
        self.missing, self.unknown, self.repeated = tuple(missing), tuple(unknown), tuple(repeated)
        kinds = {"not scored": missing, "not asked for": unknown, "scored more than once": repeated}
        super().__init__("\n".join(f"- {kind}: {text!r}" for kind, texts in kinds.items() for text in texts))


def race(
    criteria: RaceCriteria,
    scored: Mapping[RaceDimension, Sequence[Scored]],
    *,
    compat: bool = False,
    pointwise: bool | None = None,
) -> Race:
    """Return the scores of a report whose criteria a judge has scored.

    `pointwise` means that the judge saw no reference; None: it saw one if any criterion has a reference's score.
    `compat` is the original's: criteria without a score are left out of the sums, others are found by a part of
    their text, and an unknown one has the mean weight of its dimension's. A missing score of the reference adds
    nothing to its sum; if the last one of a dimension is missing, the reference has 0 points there. Shares of nothing
    are 0. Raises UnmatchedCriteria (else).
    """
    if not compat:
        require_all_criteria(criteria, scored)
    totals = {name: _weigh_scores(criteria.criterions[name], scored[name], compat) for name in RACE_DIMENSIONS}
    weights = _shares(criteria.dimension_weight)
    target = _weighted({name: total[0] for name, total in totals.items()}, weights)
    if pointwise is None:
        pointwise = all(entry.reference is None for scores in scored.values() for entry in scores)
    if pointwise:
        # Pointwise there is nothing to share the points with: the share of all possible points takes its place.
        return _race({name: total[0] / TOP for name, total in totals.items()}, weights, target / TOP, target, None)
    reference = _weighted({name: total[1] for name, total in totals.items()}, weights)
    nothing = 0.0 if compat else None
    dimensions = {name: target_share(*total, nothing) for name, total in totals.items()}
    return _race(dimensions, weights, target_share(target, reference, nothing), target, reference)


def target_share(target: float, reference: float, nothing: float | None = None) -> float | None:
    """Return the target's part of both, `nothing` if there is nothing to share."""
    # 0 of 0 points: neither is better, and 0.5 would mean equally good. The original uses 0.
    if target + reference > 0:
        return target / (target + reference)
    return nothing


def _shares(weights: Mapping[RaceDimension, float]) -> dict[RaceDimension, float]:
    total = fsum(weights[name] for name in RACE_DIMENSIONS)
    # Files made by hand have weights in percent, or ones that sum to 0.999: shares make these all the same.
    return {name: weights[name] / total for name in RACE_DIMENSIONS}


def _weighted(values: Mapping[RaceDimension, float], shares: Mapping[RaceDimension, float]) -> float:
    mean = fsum(values[name] * shares[name] for name in RACE_DIMENSIONS)
    return _keep_in_range(mean, values.values())


def _keep_in_range(mean: float, values: Collection[float]) -> float:
    """Return the mean of values, which no rounding takes out of their range: all 6 is 6, and nothing is more than
    all.
    """
    # fsum of shares that sum to 1 - 2^-53 makes 5.999999999999999 of sixes, and rows of equal scores would differ by
    # it.
    return min(max(mean, min(values)), max(values))


def require_all_criteria(criteria: RaceCriteria, scored: Mapping[RaceDimension, Sequence[Scored]]) -> None:
    """Raise UnmatchedCriteria unless every criterion is scored once, under its own text but for case and blanks."""
    missing, unknown, repeated = [], [], []
    for name in RACE_DIMENSIONS:
        expected = {normalise_text(criterion.criterion): criterion.criterion for criterion in criteria.criterions[name]}
        scored_keys: set[str] = set()
        for entry in scored.get(name, ()):
            key = normalise_text(entry.criterion)
            if key not in expected:
                unknown.append(entry.criterion)
            elif key in scored_keys:
                repeated.append(entry.criterion)
            scored_keys.add(key)
        missing += [text for key, text in expected.items() if key not in scored_keys]
    if missing or unknown or repeated:
        raise UnmatchedCriteria(missing, unknown, repeated)


def normalise_text(text: str) -> str:
    """Return a criterion's text as it is compared: without case, with single blanks."""
    return " ".join(text.split()).casefold()


def _weigh_scores(criteria: Sequence[RaceCriterion], scored: Sequence[Scored], compat: bool) -> tuple[float, float]:
    """Return the weighted means of target and reference, 0-10; the latter is 0 without a reference."""
    exact = {criterion.criterion: criterion.weight for criterion in criteria}
    weight_of = {normalise_text(text): weight for text, weight in exact.items()}
    target = reference = total = 0.0
    for entry in scored:
        # The very text first: two criteria may differ by case alone.
        weight = exact.get(entry.criterion)
        if weight is None:
            weight = weight_of.get(normalise_text(entry.criterion))
        # The original's: a part of the text, else the mean weight. A judge that words a criterion anew so weighs it
        # anew.
        if weight is None and compat:
            weight = _find_weight(normalise_text(entry.criterion), weight_of)
        assert weight is not None
        target += entry.target * weight
        reference += (entry.reference or 0.0) * weight
        total += weight
    if not total:
        return 0.0, 0.0
    # The original looks at the last criterion alone, and then gives the reference no points for the dimension.
    if scored[-1].reference is None:
        reference = 0.0
    return (
        _keep_in_range(target / total, [entry.target for entry in scored]),
        _keep_in_range(reference / total, [entry.reference or 0.0 for entry in scored]),
    )


def _find_weight(text: str, weights: Mapping[str, float]) -> float:
    for criterion, weight in weights.items():
        # The first that matches, in the order of the file, as the original does it.
        if text in criterion or criterion in text:
            return weight
    return sum(weights.values()) / len(weights)


def _race(
    dimensions: Mapping[RaceDimension, float | None],
    weights: Mapping[RaceDimension, float],
    overall: float | None,
    target: float,
    reference: float | None,
) -> Race:
    known = {name: score for name, score in dimensions.items() if score is not None}
    weighted = _weighted(known, weights) if len(known) == len(dimensions) else None
    return Race(overall, dict(dimensions), weighted, target, reference)


STAGE = "race"
T = TypeVar("T")

_Score = Annotated[float, Field(strict=True, ge=0, le=10, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class RaceQuestion:
    """Question of a judge: texts as the judge sees them. `reference` None: the article is judged alone."""

    case_id: str
    language: Language
    query: str
    article: str
    reference: str | None
    criteria: RaceCriteria


@dataclass(frozen=True, slots=True)
class RaceJudged:
    """Means over all draws. `sd` is the standard deviation of the overall score over the samples, None for one.

    A sample is the mean of both orders if both are asked: the effect of the order is not part of the spread. `draws`
    are the results of each, from the article's point of view, `scored` the judge's scores in each.
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


# A model with a field for each dimension, so that a reply without one names it as missing.
_PAIRS, _SINGLES = _reply(_Pair), _reply(_Single)
_ANY = create_model("_Any", __base__=ReplyPart, **dict.fromkeys(RACE_DIMENSIONS, (Any, ...)))  # type: ignore[call-overload]


async def strip_apparatus(asking: Asking, question: RaceQuestion, cleaning: Cleaning) -> RaceQuestion:
    """Return the question with cleaned article and reference. Raises Unscored if a model cannot clean them."""
    if cleaning == "none":
        return question
    texts = [question.article, *([] if question.reference is None else [question.reference])]
    if cleaning == "model":
        requests = (
            clean_by_model(asking, question.case_id, question.language, text, number=n)
            for n, text in enumerate(texts, 1)
        )
        texts = await gather_all(*requests)
    else:
        texts = [clean_by_rules(text) for text in texts]
    return replace(question, article=texts[0], reference=texts[1] if len(texts) > 1 else None)


async def judge_race(
    asking: Asking,
    question: RaceQuestion,
    *,
    samples: int = 1,
    position_swap: bool = False,
    compat: bool = False,
) -> RaceJudged:
    """Ask `samples` times, with `position_swap` in both orders. `compat` matches criteria as the original does.

    Raises Unscored if a draw is missing, and if there is no text to judge.
    """
    for name, text in {"article": question.article, "reference": question.reference}.items():
        # An empty article would be compared all the same, and an empty reference gives any report all the points.
        if text is not None and not text.strip():
            raise Unscored(f"the {name} is empty")
    orders = (False, True) if position_swap and question.reference is not None else (False,)
    # Both orders of a sample share its number, by which replies are stored; the messages distinguish them.
    draws = [(number, swapped) for number in range(1, samples + 1) for swapped in orders]
    requests = (_draw(asking, question, *draw, request, compat) for request, draw in enumerate(draws, 1))
    scored = await gather_all(*requests)
    pointwise = question.reference is None
    results = [race(question.criteria, scores, compat=compat, pointwise=pointwise) for scores in scored]
    for share in (share for result in results for share in (result.overall, *result.dimensions.values())):
        # Only in compat mode, which takes scores beyond 0 to 10.
        if share is not None and not 0 <= share <= 1:
            raise Unscored(f"the judge's scores give a share of {share:g}, expected one from 0 to 1")
    return _average_draws(results, scored, len(orders))


async def _draw(
    asking: Asking, question: RaceQuestion, number: int, swapped: bool, request: int, compat: bool
) -> dict[RaceDimension, tuple[Scored, ...]]:
    criteria = criteria_text(question.criteria)
    if question.reference is None:
        prompt, form = "race_pointwise", _SINGLES
        material = {"article": question.article}
    else:
        prompt, form = "race_pairwise", _PAIRS
        both = (question.article, question.reference)
        # Judges tend to favour the first of two texts: asked in both orders, the means are free of that.
        first, second = _order(both, swapped)
        material = {"article_1": first, "article_2": second}
    messages = asking.messages(question.language, prompt, {"query": question.query, **material, "criteria": criteria})
    return await asking(
        STAGE,
        question.case_id,
        messages,
        reply_format(pairwise=question.reference is not None),
        lambda text: parse_scores(text, form, question.criteria, swapped=swapped, compat=compat),
        version=PROMPT_VERSION,
        draw=number,
        request=request,
    )


def _order(pair: tuple[T, T], swapped: bool) -> tuple[T, T]:
    """Return a pair in the order of articles, or of the report and its reference: both orders swap alike."""
    first, second = pair
    return (second, first) if swapped else (first, second)


def criteria_text(criteria: RaceCriteria) -> str:
    """Return the criteria as a judge sees them: without their weights, which are no matter of the scores."""
    parts = []
    for name in RACE_DIMENSIONS:
        lines = [
            # Weights stay out of sight: they are the arithmetic's, and a judge that knew them could count them twice.
            f"- {_one_line(criterion.criterion)}\n  {_one_line(criterion.explanation)}".rstrip()
            for criterion in criteria.criterions[name]
        ]
        parts.append("\n".join([f"# {name}", *lines]))
    return "\n\n".join(parts)


def _one_line(text: str) -> str:
    """Return the text on one line, so that it cannot look like further criteria."""
    return " ".join(text.split())


def reply_format(*, pairwise: bool) -> dict[str, Any]:
    """Return a strict schema of the reply."""
    scores = ("article_1_score", "article_2_score") if pairwise else ("target_score",)
    entries = list_schema(criterion=TEXT, analysis=TEXT, **dict.fromkeys(scores, NUMBER))
    return structured(f"research_{STAGE}", dict.fromkeys(RACE_DIMENSIONS, entries))


def parse_scores(
    text: str, form: type[ReplyPart], criteria: RaceCriteria, *, swapped: bool = False, compat: bool = False
) -> dict[RaceDimension, tuple[Scored, ...]]:
    """Return the scores in a reply, under the criteria's own texts. Raises InvalidReply unless every criterion has its
    own.

    With `compat` scores stay under the reply's texts, and unusable ones are skipped; see `_read_as_original`.
    """
    if compat:
        entries = read_json(text, _ANY)
        names = ("target_score", "") if form is _SINGLES else ("article_1_score", "article_2_score")
        target, reference = _order(names, swapped)
        return {name: _read_as_original(getattr(entries, name), target, reference) for name in RACE_DIMENSIONS}
    reply = read_json(text, form)
    scores_by_dimension = {
        name: tuple(_scored(entry, swapped) for entry in getattr(reply, name)) for name in RACE_DIMENSIONS
    }
    try:
        require_all_criteria(criteria, scores_by_dimension)
    except UnmatchedCriteria as error:
        raise InvalidReply(str(error)) from error
    return {name: _match_criteria(criteria, name, scores) for name, scores in scores_by_dimension.items()}


def _scored(entry: Any, swapped: bool) -> Scored:
    if isinstance(entry, _Single):
        return Scored(entry.criterion, entry.target_score, None, entry.analysis)
    scores = entry.article_1_score, entry.article_2_score
    target, reference = _order(scores, swapped)
    return Scored(entry.criterion, target, reference, entry.analysis)


def _read_as_original(entries: Any, target_name: str, reference_name: str) -> tuple[Scored, ...]:
    """Return the scores of one dimension that the original would count: numbers, also as text.

    It skips an entry without a criterion or a target's score, and one with a score that is no number. A score of the
    reference may be missing. If the last entry that could be read has none, neither has the last score that counts.
    """
    scores: list[Scored] = []
    reference: float | None = None
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict):
            continue
        try:
            target, reference = _number(entry.get(target_name)), _number(entry.get(reference_name))
        except (TypeError, ValueError, OverflowError):
            continue
        criterion, analysis = entry.get("criterion"), entry.get("analysis")
        if isinstance(criterion, str) and criterion.strip() and target is not None:
            reason = analysis if isinstance(analysis, str) else ""
            scores.append(Scored(criterion.strip(), target, reference, reason))
    if scores and reference is None:
        scores[-1] = replace(scores[-1], reference=None)
    return tuple(scores)


def _number(value: Any) -> float | None:
    """Return the number that a value is or spells, None for none. Raises ValueError, TypeError, OverflowError."""
    if value is None:
        return None
    number = float(value)
    if not isfinite(number):
        raise ValueError(f"found {number}")
    return number


def _match_criteria(criteria: RaceCriteria, name: RaceDimension, scores: Sequence[Scored]) -> tuple[Scored, ...]:
    by_key = {normalise_text(score.criterion): score for score in scores}
    texts = [criterion.criterion for criterion in criteria.criterions[name]]
    return tuple(replace(by_key[normalise_text(text)], criterion=text) for text in texts)


def _average_draws(
    draws: Sequence[Race], scored: Sequence[Mapping[RaceDimension, tuple[Scored, ...]]], orders: int
) -> RaceJudged:
    overall = [draw.overall for draw in draws]
    # Draws come in pairs of both orders, next to each other: their mean is one sample, or the spread would be that of
    # the order.
    samples = [_mean(overall[at : at + orders]) for at in range(0, len(overall), orders)]
    known = [sample for sample in samples if sample is not None]
    return RaceJudged(
        overall=_mean(overall),
        dimensions={name: _mean([draw.dimensions[name] for draw in draws]) for name in RACE_DIMENSIONS},
        weighted_dimensions=_mean([draw.weighted_dimensions for draw in draws]),
        # Sample deviation (n - 1): few draws represent all possible ones.
        sd=sample_deviation(known),
        draws=tuple(draws),
        scored=tuple(dict(scores) for scores in scored),
    )


def sample_deviation(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation, None for fewer than two values."""
    return stdev(values) if len(values) > 1 else None


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean, or None if any value is None."""
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return mean(known)
    return None
