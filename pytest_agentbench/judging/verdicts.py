"""Define the replies of judges, and aggregate several verdicts to one score."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial, reduce
from operator import add
from typing import Annotated, Any, Literal

from pydantic import Field

from pytest_agentbench.models.replies import AsNumber, ReplyPart, make_invalid_reply, read_json
from pytest_agentbench.records.base import DIMENSIONS
from pytest_agentbench.records.case import Expectation, Expectations
from pytest_agentbench.records.evaluation import ExpectationVerdict, JudgeIteration, JudgeResult, JudgeVerdict, Scored
from pytest_agentbench.records.run import Usage
from pytest_agentbench.statistics.estimates import mean_of

# Pure functions, as specified for evaluation profiles. The iterations of each judge run are aggregated first,
# then the judge runs by the same method. Each dimension and each expectation is aggregated like the overall
# score.


Method = Literal["median", "mean", "majority_vote", "all_pass"]

_DEFAULT_THRESHOLD = 0.5
"""Default fraction of the scale at which a judge passes a run."""


def combine(method: Method, scores: Sequence[float], bar: float) -> float:
    """Return one score for several (at least one), within their range. `bar` is the score from which a vote passes."""
    if method == "median":
        ordered = sorted(scores)
        scores = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    if method == "all_pass":
        return min(scores)
    if method == "majority_vote":
        # The score is the mean of the majority. A tie fails, because the run has not convinced a majority.
        passing = [score for score in scores if score >= bar]
        failing = [score for score in scores if score < bar]
        scores = passing if len(passing) > len(failing) else failing
    # Rounding may move the mean of equal scores beyond them, and so beyond the bar.
    return min(max(mean_of(scores), min(scores)), max(scores))


def bar_of(pass_threshold: float) -> float:
    """Return the score, 0-10, of a fraction of the scale, without binary rounding errors: 0.07 is 0.7."""
    return round(10 * pass_threshold, 9)


def sample(iterations: Sequence[JudgeIteration], size: int | None, seed: str) -> tuple[JudgeIteration, ...]:
    """Return the successful iterations, or `size` of them, drawn at random by `seed` and their numbers only."""
    succeeded = sorted((i for i in iterations if i.status == "success"), key=lambda iteration: iteration.repetition)
    if size is None or size >= len(succeeded):
        return tuple(succeeded)
    # Drawn from the sorted list, so that the draw does not depend on the order of replies.
    return tuple(random.Random(seed).sample(succeeded, size))


def aggregate(
    iterations: Sequence[JudgeIteration],
    *,
    method: Method = "median",
    pass_threshold: float | None = None,
    sample_sizes: Mapping[str, int] | None = None,
    seed: str = "",
    expectations: Expectations | None = None,
    names: Sequence[str] = DIMENSIONS,
) -> JudgeResult:
    """Aggregate all iterations of all judge runs. Iterations without a verdict are stored and do not count.

    `sample_sizes` is by judge_run_id; `names` are the dimensions that every verdict scores. Raises ValueError if no
    iteration succeeded.
    """
    threshold = _DEFAULT_THRESHOLD if pass_threshold is None else pass_threshold
    bar = bar_of(threshold)
    groups = [[verdict for _, verdict in group] for group in sampled(iterations, sample_sizes or {}, seed)]
    if not groups:
        raise ValueError("no iteration succeeded, so there is nothing to aggregate")

    def over(score: Callable[[JudgeVerdict], float], pass_at: float = bar) -> float:
        # Two steps, so that a judge with more iterations does not outvote the others.
        return combine(method, [combine(method, [score(v) for v in verdicts], pass_at) for verdicts in groups], pass_at)

    overall = over(lambda verdict: verdict.overall.score)
    dimensions = {name: over(partial(_dimension, name)) for name in names}
    verdicts = [verdict for group in groups for verdict in group]
    met = [
        (kind, expectation, over(partial(_met, kind, index), threshold))
        for kind, index, expectation in numbered(expectations or Expectations())
    ]
    return JudgeResult(
        method=method,
        pass_threshold=threshold,
        overall=overall,
        dimensions=dimensions,
        failed_dimensions=tuple(name for name, score in dimensions.items() if score < bar),
        passed=overall >= bar,
        expectations=_weighted_mean([(expectation.weight, value) for _, expectation, value in met]),
        unmet_hard=tuple(expectation.label for kind, expectation, value in met if kind == "hard" and value < 1),
        criteria=_combine_criteria(groups, partial(combine, method, bar=bar)),
        # A mean has no text, so the summary of the nearest verdict is taken.
        summary=min(verdicts, key=lambda verdict: abs(verdict.overall.score - overall)).summary,
        sampled=len(verdicts),
        iterations=tuple(iterations),
        usage=total_usage(iterations),
    )


def _combine_criteria(
    groups: Sequence[Sequence[JudgeVerdict]], combine_scores: Callable[[Sequence[float]], float]
) -> dict[str, Scored]:
    """Return the score of each criterion over the verdicts that have it, with the evidence of the nearest one."""
    criteria = {}
    for name in dict.fromkeys(name for group in groups for verdict in group for name in verdict.criteria):
        scored = [[verdict.criteria[name] for verdict in group if name in verdict.criteria] for group in groups]
        score = combine_scores([combine_scores([each.score for each in group]) for group in scored if group])
        nearest = min((each for group in scored for each in group), key=lambda each: abs(each.score - score))
        criteria[name] = Scored(score=score, evidence=nearest.evidence)
    return criteria


def numbered(expectations: Expectations) -> list[tuple[Literal["hard", "soft"], int, Expectation]]:
    """Return the expectations with their names for judges: kind and index within the kind."""
    hard: list[tuple[Literal["hard", "soft"], int, Expectation]] = [
        ("hard", index, expectation) for index, expectation in enumerate(expectations.hard_expectations)
    ]
    return hard + [("soft", index, expectation) for index, expectation in enumerate(expectations.soft_expectations)]


def have_turns(expectations: Expectations) -> bool:
    """Return whether any of the expectations is about one turn of a conversation."""
    return any(expectation.turn is not None for _, _, expectation in numbered(expectations))


def name_turn(turn: int | None) -> str:
    """Return what an expectation is about: one turn, or all of them."""
    if turn is None:
        return "the whole conversation"
    return f"turn {turn}"


def total_usage(iterations: Sequence[JudgeIteration]) -> Usage:
    """Return the usage of all replies. Iterations without a reply add nothing."""
    # Unknown plus known is unknown, so an iteration without a reply is left out of the sum.
    answered = [i.usage for i in iterations if i.status != "provider_error" or i.usage != Usage()]
    if answered:
        return reduce(add, answered)
    return Usage()


def sampled(
    iterations: Sequence[JudgeIteration], sample_sizes: Mapping[str, int], seed: str
) -> list[list[tuple[str, JudgeVerdict]]]:
    """Return the verdicts that count for each judge run with any: pairs of judge_id and verdict."""
    by_run: dict[str, list[JudgeIteration]] = {}
    for iteration in iterations:
        by_run.setdefault(iteration.judge_run_id, []).append(iteration)
    samples = (sample(group, sample_sizes.get(run), f"{seed}:{run}") for run, group in by_run.items())
    verdicts = ([(item.judge_id, item.verdict) for item in group if item.verdict is not None] for group in samples)
    return [group for group in verdicts if group]


def _dimension(name: str, verdict: JudgeVerdict) -> float:
    return verdict.dimensions[name].score


def _met(kind: str, index: int, verdict: JudgeVerdict) -> float:
    return next(
        expectation.met
        for expectation in verdict.expectations
        if (expectation.kind, expectation.index) == (kind, index)
    )


def _weighted_mean(weighted: Sequence[tuple[float, float]]) -> float | None:
    """Return the weighted mean, or None if all weights are zero."""
    total = sum(weight for weight, _ in weighted)
    if total:
        return sum(weight * value for weight, value in weighted) / total
    return None


_MOST_BEYOND = 2.0
"""Points by which an overall score may be below the lowest or above the highest of its dimensions."""
_SCHEMA_NAME = "judge_verdict"
"""The name of the response schema, by which scripted endpoints recognise a judge's request."""


def response_format(expectations: Expectations, criteria: Sequence[str] = ()) -> dict[str, Any]:
    """Return the `response_format` of a request for a verdict: a strict JSON Schema, evidence before each score.

    `criteria` are the names of the rubric's, which are values and not keys: some endpoints restrict names of keys.

    Ranges are in descriptions: not every endpoint accepts `minimum` and `maximum`, and replies are validated anyway.
    """
    score = {
        "evidence": {"type": "array", "items": {"type": "string"}, "description": "Short observations."},
        "score": {"type": "number", "description": "0 to 10."},
    }
    scored = _object(**score)
    parts: dict[str, Any] = {
        "summary": {"type": "string", "description": "One concise overall assessment."},
        "dimensions": _object(**dict.fromkeys(DIMENSIONS, scored)),
        "overall": scored,
    }
    if numbered(expectations):
        turn = {"turn": {"type": ["integer", "null"]}} if have_turns(expectations) else {}
        verdict = _object(
            kind={"type": "string", "enum": ["hard", "soft"]},
            index={"type": "integer"},
            **turn,
            evidence={"type": "string"},
            met={"type": "number", "description": "0 (not met) to 1 (fully met)."},
        )
        parts["expectations"] = {"type": "array", "items": verdict}
    if criteria:
        criterion = _object(name={"type": "string", "enum": [*criteria]}, **score)
        parts["criteria"] = {"type": "array", "items": criterion}
    return structured(_SCHEMA_NAME, parts)


def parse_verdict(
    text: str, expectations: Expectations, criteria: Sequence[str] = (), unreached: Collection[int] = ()
) -> JudgeVerdict:
    """Return the verdict in a judge's reply: a JSON object that `read_json` finds.

    Raises InvalidReply unless every score exists and is a real number in its range, the overall score fits the
    dimensions, and every expectation of the case has exactly one answer. Other keys are ignored. A criterion without a
    score is accepted, because criteria explain the verdict and do not decide it; an unknown one is a mistake.
    Expectations of `unreached` turns are not met, whatever the judge answers.
    """
    reply = read_json(text, _Reply)
    answered: tuple[_Met, ...] = ()
    if numbered(expectations):  # without a list of expectations some judges invent one
        answered = reply.expectations
    problems = [f"dimensions.{name}: missing" for name in DIMENSIONS if name not in reply.dimensions]
    problems = problems or _misfits(reply)
    problems += _expectation_problems(answered, expectations)
    scored = _match_criteria(reply.criteria if criteria else (), criteria, problems)
    if problems:
        raise make_invalid_reply(problems)
    return JudgeVerdict(
        summary=reply.summary,
        dimensions={name: Scored(**reply.dimensions[name].model_dump()) for name in DIMENSIONS},
        overall=Scored(**reply.overall.model_dump()),
        expectations=tuple(_make_expectation_verdict(item, expectations, unreached) for item in answered),
        criteria={name: Scored(score=item.score, evidence=item.evidence) for name, item in scored.items()},
    )


def _make_expectation_verdict(item: _Met, expectations: Expectations, unreached: Collection[int]) -> ExpectationVerdict:
    turn = _find_turn(item, expectations)
    if turn in unreached:
        item = item.model_copy(update={"met": 0.0, "evidence": f"turn {turn} was not reached"})
    return ExpectationVerdict(kind=item.kind, index=item.index, turn=turn, met=item.met, evidence=item.evidence)


def _find_turn(item: _Met, expectations: Expectations) -> int | None:
    """Return the turn of the answered expectation."""
    turns = {(kind, index): expectation.turn for kind, index, expectation in numbered(expectations)}
    return turns.get((item.kind, item.index))


class _Score(ReplyPart):
    score: Annotated[float, AsNumber, Field(strict=True, ge=0, le=10, allow_inf_nan=False)]
    evidence: tuple[str, ...]


class _Met(ReplyPart):
    kind: Literal["hard", "soft"]
    index: Annotated[int, Field(strict=True)]
    turn: int | None = None
    met: Annotated[float, AsNumber, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
    evidence: str = ""


class _CriterionScore(_Score):
    name: str


class _Reply(ReplyPart):
    summary: str
    dimensions: dict[str, _Score]
    overall: _Score
    expectations: tuple[_Met, ...] = ()
    criteria: tuple[_CriterionScore, ...] = ()


def structured(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `response_format` that asks for an object with exactly these properties, in their order."""
    schema = {"name": name, "strict": True, "schema": _object(**properties)}
    return {"type": "json_schema", "json_schema": schema}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _misfits(reply: _Reply) -> list[str]:
    """Return the problem of an overall score that is far from all dimensions, such as 0.8 with dimensions of 8."""
    scores = [reply.dimensions[name].score for name in DIMENSIONS]
    low, high, overall = min(scores), max(scores), reply.overall.score
    if low - _MOST_BEYOND <= overall <= high + _MOST_BEYOND:
        return []
    message = f"found {overall:g}, and the dimensions' scores go from {low:g} to {high:g}"
    return [f"overall.score: {message}; all are on one scale, 0 to 10, and expected to fit each other"]


def _match_criteria(
    answered: Iterable[_CriterionScore], names: Sequence[str], problems: list[str]
) -> dict[str, _CriterionScore]:
    """Return the scores by the rubric's names, in its order; add unknown and repeated names to `problems`."""
    own_names = {name.casefold(): name for name in names}
    scored: dict[str, _CriterionScore] = {}
    for item in answered:
        name = own_names.get(" ".join(item.name.split()).casefold())
        if name is None:
            problems.append(f"criteria: there is no {item.name!r}; the rubric has {', '.join(map(repr, names))}")
        elif name in scored:
            problems.append(f"criteria: {name!r} is answered twice")
        else:
            scored[name] = item
    return {name: scored[name] for name in names if name in scored}


def _expectation_problems(answered: Iterable[_Met], expectations: Expectations) -> list[str]:
    counts = Counter((reply.kind, reply.index) for reply in answered)
    numbers = {(kind, index) for kind, index, _ in numbered(expectations)}
    problems = [f"expectations: {kind} {index} is missing" for kind, index in sorted(numbers - counts.keys())]
    problems += [f"expectations: there is no {kind} {index}" for kind, index in sorted(counts.keys() - numbers)]
    problems += [f"expectations: {kind} {i} is answered twice" for (kind, i), n in sorted(counts.items()) if n > 1]
    return problems + [
        f"expectations: {item.kind} {item.index} is about {name_turn(turn)}, found turn {item.turn}"
        for item in answered
        if item.turn is not None and (turn := _find_turn(item, expectations)) != item.turn
    ]
