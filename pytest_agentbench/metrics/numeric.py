"""The metric `numeric_match`."""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import Annotated

from pydantic import Field

from pytest_agentbench.metrics.numbers import Value, answered_number, are_close
from pytest_agentbench.metrics.registry import Measured, metric

Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@metric("numeric_match")
def numeric_match(
    ground_truth: str, prediction: str, *, rel_tol: Tolerance | None = None, abs_tol: Tolerance = 0.0
) -> Measured:
    """1 where both texts answer with the same number (`answered_number`), 0 also where one has none.

    A percentage agrees with its number and with the number over 100, "3 million" with 3 and 3000000. A number agrees
    with a range of the ground truth that it lies in, a range only with itself; a time, a date or a version with itself.
    `rel_tol` and `abs_tol` as in `are_close`. Details: `expected`, `found`.
    """
    require_tolerance("numeric_match", "rel_tol", rel_tol or 0.0)
    require_tolerance("numeric_match", "abs_tol", abs_tol)
    expected, found = answered_number(ground_truth), answered_number(prediction)
    details = {"expected": expected and str(expected), "found": found and str(found)}
    if isinstance(expected, Value) and isinstance(found, Value):
        agree = any(
            _agree(one, other, rel_tol, abs_tol)
            for one in _readings(expected, found)
            for other in _readings(found, expected)
        )
    else:
        agree = expected is not None and expected == found
    return Measured(float(agree), details)


def require_tolerance(metric_name: str, option: str, value: object) -> None:
    """Raises ValueError for what is no number from 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (isfinite(value) and value >= 0):
        raise ValueError(f"{metric_name}: {option} is {value!r}, expected a number from 0")


def _readings(value: Value, other: Value) -> list[Value]:
    """The value as it is written, as it counts (3 million, 18 %), or both: for a plain number may mean either."""
    if value.scale == 0 or value.scale == other.scale:
        return [value]
    counted = Value(value.low.scaleb(value.scale), value.high.scaleb(value.scale))
    return [counted] if other.scale else [value, counted]


def _agree(expected: Value, found: Value, rel_tol: float | None, abs_tol: float) -> bool:
    def close(one: Decimal, other: Decimal) -> bool:
        return are_close(one, other, rel_tol, abs_tol)

    if close(expected.low, found.low) and close(expected.high, found.high):
        return True
    if found.low != found.high:
        return False
    return expected.low < found.low < expected.high or close(expected.low, found.low) or close(expected.high, found.low)
