"""Raw queries: `raw_query.md` or CSV to numbered queries with a title (seed 003, query_selector)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEADING = re.compile(
    r"^####[ \t]+\*\*[ \t]*Query[ \t]*(?:\*\*[ \t]*\*\*[ \t]*)?(\d{1,9})[ \t]*[:：]([^\n]*)$", re.MULTILINE
)
_SECTION = re.compile(r"^#{1,3}[ \t]+([^\n]*)$", re.MULTILINE)
_ENDS = re.compile(r"^(?:#{1,6}\s|\*\s\*\s\*)", re.MULTILINE)
_QUOTES = {'"': '"', "“": "”", "「": "」"}


@dataclass(frozen=True, slots=True)
class RawQuery:
    """A query as it is proposed; `line` is that of its heading or row, from 1.

    `topic` is the section that it stands in, None where it stands in none.
    """

    number: int
    title: str
    content: str
    line: int
    topic: str | None = None


def markdown_queries(text: str) -> list[RawQuery]:
    """The queries of a Markdown text: headings `#### **Query N: title**`, each followed by its content in quotes.

    What stands behind the last quote is a note and left out; content without quotes is taken whole.
    """
    found = []
    line, counted = 1, 0
    sections = _SECTION.finditer(text)
    section = next(sections, None)
    topic = None
    for heading in _HEADING.finditer(text):
        while section is not None and section.start() < heading.start():
            topic, section = _plain(section[1]) or None, next(sections, None)
        end = _ENDS.search(text, heading.end())
        block = text[heading.end() : end.start() if end else len(text)].strip()
        line, counted = line + text.count("\n", counted, heading.start()), heading.start()
        found.append(RawQuery(int(heading[1]), _plain(heading[2]), _unquoted(block), line, topic))
    return found


def _plain(heading: str) -> str:
    return heading.replace("**", "").strip()


def _unquoted(block: str) -> str:
    closing = _QUOTES.get(block[:1])
    end = block.rfind(closing) if closing else -1
    return block[1:end].strip() if end > 0 else block
