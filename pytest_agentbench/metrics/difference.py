"""The ratio of difflib with a bound: its time may grow with the cube of the texts' length."""

from __future__ import annotations

import difflib
from itertools import accumulate

MOST_STEPS = 30_000_000
"""Comparisons of two characters: some seconds."""

_EACH = 5  # what a character costs whatever it is compared with


def similarity_ratio(one: str, other: str) -> float:
    """`SequenceMatcher(None, one, other).ratio()`; past MOST_STEPS no further matching blocks are looked for."""
    return 1.0 if one == other else _BoundedMatcher(one, other).ratio()


class _BoundedMatcher(difflib.SequenceMatcher[str]):
    a: str
    b2j: dict[str, list[int]]  # where each character stands in the other text

    def __init__(self, one: str, other: str) -> None:
        super().__init__(None, one, other)
        self._left = MOST_STEPS
        self._steps = list(accumulate((_EACH + len(self.b2j.get(each, ())) for each in one), initial=0))

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        self._left -= self._steps[len(self.a) if ahi is None else ahi] - self._steps[alo]
        if self._left < 0:
            return difflib.Match(alo, blo, 0)
        return super().find_longest_match(alo, ahi, blo, bhi)
