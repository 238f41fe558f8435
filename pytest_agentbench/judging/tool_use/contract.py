"""What a judge must reply for an MCP task: six scores, and before them the reasoning for each (seed 004, A.4)."""

from __future__ import annotations

from statistics import fmean
from typing import Annotated

from pydantic import Field, StringConstraints

from pytest_agentbench.judging.contract import structured
from pytest_agentbench.models import TOOL_USE_SCHEMA, ReplyPart, read_json, reasoning_key
from pytest_agentbench.records import TOOL_USE_DIMENSIONS, JudgeVerdict, Scored

TOOL_USE_FORMAT = structured(
    TOOL_USE_SCHEMA,
    {
        reasoning_key(name): {"type": "string", "description": f"Why {name} is what it is."}
        for name in TOOL_USE_DIMENSIONS
    }
    | {name: {"type": "number", "description": "1 to 10."} for name in TOOL_USE_DIMENSIONS},
)
"""The `response_format` of a request. Ranges stand in descriptions, as not every endpoint takes `minimum`."""

_Reasoning = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]
_Score = Annotated[float, Field(strict=True, ge=1, le=10, allow_inf_nan=False)]


class _Reply(ReplyPart):
    task_fulfillment_reasoning: _Reasoning
    grounding_reasoning: _Reasoning
    tool_appropriateness_reasoning: _Reasoning
    parameter_accuracy_reasoning: _Reasoning
    dependency_awareness_reasoning: _Reasoning
    parallelism_efficiency_reasoning: _Reasoning
    task_fulfillment: _Score
    grounding: _Score
    tool_appropriateness: _Score
    parameter_accuracy: _Score
    dependency_awareness: _Score
    parallelism_and_efficiency: _Score


def parse_tool_use(text: str) -> JudgeVerdict:
    """The verdict in a reply, its overall score the mean of the six; the reasoning is each dimension's evidence.

    Raises InvalidReply unless every score is a number from 1 to 10, and every reasoning says something.
    """
    reply = read_json(text, _Reply).model_dump()
    dimensions = {
        name: Scored(score=reply[name], evidence=(reply[reasoning_key(name)],)) for name in TOOL_USE_DIMENSIONS
    }
    overall = Scored(score=fmean(scored.score for scored in dimensions.values()))
    return JudgeVerdict(summary="", dimensions=dimensions, overall=overall)
