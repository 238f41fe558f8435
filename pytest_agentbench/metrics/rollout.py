"""Metrics of the original benchmark's later rewrite for rollouts (seed 001): `compat="v2"`.

The recorded scores in the conformance data settle each definition. The rewrite has no other metrics of texts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from math import isfinite

from pytest_agentbench.metrics.registry import metric
from pytest_agentbench.metrics.text import f_measure

_LEAD = "the answer is"
_CLOSING = ".,;:!?"
_NUMBER = re.compile(r"-?\d+\.?\d*")
_RELATIVE_TOLERANCE = 0.01
_ABSOLUTE_TOLERANCE = 1e-6
"""Largest difference from a number of the ground truth that is 0."""


@metric("exact_match", compat="v2")
def exact_match_v2(ground_truth: str, prediction: str) -> float:
    """1 if both texts are the same after normalisation: case, white space, "The answer is" and closing punctuation."""
    return float(_normalise(ground_truth) == _normalise(prediction))


@metric("f1_score", compat="v2")
def f1_v2(ground_truth: str, prediction: str) -> float:
    """F1 of the normalised words, counted as often as both texts have them; 0 if a text is empty."""
    expected, actual = _normalise(ground_truth).split(), _normalise(prediction).split()
    return f_measure((Counter(expected) & Counter(actual)).total(), len(expected), len(actual))


@metric("contains_answer", compat="v2")
def contains_v2(ground_truth: str, prediction: str) -> float:
    """1 if the normalised prediction contains the normalised answer anywhere; the empty answer is in every text."""
    return float(_normalise(ground_truth) in _normalise(prediction))


@metric("numeric_match", compat="v2")
def numeric_v2(ground_truth: str, prediction: str) -> float:
    """1 if a number of the prediction is within 1 % of a number of the ground truth; 0 if a text has no number."""
    expected, actual = _NUMBER.findall(ground_truth), _NUMBER.findall(prediction)
    values = sorted(filter(isfinite, map(float, actual)))
    return float(any(_has_near(values, number) for number in filter(isfinite, map(float, expected))))


@metric("similarity", compat="v2")
def similarity_v2(ground_truth: str, prediction: str) -> float:
    """Return the share of the characters of both normalised texts that both have; 0 if both are empty."""
    expected, actual = set(_normalise(ground_truth)), set(_normalise(prediction))
    if expected | actual:
        return len(expected & actual) / len(expected | actual)
    return 0.0


def _normalise(text: str) -> str:
    words = " ".join(text.lower().split())
    return words.removeprefix(_LEAD).strip().rstrip(_CLOSING).strip()


def _has_near(values: list[float], wanted: float) -> bool:
    """Return whether one of the sorted values is near enough: the nearest one on either side decides."""
    reach = _RELATIVE_TOLERANCE * abs(wanted) if wanted else _ABSOLUTE_TOLERANCE
    at = bisect_left(values, wanted)
    return any(abs(value - wanted) <= reach for value in values[max(0, at - 1) : at + 1])
