"""The gate: only tasks that can be solved and are of use pass (seed 004, 4.2 and A.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from pytest_agentbench.judging import structured
from pytest_agentbench.models import Block, ReplyPart, read_json
from pytest_agentbench.synthesis.base import Catalogue, Kind, Quality, Reason
from pytest_agentbench.synthesis.prompting import Filling, request, tools_block
from pytest_agentbench.synthesis.wording import Wording

LEAST_SOLVABILITY = 9.0
LEAST_UTILITY = 5.0
"""Of 10; seed 004, 4.2."""

_FEEDBACK = {"type": "string"}
_SCORE = {"type": "number", "description": "1 to 10."}
QUALITY_FORMAT = structured(
    "task_quality",
    {
        "solvability_feedback": _FEEDBACK,
        "utility_feedback": _FEEDBACK,
        "solvability_score": _SCORE,
        "utility_score": _SCORE,
    },
)


def gate_request(wording: Wording, detailed: str, fuzzy: str, catalogues: Sequence[Catalogue]) -> list[dict[str, str]]:
    """Asks how good a task is."""
    fillings: dict[str, Filling] = {
        "task": [Block("task", detailed)],
        "fuzzy": [Block("request", fuzzy)],
        "tools": [tools_block(catalogues)],
    }
    return request(wording, wording.quality, fillings)


class _Reply(ReplyPart):
    solvability_score: Annotated[float, Field(strict=True, ge=1, le=10, allow_inf_nan=False)]
    utility_score: Annotated[float, Field(strict=True, ge=1, le=10, allow_inf_nan=False)]
    solvability_feedback: str = ""
    utility_feedback: str = ""


def read_quality(text: str) -> Quality:
    """The scores in a reply. Raises InvalidReply where one is missing, is no number, or is out of range."""
    reply = read_json(text, _Reply)
    return Quality(
        solvability=reply.solvability_score,
        utility=reply.utility_score,
        solvability_feedback=reply.solvability_feedback,
        utility_feedback=reply.utility_feedback,
    )


def shortcomings(quality: Quality) -> Iterator[Reason]:
    """Why a task of this quality does not pass."""
    scores: tuple[tuple[Kind, float, float, str], ...] = (
        ("solvability", quality.solvability, LEAST_SOLVABILITY, quality.solvability_feedback),
        ("utility", quality.utility, LEAST_UTILITY, quality.utility_feedback),
    )
    for kind, score, least, feedback in scores:
        if score < least:
            yield Reason(kind=kind, text=f"scored {score:g}, expected at least {least:g}: {feedback}")
