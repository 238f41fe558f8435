"""Flips of verdicts against all possible series, counted one by one."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest

from pytest_agentbench.statistics.flips import count_flips, flips_tail


def enumerate_tail(flips: int, lengths: list[int], fail_rate: float) -> float:
    def split(series: tuple[bool, ...]) -> list[tuple[bool, ...]]:
        ends = [sum(lengths[: at + 1]) for at in range(len(lengths))]
        return [series[end - length : end] for end, length in zip(ends, lengths, strict=True)]

    every = product((True, False), repeat=sum(lengths))
    return sum(
        prod(1 - fail_rate if passed else fail_rate for passed in series)
        for series in every
        if count_flips(split(series)) >= flips
    )


@pytest.mark.parametrize("lengths", [[1], [2], [7], [3, 4], [1, 1, 5], [0, 6], []])
@pytest.mark.parametrize("fail_rate", [0.05, 0.5])
def test_the_tail_is_that_of_all_series(lengths, fail_rate):
    for flips in range(8):
        expected = enumerate_tail(flips, lengths, fail_rate)
        assert flips_tail(flips, lengths, fail_rate) == pytest.approx(expected, abs=1e-12)


def test_a_difference_between_segments_is_no_flip():
    assert count_flips([[True, False, True], [False, False]]) == 2
