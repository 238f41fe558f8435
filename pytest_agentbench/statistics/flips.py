"""The number of flips in a series of verdicts, and how likely it is by chance."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def count_flips(segments: Sequence[Sequence[bool]]) -> int:
    """Return how often a verdict differs from the one before it, within each segment."""
    return sum(one != other for segment in segments for one, other in pairwise(segment))


def flips_tail(flips: int, lengths: Sequence[int], fail_rate: float) -> float:
    """Return the probability of at least so many flips if each run fails independently with the same probability.

    `lengths` are the numbers of runs in each segment; between two segments no flip counts. A series with `flips` flips
    has `flips + 1` runs in the sense of the theory of runs, whose exact distribution (Mood 1940,
    doi:10.1214/aoms/1177731825) is summed here step by step.
    """
    if flips <= 0:
        return 1.0
    # Probabilities of 0, 1, ... flips so far, up to one less than `flips`
    below = [1.0] + [0.0] * (flips - 1)
    for length in lengths:
        if not length:
            continue
        passed = [(1 - fail_rate) * probability for probability in below]
        failed = [fail_rate * probability for probability in below]
        for _ in range(length - 1):
            passed, failed = (
                [(1 - fail_rate) * (same + flipped) for same, flipped in zip(passed, [0.0, *failed], strict=False)],
                [fail_rate * (same + flipped) for same, flipped in zip(failed, [0.0, *passed], strict=False)],
            )
        below = [one + other for one, other in zip(passed, failed, strict=True)]
    return max(0.0, 1 - sum(below))
