"""What a judge is asked about a report's strategic value: eight scores, its knowledge, what it uses of the known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, StringConstraints

from pytest_agentbench.judging import structured
from pytest_agentbench.models import ReplyPart, invalid, read_json
from pytest_agentbench.records import Language
from pytest_agentbench.research.asking import Asking
from pytest_agentbench.research.knowledge import Unit, unit
from pytest_agentbench.research.prompting import stage_messages
from pytest_agentbench.research.replies import NUMBER, TEXT, exactly, listed, parts
from pytest_agentbench.research.strategic_scores import LOWEST, STRATEGIC_SCORES, TOP
from pytest_agentbench.research.wording import PROMPT_VERSION, WORDINGS

STAGE, KNOWLEDGE_STAGE, REUSE_STAGE = "strategic", "knowledge", "reuse"

_FORMAT = structured(f"research_{STAGE}", {name: exactly(reason=TEXT, score=NUMBER) for name in STRATEGIC_SCORES})
_KNOWLEDGE_FORMAT = structured(f"research_{KNOWLEDGE_STAGE}", {"units": listed(text=TEXT, quality=NUMBER)})
_REUSE_FORMAT = structured(f"research_{REUSE_STAGE}", {"reused": {"type": "array", "items": TEXT}})


class _Score(ReplyPart):
    score: Annotated[float, Field(strict=True, ge=LOWEST, le=TOP, allow_inf_nan=False)]
    reason: str = ""


class _Unit(ReplyPart):
    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    quality: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]


class _Knowledge(ReplyPart):
    units: tuple[_Unit, ...]


class _Reuse(ReplyPart):
    reused: tuple[str, ...]


async def judge_strategic(
    asking: Asking, case_id: str, language: Language, query: str, article: str
) -> dict[str, tuple[float, str]]:
    """Each of the eight scores (1-5) with its reason. Raises Unscored: no score is ever a default."""
    messages = stage_messages(language, WORDINGS[language].strategic.format(), query=query, article=article)
    return await asking(STAGE, case_id, messages, _FORMAT, _parse, version=PROMPT_VERSION)


def _parse(text: str) -> dict[str, tuple[float, str]]:
    scores = parts(text, STRATEGIC_SCORES, _Score)
    return {name: (each.score, each.reason) for name, each in scores.items()}


async def draw_knowledge(asking: Asking, case_id: str, language: Language, article: str, most: int) -> list[Unit]:
    """The units of knowledge that the article has, at most `most`, each once. Raises Unscored."""
    task = WORDINGS[language].knowledge.format(most=most)
    messages = stage_messages(language, task, article=article)

    def parse(text: str) -> list[Unit]:
        units = (unit(each.text, each.quality) for each in read_json(text, _Knowledge).units[:most])
        return list({each.id: each for each in units}.values())

    return await asking(KNOWLEDGE_STAGE, case_id, messages, _KNOWLEDGE_FORMAT, parse, version=PROMPT_VERSION)


async def confirm_reuse(
    asking: Asking, case_id: str, language: Language, article: str, candidates: Sequence[Unit]
) -> list[Unit]:
    """Those of the known units that the article states, as the judge says. Raises Unscored."""
    shown = "\n".join(json.dumps({"id": each.id, "text": each.text}, ensure_ascii=False) for each in candidates)
    messages = stage_messages(language, WORDINGS[language].reuse.format(), article=article, known=shown)
    by_id = {each.id: each for each in candidates}

    def parse(text: str) -> list[Unit]:
        reused = dict.fromkeys(read_json(text, _Reuse).reused)
        unknown = [each for each in reused if each not in by_id]
        if unknown:
            raise invalid([f"reused: there is no known unit {each!r}" for each in unknown])
        return [by_id[each] for each in reused]

    return await asking(REUSE_STAGE, case_id, messages, _REUSE_FORMAT, parse, version=PROMPT_VERSION)
