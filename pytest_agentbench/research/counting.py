"""What can be counted in a report: citations, sources, words (spec/research.md, convert)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MARKER = re.compile(r"\[([0-9]+)\]")
_WORD = re.compile("[\u4e00-\u9fff]|[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Counted:
    """`citations` are markers such as `[3]`, `sources` the numbers among them, `words` Chinese characters and runs of
    Latin letters."""

    citations: int
    sources: int
    words: int


def counted(article: str) -> Counted:
    """What is in the text of a report."""
    markers = _MARKER.findall(article)
    return Counted(len(markers), len({number.lstrip("0") for number in markers}), len(_WORD.findall(article)))
