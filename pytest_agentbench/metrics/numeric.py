"""The metric `numeric_match`."""

from __future__ import annotations

from decimal import Decimal
from math import isfinite

from pytest_agentbench.metrics.numbers import Value, answered_number, are_close
from pytest_agentbench.metrics.registry import Measured, metric


@metric("numeric_match")
def numeric_match(
    ground_truth: str, prediction: str, *, rel_tol: float | None = None, abs_tol: float = 0.0
) -> Measured:
    """1 where both texts answer with the same number (`answered_number`), 0 also where one has none.

    A percentage agrees with its number and with the number over 100. A number agrees with a range of the ground truth
    that it lies in, a range only with itself. `rel_tol` and `abs_tol` as in `are_close`. Details: `expected`, `found`.
    """
    for name, tolerance in (("rel_tol", rel_tol or 0.0), ("abs_tol", abs_tol)):
        if not isinstance(tolerance, (int, float)) or not (isfinite(tolerance) and tolerance >= 0):
            raise ValueError(f"numeric_match: {name} is {tolerance!r}, expected a number from 0")
    expected, found = answered_number(ground_truth), answered_number(prediction)
    details = {"expected": expected and str(expected), "found": found and str(found)}
    if expected is None or found is None:
        return Measured(0.0, details)
    agree = any(
        _agree(one, other, rel_tol, abs_tol)
        for one in _readings(expected, found.percent)
        for other in _readings(found, expected.percent)
    )
    return Measured(float(agree), details)


def _readings(value: Value, other_is_percent: bool) -> list[Value]:
    """The value, and as a share of 1 where it is a percentage that meets a plain number."""
    if not value.percent or other_is_percent:
        return [value]
    return [value, Value(value.low.scaleb(-2), value.high.scaleb(-2))]


def _agree(expected: Value, found: Value, rel_tol: float | None, abs_tol: float) -> bool:
    def close(one: Decimal, other: Decimal) -> bool:
        return are_close(one, other, rel_tol, abs_tol)

    if close(expected.low, found.low) and close(expected.high, found.high):
        return True
    if found.low != found.high:
        return False
    return expected.low < found.low < expected.high or close(expected.low, found.low) or close(expected.high, found.low)
