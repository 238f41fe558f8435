"""FACT, second stage: of the statements that cite one page, those that say the same are kept once."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from pytest_agentbench.judging import InvalidReply, structured
from pytest_agentbench.models import ReplyPart, read_json
from pytest_agentbench.records import Language
from pytest_agentbench.research.asking import Asking
from pytest_agentbench.research.prompting import stage_messages
from pytest_agentbench.research.wording import PROMPT_VERSION, WORDINGS

STAGE = "deduplicate"

_FORMAT = structured(f"research_{STAGE}", {"kept": {"type": "array", "items": {"type": "integer"}}})


class _Reply(ReplyPart):
    kept: tuple[Annotated[int, Field(strict=True)], ...]


async def deduplicate(asking: Asking, case_id: str, language: Language, facts: list[str]) -> list[str]:
    """The statements that are kept, in their order. One alone is kept without asking. Raises Unscored."""
    if len(facts) < 2:
        return facts
    messages = stage_messages(language, WORDINGS[language].deduplicate.format(), statements=numbered(facts))

    def parse(text: str) -> list[int]:
        kept = sorted(set(read_json(text, _Reply).kept))
        if not kept or kept[0] < 0 or kept[-1] >= len(facts):
            raise InvalidReply(f"- kept: found {kept}, expected at least one number from 0 to {len(facts) - 1}")
        return kept

    kept = await asking(STAGE, case_id, messages, _FORMAT, parse, version=PROMPT_VERSION)
    return [facts[number] for number in kept]


def numbered(facts: list[str]) -> str:
    """The statements as a judge sees them, one a line, counted from 0."""
    return "\n".join(json.dumps({"idx": number, "fact": fact}, ensure_ascii=False) for number, fact in enumerate(facts))
