"""What a judge must reply, and what a reply is worth: a verdict, or a text that says what is wrong with it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.judging.aggregation import numbered
from pytest_agentbench.records import DIMENSIONS, Expectations, ExpectationVerdict, JudgeVerdict, Scored

SCHEMA_NAME = "judge_verdict"
"""The name of the response schema; scripted endpoints know a judge's request by it."""

MAX_PROBLEMS = 12
# Fences stand at the ends of lines, so that a text inside of the verdict may quote code.
_FENCED = re.compile(r"^[ \t]*```[A-Za-z]*\s(.*?)```[ \t\r]*$", re.DOTALL | re.MULTILINE)
_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)


P = TypeVar("P", bound="Part")


class InvalidReply(AgentbenchError):
    """A reply outside the contract; the text lists what is wrong, as the judge is told it."""


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
    reply = read(text, _Reply)
    answered = reply.expectations if numbered(expectations) else ()
    problems = _missing_dimensions(reply) + _expectation_problems(answered, expectations)
    if problems:
        raise _invalid(problems)
    return JudgeVerdict(
        summary=reply.summary,
        dimensions={name: Scored(**reply.dimensions[name].model_dump()) for name in DIMENSIONS},
        overall=Scored(**reply.overall.model_dump()),
        expectations=tuple(ExpectationVerdict(**each.model_dump()) for each in answered),
    )


class Part(BaseModel):
    """What a reply is made of; other keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Score(Part):
    score: Annotated[float, Field(strict=True, ge=0, le=10, allow_inf_nan=False)]
    evidence: tuple[str, ...]


class _Met(Part):
    kind: Literal["hard", "soft"]
    index: Annotated[int, Field(strict=True)]
    met: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
    evidence: str = ""


class _Reply(Part):
    summary: str
    dimensions: dict[str, _Score]
    overall: _Score
    expectations: tuple[_Met, ...] = ()


def structured(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """The `response_format` that asks for an object with exactly these properties, in their order."""
    schema = {"name": name, "strict": True, "schema": _object(**properties)}
    return {"type": "json_schema", "json_schema": schema}


def read(text: str, form: type[P]) -> P:
    """The JSON object in a reply as a `form`. Raises InvalidReply with everything that is wrong with it."""
    try:
        return form.model_validate(_json_object(text))
    except ValidationError as error:
        raise _invalid([_problem(each) for each in error.errors(include_url=False)]) from error


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _json_object(text: str) -> dict[str, Any]:
    body = _THOUGHTS.sub("", text).strip()
    if not body:
        raise InvalidReply("- the reply is empty")
    fenced = _FENCED.findall(body)
    if len(fenced) > 1:
        raise InvalidReply("- the reply has several code blocks, so it is not clear which is the verdict")
    try:
        found = json.loads(fenced[0] if fenced and not body.startswith("{") else body)
    except (ValueError, RecursionError) as error:
        raise InvalidReply(f"- the reply is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidReply(f"- the reply is a JSON {type(found).__name__}, expected an object")
    # An escaped lone surrogate cannot be written to a file.
    clean: dict[str, Any] = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    return clean


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


def _problem(error: Mapping[str, Any]) -> str:
    where = ".".join(map(str, error["loc"]))
    if error["type"] == "missing":
        return f"{where}: missing"
    found = json.dumps(error["input"], default=str)
    found = found if len(found) <= 80 else f"{found[:80]}..."
    return f"{where}: found {found}; {error['msg'][:1].lower()}{error['msg'][1:]}"


def _invalid(problems: Sequence[str]) -> InvalidReply:
    shown = [f"- {problem}" for problem in problems[:MAX_PROBLEMS]]
    if len(problems) > MAX_PROBLEMS:
        shown.append(f"- and {len(problems) - MAX_PROBLEMS} more")
    return InvalidReply("\n".join(shown))
