"""The value of a query: a judge scores its seven dimensions (seed 003, query_selector)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from pytest_agentbench.judging import structured
from pytest_agentbench.models import ReplyPart
from pytest_agentbench.records import Language
from pytest_agentbench.research.asking import Asking
from pytest_agentbench.research.prompting import stage_messages
from pytest_agentbench.research.query_value import LOWEST, QUERY_DIMENSIONS, TOP, query_value
from pytest_agentbench.research.replies import TEXT, exactly, parts
from pytest_agentbench.research.wording import PROMPT_VERSION, WORDINGS

STAGE = "select"

_SCORE = exactly(reason=TEXT, score={"type": "integer", "description": "1 to 5."})
_FORMAT = structured(f"research_{STAGE}", {each.letter: _SCORE for each in QUERY_DIMENSIONS})


class _Score(ReplyPart):
    score: Annotated[int, Field(strict=True, ge=LOWEST, le=TOP)]
    reason: str = ""


async def score_query(asking: Asking, case_id: str, language: Language, query: str) -> dict[str, Any]:
    """What query_scores.json has as `scoring_result`: `scores` by dimension, `overall_score`. Raises Unscored."""
    wording = WORDINGS[language]
    names = {each.letter: each.chinese if language == "zh" else each.english for each in QUERY_DIMENSIONS}
    scales = "\n".join(f"- {letter} ({name}): {wording.query_dimensions[letter]}" for letter, name in names.items())
    messages = stage_messages(language, wording.select.format(scales=scales), query=query)
    scores = await asking(STAGE, case_id, messages, _FORMAT, _parse, version=PROMPT_VERSION)
    return {"scores": scores, "overall_score": query_value({key: each["score"] for key, each in scores.items()})}


def _parse(text: str) -> dict[str, dict[str, Any]]:
    found = parts(text, (each.letter for each in QUERY_DIMENSIONS), _Score)
    scores = {each.key: found[each.letter] for each in QUERY_DIMENSIONS}
    return {key: {"score": each.score, "reason": each.reason} for key, each in scores.items()}
