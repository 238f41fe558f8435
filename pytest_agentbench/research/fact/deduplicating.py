"""FACT, second stage: of the statements that cite one page, those that say the same are kept once."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from pytest_agentbench.judging import InvalidReply, structured
from pytest_agentbench.models import ReplyPart, read_json
from pytest_agentbench.records import Language
from pytest_agentbench.research.asking import Asking
from pytest_agentbench.research.pieces import listed_by_halves
from pytest_agentbench.research.prompting import stage_messages
from pytest_agentbench.research.wording import PROMPT_VERSION, WORDINGS

STAGE = "deduplicate"
_FEWEST = 2
"""Statements that are compared, however short replies have to be."""

_FORMAT = structured(f"research_{STAGE}", {"kept": {"type": "array", "items": {"type": "integer"}}})


class _Reply(ReplyPart):
    kept: tuple[Annotated[int, Field(strict=True)], ...]


async def deduplicate(
    asking: Asking, case_id: str, language: Language, facts: list[str], request: int = 1
) -> list[str]:
    """The statements that are kept, in their order. One alone is kept without asking. Raises Unscored.

    Where the reply is cut off each half is asked about alone: two that say the same may stay then. `request` numbers
    the page for scripts.
    """

    async def kept(part: list[str]) -> list[str]:
        return await _deduplicate(asking, case_id, language, part, request) if len(part) > 1 else part

    return await listed_by_halves(facts, _FEWEST, kept)


async def _deduplicate(asking: Asking, case_id: str, language: Language, facts: list[str], request: int) -> list[str]:
    messages = stage_messages(language, WORDINGS[language].deduplicate.format(), statements=numbered(facts))

    def parse(text: str) -> list[int]:
        kept = sorted(set(read_json(text, _Reply).kept))
        if not kept or kept[0] < 0 or kept[-1] >= len(facts):
            raise InvalidReply(f"- kept: found {kept}, expected at least one number from 0 to {len(facts) - 1}")
        return kept

    divisible = len(facts) >= 2 * _FEWEST
    kept = await asking(
        STAGE, case_id, messages, _FORMAT, parse, version=PROMPT_VERSION, request=request, divisible=divisible
    )
    return [facts[number] for number in kept]


def numbered(facts: list[str]) -> str:
    """The statements as a judge sees them, one a line, counted from 0."""
    return "\n".join(json.dumps({"idx": number, "fact": fact}, ensure_ascii=False) for number, fact in enumerate(facts))
