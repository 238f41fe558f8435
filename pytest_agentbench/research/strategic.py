"""Strategic value: a judge's eight scores, and the knowledge that a report adds to what is known or uses of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, StringConstraints

from pytest_agentbench.judging import InvalidReply, structured
from pytest_agentbench.models import ReplyPart, read_json
from pytest_agentbench.records import Language
from pytest_agentbench.research.asking import Asking
from pytest_agentbench.research.knowledge import Unit
from pytest_agentbench.research.prompting import stage_messages
from pytest_agentbench.research.replies import NUMBER, TEXT, exactly, listed, parts
from pytest_agentbench.research.strategic_scores import LOWEST, STRATEGIC_SCORES, TOP
from pytest_agentbench.research.wording import PROMPT_VERSION, WORDINGS

STAGE, KNOWLEDGE_STAGE = "strategic", "knowledge"
MOST_UNITS = 10

_FORMAT = structured(f"research_{STAGE}", {name: exactly(reason=TEXT, score=NUMBER) for name in STRATEGIC_SCORES})
_KNOWLEDGE_FORMAT = structured(
    f"research_{KNOWLEDGE_STAGE}",
    {
        "units": listed(text=TEXT, quality=NUMBER),
        "reused": {"type": "array", "items": TEXT},
    },
)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What a report is worth to later tasks: units that it adds, texts with qualities of 0-1, and ids that it uses."""

    units: tuple[tuple[str, float], ...]
    reused: tuple[str, ...]


class _Score(ReplyPart):
    score: Annotated[float, Field(strict=True, ge=LOWEST, le=TOP, allow_inf_nan=False)]
    reason: str = ""


class _Unit(ReplyPart):
    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    quality: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]


class _Knowledge(ReplyPart):
    units: tuple[_Unit, ...]
    reused: tuple[str, ...] = ()


async def judge_strategic(
    asking: Asking, case_id: str, language: Language, query: str, article: str
) -> dict[str, tuple[float, str]]:
    """Each of the eight scores (1-5) with its reason. Raises Unscored: no score is ever a default."""
    messages = stage_messages(language, WORDINGS[language].strategic.format(), query=query, article=article)
    return await asking(STAGE, case_id, messages, _FORMAT, _parse, version=PROMPT_VERSION)


def _parse(text: str) -> dict[str, tuple[float, str]]:
    scores = parts(text, STRATEGIC_SCORES, _Score)
    return {name: (each.score, each.reason) for name, each in scores.items()}


async def draw_knowledge(
    asking: Asking, case_id: str, language: Language, article: str, known: Sequence[Unit]
) -> Knowledge:
    """What the article adds and what of the known units it uses. Raises Unscored."""
    shown = "\n".join(json.dumps({"id": each.id, "text": each.text}, ensure_ascii=False) for each in known)
    task = WORDINGS[language].knowledge.format(most=MOST_UNITS)
    messages = stage_messages(language, task, article=article, known=shown or "[]")
    ids = {each.id for each in known}

    def parse(text: str) -> Knowledge:
        reply = read_json(text, _Knowledge)
        unknown = [each for each in reply.reused if each not in ids]
        if unknown:
            raise InvalidReply("\n".join(f"- reused: there is no known unit {each!r}" for each in unknown))
        units = tuple((each.text, each.quality) for each in reply.units[:MOST_UNITS])
        return Knowledge(units, tuple(dict.fromkeys(reply.reused)))

    return await asking(KNOWLEDGE_STAGE, case_id, messages, _KNOWLEDGE_FORMAT, parse, version=PROMPT_VERSION)
