"""An article as RACE judges it, cleaned by a model where that is asked for in place of `cleaned`."""

from __future__ import annotations

import re
from collections import Counter

from pytest_agentbench.judging import InvalidReply, structured
from pytest_agentbench.models import ReplyPart, read_json
from pytest_agentbench.records import Language
from pytest_agentbench.research.asking import Asking
from pytest_agentbench.research.cleaning import prose
from pytest_agentbench.research.pieces import by_halves
from pytest_agentbench.research.prompting import stage_messages
from pytest_agentbench.research.replies import TEXT
from pytest_agentbench.research.wording import PROMPT_VERSION, WORDINGS

STAGE = "clean"
MOST_LOST, MOST_ADDED = 0.1, 0.02
"""Shares of the words that a reply may leave out, and bring in, before it is refused."""
_SMALLEST_PIECE = 400

_FORMAT = structured(f"research_{STAGE}", {"article": TEXT})
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")


class _Reply(ReplyPart):
    article: str


async def clean(asking: Asking, case_id: str, language: Language, article: str, *, number: int = 1) -> str:
    """The article without its apparatus; one whose reply is cut off is asked for in pieces.

    `number` tells the texts of one row apart, for scripts. Raises Unscored where replies keep lacking words of the
    article, or have others.
    """

    async def answer(piece: str) -> str:
        if not _WORD.search(piece):
            return ""
        messages = stage_messages(language, WORDINGS[language].clean.format(), article=piece)
        return await asking(
            STAGE,
            case_id,
            messages,
            _FORMAT,
            lambda text: _parse(text, piece),
            version=PROMPT_VERSION,
            request=number,
            divisible=len(piece) >= 2 * _SMALLEST_PIECE,
        )

    answers = await by_halves(article, _SMALLEST_PIECE, answer)
    return "".join(said.strip() + _space_after(piece) for piece, said in answers if said.strip()).strip()


def _parse(text: str, piece: str) -> str:
    said = read_json(text, _Reply).article
    found, whole, wanted = (Counter(_WORD.findall(each.casefold())) for each in (said, piece, prose(piece)))
    lost = (wanted - found).total() / max(wanted.total(), 1)
    added = (found - whole).total() / max(whole.total(), 1)
    if lost > MOST_LOST:
        raise InvalidReply(f"- article: {lost:.0%} of its text is missing; give all of it back, word for word")
    if added > MOST_ADDED:
        raise InvalidReply(f"- article: {added:.0%} of it is text that the article does not have; add nothing")
    return said


def _space_after(piece: str) -> str:
    return piece[len(piece.rstrip()) :]
