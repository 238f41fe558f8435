"""Waiting: exponential with jitter, and what an endpoint asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.models.failures import Backoff, retry_after_seconds

NOON = 1_445_412_480.0  # Wed, 21 Oct 2015 07:28:00 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT"}, 30),
        ({"retry-after": "Wed, 21 Oct 2015 07:27:00 GMT"}, 0),
        ({"retry-after": "later"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_retry_after_headers_are_read_as_seconds(headers, seconds):
    assert retry_after_seconds(headers, now=NOON) == seconds


@given(st.text())
def test_any_header_is_read_or_ignored(text):
    seconds = retry_after_seconds({"retry-after": text})
    assert seconds is None or seconds >= 0


@given(st.integers(1, 10_000))
def test_it_doubles_up_to_the_longest(attempt):
    backoff = Backoff(first=0.5, longest=30)
    ceiling = min(30, 0.5 * 2 ** min(attempt - 1, 20))
    assert ceiling / 2 <= backoff.seconds(attempt) <= ceiling


@given(st.floats(0, 1e9))
def test_retry_after_is_never_undercut_and_never_exceeds_the_cap(asked):
    backoff = Backoff(first=0.5, longest_retry_after=120)
    assert min(asked, 120) <= backoff.seconds(1, asked) <= min(asked, 120) + 0.5


def test_those_who_wait_do_not_come_back_together():
    assert len({Backoff().seconds(3, 10) for _ in range(20)}) > 10
