"""The longest common subsequence of two lists of tokens, by bit vectors instead of a table.

`compat="v1"` needs it where no extra is installed; and rapidfuzz's LCSseq, the same algorithm, takes twice as long for
lists of 100,000 tokens of a small vocabulary, four times of a large one, without a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

MOST_TOKENS = 100_000
"""Past their common start, texts are compared up to here: one or two seconds, far above any real answer."""

_BLOCK = 16_384  # tokens in one bit vector: bounds the memory of the vectors at some 20 MB


def lcs_length(one: Sequence[str], other: Sequence[str]) -> int:
    """How many tokens a longest common subsequence has; time grows with the product of the lengths / 64.

    Hyyrö 2004, "Bit-parallel LCS-length computation revisited": a bit of `row` per token of `one`, a step per token of
    `other`. Blocks of `one` hand their carries on.
    """
    start = _common(one, other)
    one, other = one[start:], other[start:]
    end = _common(one[::-1], other[::-1])
    one, other = one[: len(one) - end][:MOST_TOKENS], other[: len(other) - end][:MOST_TOKENS]
    carries = bytearray(len(other))
    blocks = (one[at : at + _BLOCK] for at in range(0, len(one), _BLOCK))
    return start + sum(_block_length(block, other, carries) for block in blocks) + end


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many tokens both begin with."""
    return sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(one, other, strict=False)))


def _block_length(block: Sequence[str], other: Sequence[str], carries: bytearray) -> int:
    """The block's part of the length. `carries` holds what enters at each token of `other`, then what leaves."""
    places: dict[str, int] = {}
    for at, token in enumerate(block):
        places[token] = places.get(token, 0) | 1 << at
    size = len(block)
    ones = (1 << size) - 1
    row = ones
    for at, token in enumerate(other):
        matches = row & places.get(token, 0)
        if matches or carries[at]:
            moved = row + matches + carries[at]
            carries[at] = moved >> size
            row = (moved | (row - matches)) & ones
    return size - row.bit_count()
