"""Markdown of a bounded size: blocks in the order of their weight, of which the first ones take what they need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_NOTE = 80
"""Bytes that the note on what is left out takes at most."""


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, or lines (`items`) between `head` and `tail`, of which as many as fit are kept."""

    head: str
    items: Sequence[str] = ()
    tail: str = ""

    def within(self, room: int) -> str | None:
        """The block in at most `room` bytes; None where its head and one line do not fit."""
        kept, left = [], room - _size(self.head) - _size(self.tail) - _NOTE
        for item in self.items:
            left -= _size(item) + 1
            if left < 0:
                break
            kept.append(item)
        if left < 0 and not kept:
            return None
        lacking = len(self.items) - len(kept)
        note = f"\n\n… and {lacking:,} more, see the report." if lacking else ""
        lines = "\n".join([self.head, *kept]) if self.head else "\n".join(kept)
        return f"{lines}{note}{self.tail}"


def table(head: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Block:
    """A table below a heading; all columns but the first are flush right. Cells are Markdown already."""
    rule = f"|---|{'---:|' * (len(titles) - 1)}"
    above = f"{head}\n\n" if head else ""
    return Block(f"{above}{_line(titles)}\n{rule}", [_line(row) for row in rows])


def folded(summary: str, block: Block) -> Block:
    """The block behind a line that opens it."""
    return Block(
        f"<details>\n<summary>{summary}</summary>\n\n{block.head}".rstrip("\n") + ("" if block.head else "\n"),
        block.items,
        f"{block.tail}\n\n</details>",
    )


def listed(head: str, items: Sequence[str], shown: int, rest: str) -> list[Block]:
    """A list of which the first `shown` items are open, and the others behind a line that says how many they are."""
    if not items:
        return []
    blocks = [Block(f"{head}\n" if head else "", items[:shown])]
    if len(items) > shown:
        blocks.append(folded(f"{len(items) - shown:,} {rest}", Block("", items[shown:])))
    return blocks


def joined(blocks: Iterable[Block], last: str, limit: int) -> str:
    """The blocks with `last` at their end, in at most `limit` bytes of UTF-8. A block that does not fit is left out."""
    room = limit - _size(last) - 1 - _NOTE
    texts, dropped = [], 0
    for block in blocks:
        text = block.within(room - 2)
        if text is None:
            dropped += 1
        else:
            texts.append(text)
            room -= _size(text) + 2
    if dropped:
        texts.append("More would not fit here; the report has all of it.")
    return "\n\n".join([*texts, last]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _size(text: str) -> int:
    return len(text.encode())
