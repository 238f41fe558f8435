"""FACT, first stage: a judge lists the statements of a report that are backed by citations."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, StringConstraints

from pytest_agentbench.judging import structured
from pytest_agentbench.models import ReplyPart, read_json
from pytest_agentbench.records import Language
from pytest_agentbench.research.asking import Asking
from pytest_agentbench.research.fact.addresses import resolved
from pytest_agentbench.research.fact.citations import Citation
from pytest_agentbench.research.pieces import by_halves, halves, together
from pytest_agentbench.research.prompting import stage_messages
from pytest_agentbench.research.replies import TEXT, listed
from pytest_agentbench.research.wording import PROMPT_VERSION, WORDINGS

STAGE = "extract"
_LARGEST_PIECE = 24_000
_SMALLEST_PIECE = 400


def _as_text(value: Any) -> Any:
    return "" if value is None else str(value) if type(value) is int else value


AnyText = Annotated[str, BeforeValidator(_as_text)]
"""A text; null is an empty one, a number is its digits."""
_Text = Annotated[AnyText, StringConstraints(strip_whitespace=True)]


class _Entry(ReplyPart):
    fact: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    ref_idx: _Text = ""
    url: _Text = ""


class _Reply(ReplyPart):
    citations: tuple[_Entry, ...]


_FORMAT = structured(f"research_{STAGE}", {"citations": listed(fact=TEXT, ref_idx=TEXT, url=TEXT)})


async def extract(asking: Asking, case_id: str, language: Language, article: str) -> list[Citation]:
    """All citations of an article, in its order. Raises Unscored where a part of it could not be had.

    A part whose reply is cut off is asked for again in halves. An address that stands nowhere in the article is not
    believed: the citation has the one of its marker, else none.
    """
    if not article.strip():
        return []
    parts = enumerate(_pieces(article), 1)
    pieces = await together(*(_extract(asking, case_id, language, piece, number) for number, piece in parts))
    return resolved([citation for piece in pieces for citation in piece], article)


async def _extract(asking: Asking, case_id: str, language: Language, piece: str, number: int) -> list[Citation]:
    async def reply(part: str) -> _Reply:
        messages = stage_messages(language, WORDINGS[language].extract.format(), article=part)
        return await asking(
            STAGE,
            case_id,
            messages,
            _FORMAT,
            _parse,
            version=PROMPT_VERSION,
            request=number,
            divisible=len(part) >= 2 * _SMALLEST_PIECE,
        )

    entries = (each for _, part in await by_halves(piece, _SMALLEST_PIECE, reply) for each in part.citations)
    return [Citation(each.fact, each.ref_idx.strip("[]【】^ "), each.url) for each in entries]


def _parse(text: str) -> Any:
    return read_json(text, _Reply)


def _pieces(article: str) -> list[str]:
    return [article] if len(article) <= _LARGEST_PIECE else [p for half in halves(article) for p in _pieces(half)]
