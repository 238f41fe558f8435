"""Raw queries: `raw_query.md` or CSV to numbered queries with a title (seed 003, query_selector)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEADING = re.compile(r"^####\s+\*\*\s*Query\s*(?:\*\*\s*\*\*)?\s*(\d+)\s*[:：]\s*(.*?)\s*$", re.MULTILINE)
_ENDS = re.compile(r"^(?:#{1,6}\s|\*\s\*\s\*)", re.MULTILINE)
_QUOTES = {'"': '"', "“": "”", "「": "」"}


@dataclass(frozen=True, slots=True)
class RawQuery:
    """A query as it is proposed; `line` is that of its heading or row, from 1."""

    number: int
    title: str
    content: str
    line: int


def markdown_queries(text: str) -> list[RawQuery]:
    """The queries of a Markdown text: headings `#### **Query N: title**`, each followed by its content in quotes.

    What stands behind the last quote is a note and left out; content without quotes is taken whole.
    """
    found = []
    for heading in _HEADING.finditer(text):
        end = _ENDS.search(text, heading.end())
        block = text[heading.end() : end.start() if end else len(text)].strip()
        title = heading[2].replace("**", "").strip()
        found.append(RawQuery(int(heading[1]), title, _unquoted(block), text.count("\n", 0, heading.start()) + 1))
    return found


def _unquoted(block: str) -> str:
    closing = _QUOTES.get(block[:1])
    end = block.rfind(closing) if closing else -1
    return block[1:end].strip() if end > 0 else block
