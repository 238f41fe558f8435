"""What a replay says of a request that its cassette does not have: how it differs from the nearest one that it has."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from pytest_agentbench.models.cassette_file import readable_yaml

SHOWN_LINES = 40
SHOWN_WIDTH = 160
_COMPARED = 1_000_000
"""How many characters of recorded requests are compared, those with about as many messages first."""
_LINES = 1_000
"""How many lines from the first difference on are aligned."""
_AROUND = 2
"""How many lines around a difference are shown."""
_BEFORE = 40
"""How many characters before the first difference a long line shows."""


def difference(request: dict[str, Any], recorded: Sequence[tuple[int, dict[str, Any]]]) -> tuple[int, str] | None:
    """The number of the nearest of the (number, request) recorded, and a unified diff of it; None where there is none.

    The diff is bounded in lines and in width.
    """
    asked = _lines(request)
    matcher: difflib.SequenceMatcher[str] = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(asked)
    nearest: tuple[float, int, list[str]] | None = None
    compared, messages = 0, _messages(request)
    for number, each in sorted(recorded, key=lambda pair: abs(_messages(pair[1]) - messages)):
        if compared > _COMPARED:
            break
        lines = _lines(each)
        compared += sum(map(len, lines))
        matcher.set_seq1(lines)
        likeness = matcher.quick_ratio()
        if nearest is None or likeness > nearest[0]:
            nearest = likeness, number, lines
    if nearest is None:
        return None
    _, number, lines = nearest
    shown = list(_shown(lines, asked))
    if len(shown) > SHOWN_LINES:
        shown[SHOWN_LINES:] = [f"[... {len(shown) - SHOWN_LINES} more lines differ ...]"]
    return number, "\n".join([f"--- recorded (exchange {number})", "+++ asked now", *shown])


def _messages(request: dict[str, Any]) -> int:
    messages = request.get("messages")
    return len(messages) if isinstance(messages, list) else 0


def _lines(request: dict[str, Any]) -> list[str]:
    return readable_yaml(request, sort_keys=True).splitlines()


def _shown(recorded: list[str], asked: list[str]) -> Iterator[str]:
    """The differing lines with some around each group; a long pair is shown from where it begins to differ."""
    first = max(0, _same(recorded, asked) - _AROUND)
    recorded, asked = recorded[first : first + _LINES], asked[first : first + _LINES]
    matcher = difflib.SequenceMatcher(None, recorded, asked, autojunk=False)
    for number, group in enumerate(matcher.get_grouped_opcodes(_AROUND)):
        if number:
            yield "  ..."
        for kind, a, b, c, d in group:
            if kind == "equal":
                yield from (f"  {_cut(line, 0)}" for line in recorded[a:b])
                continue
            starts = [max(0, _same(old, new) - _BEFORE) for old, new in zip(recorded[a:b], asked[c:d], strict=False)]
            starts += [0] * max(b - a, d - c)
            yield from (f"- {_cut(line, start)}" for line, start in zip(recorded[a:b], starts, strict=False))
            yield from (f"+ {_cut(line, start)}" for line, start in zip(asked[c:d], starts, strict=False))


def _same(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines, or characters of a line, are the same at the beginning."""
    return next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))


def _cut(line: str, start: int) -> str:
    if len(line) <= SHOWN_WIDTH:
        return line
    head = "…" if start else ""
    tail = "…" if start + SHOWN_WIDTH < len(line) else ""
    return f"{head}{line[start : start + SHOWN_WIDTH]}{tail}"
