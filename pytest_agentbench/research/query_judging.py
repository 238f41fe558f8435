"""The value of a query: a judge scores its seven dimensions (seed 003, query_selector)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from pytest_agentbench.judging import structured
from pytest_agentbench.models import ReplyPart, as_form, json_object
from pytest_agentbench.records import Language
from pytest_agentbench.research.asking import Asking
from pytest_agentbench.research.prompting import stage_messages
from pytest_agentbench.research.query_rows import Classification
from pytest_agentbench.research.query_value import LOWEST, QUERY_DIMENSIONS, TOP, query_value
from pytest_agentbench.research.replies import TEXT, exactly, parts
from pytest_agentbench.research.wording import PROMPT_VERSION, WORDINGS

STAGE = "select"

_SCORE = exactly(reason=TEXT, score={"type": "integer", "description": "1 to 5."})
_FORMAT = structured(
    f"research_{STAGE}",
    {
        **{each.letter: _SCORE for each in QUERY_DIMENSIONS},
        "domain": {"type": ["string", "null"]},
        "complexity_level": {"type": ["integer", "null"], "description": "1 to 5."},
    },
)


class _Score(ReplyPart):
    score: Annotated[int, Field(strict=True, ge=LOWEST, le=TOP)]
    reason: str = ""


class _Classification(ReplyPart):
    domain: Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)] | None = None
    complexity_level: Annotated[int, Field(strict=True, ge=LOWEST, le=TOP)] | None = None


async def score_query(
    asking: Asking, case_id: str, language: Language, query: str
) -> tuple[dict[str, Any], Classification]:
    """What query_scores.json has as `scoring_result`, and what the judge takes the query for. Raises Unscored.

    `scoring_result` has `scores` by dimension, each with its reason, and the `overall_score`.
    """
    wording = WORDINGS[language]
    names = {each.letter: each.chinese if language == "zh" else each.english for each in QUERY_DIMENSIONS}
    scales = "\n".join(f"- {letter} ({name}): {wording.query_dimensions[letter]}" for letter, name in names.items())
    messages = stage_messages(language, wording.select.format(scales=scales), query=query)
    scores, classification = await asking(STAGE, case_id, messages, _FORMAT, _parse, version=PROMPT_VERSION)
    value = query_value({key: each.score for key, each in scores.items()})
    said = {key: {"score": each.score, "reason": each.reason} for key, each in scores.items()}
    return {"scores": said, "overall_score": value}, classification


def _parse(text: str) -> tuple[dict[str, _Score], Classification]:
    found = parts(text, (each.letter for each in QUERY_DIMENSIONS), _Score)
    told = as_form(json_object(text), _Classification)
    return (
        {each.key: found[each.letter] for each in QUERY_DIMENSIONS},
        Classification(domain=told.domain or None, complexity_level=told.complexity_level),
    )
