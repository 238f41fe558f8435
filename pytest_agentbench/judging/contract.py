"""What a judge must reply, and what a reply is worth: a verdict, or a text that says what is wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from pytest_agentbench.judging.aggregation import numbered
from pytest_agentbench.models import ReplyPart, invalid, read_json
from pytest_agentbench.records import DIMENSIONS, Expectations, ExpectationVerdict, JudgeVerdict, Scored

SCHEMA_NAME = "judge_verdict"
"""The name of the response schema; scripted endpoints know a judge's request by it."""


def response_format(expectations: Expectations) -> dict[str, Any]:
    """The `response_format` of a request for a verdict: a strict JSON Schema, evidence before each score.

    Ranges stand in descriptions: not every endpoint takes `minimum` and `maximum`, and replies are validated anyway.
    """
    scored = _object(
        evidence={"type": "array", "items": {"type": "string"}, "description": "Short observations."},
        score={"type": "number", "description": "0 to 10."},
    )
    parts: dict[str, Any] = {
        "summary": {"type": "string", "description": "One concise overall assessment."},
        "dimensions": _object(**dict.fromkeys(DIMENSIONS, scored)),
        "overall": scored,
    }
    if numbered(expectations):
        verdict = _object(
            kind={"type": "string", "enum": ["hard", "soft"]},
            index={"type": "integer"},
            evidence={"type": "string"},
            met={"type": "number", "description": "0 (not met) to 1 (fully met)."},
        )
        parts["expectations"] = {"type": "array", "items": verdict}
    return structured(SCHEMA_NAME, parts)


def parse_verdict(text: str, expectations: Expectations) -> JudgeVerdict:
    """The verdict in a judge's reply: a JSON object, alone or in the reply's only code fence.

    Raises InvalidReply unless every score is there, a real number in its range, and every expectation of the case has
    exactly one answer. Other keys are ignored.
    """
    reply = read_json(text, _Reply)
    answered = reply.expectations if numbered(expectations) else ()
    problems = _missing_dimensions(reply) + _expectation_problems(answered, expectations)
    if problems:
        raise invalid(problems)
    return JudgeVerdict(
        summary=reply.summary,
        dimensions={name: Scored(**reply.dimensions[name].model_dump()) for name in DIMENSIONS},
        overall=Scored(**reply.overall.model_dump()),
        expectations=tuple(ExpectationVerdict(**each.model_dump()) for each in answered),
    )


class _Score(ReplyPart):
    score: Annotated[float, Field(strict=True, ge=0, le=10, allow_inf_nan=False)]
    evidence: tuple[str, ...]


class _Met(ReplyPart):
    kind: Literal["hard", "soft"]
    index: Annotated[int, Field(strict=True)]
    met: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
    evidence: str = ""


class _Reply(ReplyPart):
    summary: str
    dimensions: dict[str, _Score]
    overall: _Score
    expectations: tuple[_Met, ...] = ()


def structured(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """The `response_format` that asks for an object with exactly these properties, in their order."""
    schema = {"name": name, "strict": True, "schema": _object(**properties)}
    return {"type": "json_schema", "json_schema": schema}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _missing_dimensions(reply: _Reply) -> list[str]:
    return [f"dimensions.{name}: missing" for name in DIMENSIONS if name not in reply.dimensions]


def _expectation_problems(answered: Iterable[_Met], expectations: Expectations) -> list[str]:
    counts = Counter((each.kind, each.index) for each in answered)
    asked = {(kind, index) for kind, index, _ in numbered(expectations)}
    problems = [f"expectations: {kind} {index} is missing" for kind, index in sorted(asked - counts.keys())]
    problems += [f"expectations: there is no {kind} {index}" for kind, index in sorted(counts.keys() - asked)]
    return problems + [
        f"expectations: {kind} {i} is answered twice" for (kind, i), n in sorted(counts.items()) if n > 1
    ]
