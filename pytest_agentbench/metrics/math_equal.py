"""The metric `math_equal`."""

from __future__ import annotations

import re
from decimal import Decimal

from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.metrics.math_process import CPU_SECONDS, ask
from pytest_agentbench.metrics.numbers import are_close
from pytest_agentbench.metrics.passages import said
from pytest_agentbench.metrics.registry import Measured, metric, missing_extra

_LONGEST = 10_000
_PLAIN_NUMBER = re.compile(r"[-+]?\d{1,30}(?:\.\d{1,30})?(?:e[-+]?\d{1,3})?", re.IGNORECASE)


@metric("math_equal", requires="math_verify", slow=True)
def math_equal(ground_truth: str, prediction: str) -> Measured:
    r"""1 where both hold the same mathematical expression by math-verify: LaTeX ($...$, \boxed{}), sets, intervals.

    Of a long text the last 10,000 characters are read. Expressions are compared in a process of their own with at most
    2 GB of memory; what takes more than 5 seconds of CPU there scores 0 and has the `reason` in its details. Raises
    ValueError for a ground truth without an expression, UnavailableError without math-verify.
    """
    if (reason := missing_extra("math_equal")) is not None:
        raise UnavailableError(reason)
    expected, found = ground_truth.strip(), said(prediction).strip()
    if expected and expected == found:
        return Measured(1.0)
    if _PLAIN_NUMBER.fullmatch(expected) and _PLAIN_NUMBER.fullmatch(found):
        return Measured(float(are_close(Decimal(expected), Decimal(found), None, 0.0)))
    reply = ask([expected[-_LONGEST:], found[-_LONGEST:]])
    if reply is None:
        return Measured(0.0, {"reason": f"comparing took more than {CPU_SECONDS:g} seconds of CPU"})
    if "too_much" in reply:
        return Measured(0.0, {"reason": f"comparing took too much memory ({reply['too_much']})"})
    if "unread" in reply:
        raise ValueError(f"math_equal: the ground truth {ground_truth[:80]!r} holds no mathematical expression")
    return Measured(float(reply["equal"]))
