"""Work of which a model may not say everything at once, and of which nothing paid for gets lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pytest_agentbench.research.asking import ReplyCut

S = TypeVar("S")
T = TypeVar("T")


async def together(*parts: Awaitable[T]) -> list[T]:
    """What all of them give, side by side. The first failure is raised once the others have ended and are kept."""
    ended = await asyncio.gather(*parts, return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException):
            raise each
    return [each for each in ended if not isinstance(each, BaseException)]


async def by_halves(piece: str, smallest: int, answer: Callable[[str], Awaitable[T]]) -> list[tuple[str, T]]:
    """The text, or the pieces for which replies are not cut off, in order, each with its answer.

    Raises ReplyCut where one of fewer than twice `smallest` characters is still too long.
    """
    try:
        return [(piece, await answer(piece))]
    except ReplyCut:
        if len(piece) < 2 * smallest:
            raise
    first, second = await together(*(by_halves(half, smallest, answer) for half in halves(piece)))
    return first + second


async def listed_by_halves(items: list[S], smallest: int, answer: Callable[[list[S]], Awaitable[list[T]]]) -> list[T]:
    """The same of a list: the answers to its parts, one behind the other."""
    try:
        return await answer(items)
    except ReplyCut:
        if len(items) < 2 * smallest:
            raise
    middle = len(items) // 2
    parts = (listed_by_halves(half, smallest, answer) for half in (items[:middle], items[middle:]))
    first, second = await together(*parts)
    return first + second


def halves(text: str) -> tuple[str, str]:
    """At the end of a paragraph near the middle, else of a line, else of a sentence, else in the very middle."""
    middle = len(text) // 2
    for end in ("\n\n", "\n", "。", ". "):
        at = max(text.rfind(end, middle // 2, middle), 0) or text.find(end, middle, middle * 3 // 2)
        if at > 0:
            return text[: at + len(end)], text[at + len(end) :]
    return text[:middle], text[middle:]
