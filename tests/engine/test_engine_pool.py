"""Suites of slow runs share one pool: benchmarks/pool.py."""

from __future__ import annotations

import pytest

from benchmarks.pool import measure


@pytest.mark.slow
def test_ten_suites_take_less_than_one_after_the_other() -> None:
    seconds = measure(suites=10, runs=6, seconds=3.0)
    assert seconds < 10 * 3.0
