"""FACT, first stage: a judge lists the statements of a report that are backed by citations."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import StringConstraints

from pytest_agentbench.judging import structured
from pytest_agentbench.models import ReplyPart, read_json
from pytest_agentbench.records import Language
from pytest_agentbench.research.asking import Asking, ReplyCut
from pytest_agentbench.research.fact.citations import Citation, resolved
from pytest_agentbench.research.prompting import stage_messages
from pytest_agentbench.research.replies import TEXT, listed
from pytest_agentbench.research.wording import PROMPT_VERSION, WORDINGS

STAGE = "extract"
_LARGEST_PIECE = 24_000
_SMALLEST_PIECE = 400

_Text = Annotated[str, StringConstraints(strip_whitespace=True)]


class _Entry(ReplyPart):
    fact: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    ref_idx: _Text = ""
    url: _Text = ""


class _Reply(ReplyPart):
    citations: tuple[_Entry, ...]


_FORMAT = structured(f"research_{STAGE}", {"citations": listed(fact=TEXT, ref_idx=TEXT, url=TEXT)})


async def extract(asking: Asking, case_id: str, language: Language, article: str) -> list[Citation]:
    """All citations of an article, in its order. Raises Unscored where a part of it could not be had.

    A part whose reply is cut off is asked for again in halves.
    """
    if not article.strip():
        return []
    pieces = await asyncio.gather(*(_extract(asking, case_id, language, piece) for piece in _pieces(article)))
    return resolved([citation for piece in pieces for citation in piece], article)


async def _extract(asking: Asking, case_id: str, language: Language, piece: str) -> list[Citation]:
    messages = stage_messages(language, WORDINGS[language].extract.format(), article=piece)
    try:
        reply = await asking(STAGE, case_id, messages, _FORMAT, _parse, version=PROMPT_VERSION)
    except ReplyCut:
        if len(piece) < 2 * _SMALLEST_PIECE:
            raise
        halves = [await _extract(asking, case_id, language, half) for half in _halves(piece)]
        return [citation for half in halves for citation in half]
    return [Citation(each.fact, each.ref_idx.strip("[]^ "), each.url) for each in reply.citations]


def _parse(text: str) -> Any:
    return read_json(text, _Reply)


def _pieces(article: str) -> list[str]:
    return [article] if len(article) <= _LARGEST_PIECE else [p for half in _halves(article) for p in _pieces(half)]


def _halves(text: str) -> tuple[str, str]:
    """At the end of a paragraph near the middle, else of a line, else of a sentence, else in the very middle."""
    middle = len(text) // 2
    for end in ("\n\n", "\n", "。", ". "):
        at = max(text.rfind(end, middle // 2, middle), 0) or text.find(end, middle, middle * 3 // 2)
        if at > 0:
            return text[: at + len(end)], text[at + len(end) :]
    return text[:middle], text[middle:]
