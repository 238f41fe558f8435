"""FACT, fourth stage: a judge says of each statement whether the page that it cites backs it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from pytest_agentbench.judging import InvalidReply, structured
from pytest_agentbench.models import ReplyPart, clipped, read_json
from pytest_agentbench.records import Language
from pytest_agentbench.research.asking import Asking
from pytest_agentbench.research.fact.deduplicating import numbered
from pytest_agentbench.research.fact.statistics import Label
from pytest_agentbench.research.prompting import stage_messages
from pytest_agentbench.research.replies import TEXT, listed
from pytest_agentbench.research.wording import PROMPT_VERSION, WORDINGS

STAGE = "validate"
SCRAPE_FAILED = "scrape failed: "
"""How the content begins of a page that could not be had."""
_MOST_AT_ONCE = 20
_SHOWN = 60_000

_LABEL = {"type": "string", "enum": ["supported", "unsupported", "unknown"]}
_FORMAT = structured(f"research_{STAGE}", {"results": listed(idx={"type": "integer"}, reason=TEXT, result=_LABEL)})


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


class _Entry(ReplyPart):
    idx: Annotated[int, Field(strict=True)]
    reason: str = ""
    result: Annotated[Label, BeforeValidator(_lower)]


class _Reply(ReplyPart):
    results: tuple[_Entry, ...]


async def validate(asking: Asking, case_id: str, language: Language, page: str, facts: list[str]) -> list[Label]:
    """A label for each statement. Of a page that could not be had all are unknown without asking. Raises Unscored."""
    if page.startswith(SCRAPE_FAILED) or not page.strip():
        return ["unknown"] * len(facts)
    groups = [facts[at : at + _MOST_AT_ONCE] for at in range(0, len(facts), _MOST_AT_ONCE)]
    shown = clipped(page, _SHOWN)
    labels = await asyncio.gather(*(_validate(asking, case_id, language, shown, group) for group in groups))
    return [label for group in labels for label in group]


async def _validate(asking: Asking, case_id: str, language: Language, page: str, facts: list[str]) -> list[Label]:
    messages = stage_messages(language, WORDINGS[language].validate.format(), page=page, statements=numbered(facts))

    def parse(text: str) -> list[Label]:
        results = read_json(text, _Reply).results
        counts = Counter(each.idx for each in results)
        wrong = [number for number in range(len(facts)) if counts[number] != 1]
        unknown = sorted(counts.keys() - set(range(len(facts))))
        if wrong or unknown:
            raise InvalidReply(
                f"- results: expected each idx from 0 to {len(facts) - 1} once; "
                f"missing or repeated: {wrong}, not asked for: {unknown}"
            )
        return [each.result for each in sorted(results, key=lambda each: each.idx)]

    return await asking(STAGE, case_id, messages, _FORMAT, parse, version=PROMPT_VERSION)
