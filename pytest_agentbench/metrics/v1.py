"""The original benchmark's definitions (seed 001), bit for bit: `compat="v1"`. `exact_match` and `similarity` stayed.

The recorded scores in the conformance data settle what the seed leaves open.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from math import isfinite

from pytest_agentbench.metrics.lcs import lcs_length
from pytest_agentbench.metrics.overlap import f_measure
from pytest_agentbench.metrics.registry import metric
from pytest_agentbench.metrics.text import exact_match, similarity

_NUMBER = re.compile(r"-?\d+\.?\d*")
_TOLERANCE = 1e-6

metric("exact_match", compat="v1")(exact_match)
metric("similarity", compat="v1")(similarity)


@metric("f1_score", compat="v1")
def f1_v1(ground_truth: str, prediction: str) -> float:
    """F1 of the sets of lower-case words; 1 where both are empty."""
    expected, found = set(ground_truth.lower().split()), set(prediction.lower().split())
    if not expected and not found:
        return 1.0
    return f_measure(len(expected & found), len(expected), len(found))


@metric("bleu_score", compat="v1")
def bleu_v1(ground_truth: str, prediction: str) -> float:
    """The share of the prediction's lower-case words that occur in the ground truth, however often."""
    expected, found = set(ground_truth.lower().split()), prediction.lower().split()
    return sum(word in expected for word in found) / len(found) if found else 0.0


@metric("rouge_score", compat="v1")
def rouge_v1(ground_truth: str, prediction: str) -> float:
    """F1 of the longest common subsequence of lower-case words; 0 where one is empty."""
    expected, found = ground_truth.lower().split(), prediction.lower().split()
    return f_measure(lcs_length(expected, found), len(expected), len(found))


@metric("contains_answer", compat="v1")
def contains_v1(ground_truth: str, prediction: str) -> float:
    """1 where the lower-case answer stands anywhere in the prediction, as the empty answer always does."""
    return float(ground_truth.strip().lower() in prediction.strip().lower())


@metric("numeric_match", compat="v1")
def numeric_v1(ground_truth: str, prediction: str) -> float:
    """1 where any number of one text is within 1e-6 of any of the other, or neither text has a number."""
    expected, found = _NUMBER.findall(ground_truth), _NUMBER.findall(prediction)
    if not expected and not found:
        return 1.0
    values = sorted(filter(isfinite, map(float, expected)))
    return float(any(_is_near(number, values) for number in filter(isfinite, map(float, found))))


def _is_near(number: float, values: list[float]) -> bool:
    """Whether one of the sorted values, then the nearest on either side, is close enough."""
    at = bisect_left(values, number)
    return any(abs(value - number) < _TOLERANCE for value in values[max(0, at - 1) : at + 1])
