"""The metric `json_match`: the share of the expected JSON that the answer contains."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from decimal import Decimal, DecimalException
from itertools import islice, zip_longest
from typing import Any

from pytest_agentbench.bounded.json_files import lies_deep
from pytest_agentbench.metrics.numbers import Tolerance, are_close, require_tolerance
from pytest_agentbench.metrics.registry import Measured, metric
from pytest_agentbench.models.thoughts import drop_thoughts
from pytest_agentbench.terminal_text import shorten_text

_DEEPEST = 100
_TOO_DEEP = f"it nests deeper than {_DEEPEST} levels"
_DIFFERING = 5
_ABSENT = object()


@metric("json_match")
def json_match(
    ground_truth: str, prediction: str, *, tolerance: Tolerance = 0.0, ignore_order: bool = False
) -> Measured:
    """Return the share of leaves (values at their paths) that are equal, of all leaves of both sides; 1 if both are
    equal.

    The prediction is JSON alone or in its only code fence, otherwise the score is 0. The order of keys never counts,
    that of lists not with `ignore_order`: equal elements pair up first, then the others by their sorted values. Numbers
    are compared by value, within the absolute `tolerance`. Details: `leaves`, `matched`, and up to 5 paths in
    `differing`. Raises ValueError for a ground truth that is not JSON.
    """
    require_tolerance("json_match", "tolerance", tolerance)
    try:
        expected = _parsed(ground_truth)
    except ValueError as error:
        raise ValueError(f"json_match: the ground truth is no JSON: {error}") from error
    try:
        actual = _parsed(_unfenced(drop_thoughts(prediction)))
    except ValueError as error:
        return Measured(0.0, {"reason": f"the answer is no JSON: {error}"})
    comparison = _Comparison(tolerance, ignore_order)
    comparison.compare(expected, actual, "$")
    details: dict[str, Any] = {"leaves": comparison.leaves, "matched": comparison.matched}
    if comparison.differing:
        details["differing"] = comparison.differing
    return Measured(comparison.matched / comparison.leaves, details)


def _unfenced(text: str) -> str:
    """Return the content of the text's only code fence, or the whole text if it has none or several."""
    inside: list[list[str]] = []
    is_open = False
    for line in text.splitlines():
        mark = line.strip()
        if mark.startswith("```") and (mark == "```" or not is_open):
            is_open = not is_open
            if is_open:
                inside.append([])
        elif is_open:
            inside[-1].append(line)
    if len(inside) == 1 and not is_open:
        return "\n".join(inside[0])
    return text


def _parsed(text: str) -> Any:
    """Parse JSON with exact numbers. Raises ValueError for a text that is not JSON or nests too deep."""
    try:
        value = json.loads(text.strip(), parse_int=_number, parse_float=_number, parse_constant=_number)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if lies_deep(value, _DEEPEST + 1):
        raise ValueError(_TOO_DEEP)
    return value


def _number(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except DecimalException:
        raise ValueError("a number is out of all bounds") from None
    if not number.is_finite():
        raise ValueError(f"{text} is no JSON number")
    return number


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list):
        return value
    return []


def _leaves(value: Any) -> int:
    """Return how many leaves a value has; an empty list or object is one itself."""
    if value is _ABSENT:
        return 0
    return sum(map(_leaves, _children(value))) or 1


@dataclass
class _Comparison:
    """Counts the leaves of both sides and those on which they agree."""

    tolerance: float
    ignore_order: bool
    leaves: int = 0
    matched: int = 0
    differing: list[str] = field(default_factory=list)
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _known: dict[int, int] = field(default_factory=dict)

    def compare(self, expected: Any, actual: Any, path: str) -> None:
        """Count the leaves at `path` on both sides."""
        if isinstance(expected, dict) and isinstance(actual, dict) and (expected or actual):
            # Expected keys come first. Further keys of the answer are wrong, too.
            for key in expected | actual:
                self.compare(expected.get(key, _ABSENT), actual.get(key, _ABSENT), f"{path}.{_shown(key)}")
        elif isinstance(expected, list) and isinstance(actual, list) and (expected or actual):
            if self.ignore_order:
                expected, actual = self._aligned(expected, actual)
            for index, (one, other) in enumerate(zip_longest(expected, actual, fillvalue=_ABSENT)):
                self.compare(one, other, f"{path}[{'*' if self.ignore_order else index}]")
        elif self._are_equal(expected, actual):
            self.leaves += 1
            self.matched += 1
        else:
            # The larger side: an answer cannot gain by leaving out, nor by heaping up
            self.leaves += max(_leaves(expected), _leaves(actual))
            if len(self.differing) < _DIFFERING:
                self.differing.append(path)

    def _are_equal(self, expected: Any, actual: Any) -> bool:
        if isinstance(expected, Decimal) and isinstance(actual, Decimal):
            return are_close(expected, actual, 0.0, self.tolerance)
        # By type too, for True == 1 in Python and not in JSON
        return type(expected) is type(actual) and bool(expected == actual)

    def _aligned(self, expected: list[Any], actual: list[Any]) -> tuple[list[Any], list[Any]]:
        """Return both lists with their common elements first, the rest sorted."""
        places: dict[int, list[int]] = defaultdict(list)
        for index, value in enumerate(actual):
            places[self._identity(value)].append(index)
        shared, missing = [], []
        taken = set()
        for value in expected:
            if same := places[self._identity(value)]:
                shared.append(value)
                taken.add(same.pop())
            else:
                missing.append(value)
        other = [value for index, value in enumerate(actual) if index not in taken]
        return shared + sorted(missing, key=_rank), shared + sorted(other, key=_rank)

    def _identity(self, value: Any) -> int:
        """Return a number that equal values share, in any order of their lists; each value is visited once."""
        # By id, as lists cannot be hashed: both documents live as long as the comparison
        if id(value) in self._known:
            return self._known[id(value)]
        content: Hashable = value
        if isinstance(value, dict):
            content = frozenset((key, self._identity(item)) for key, item in value.items())
        elif isinstance(value, list):
            # Sorted: with ignore_order lists that differ in order at any depth are the same
            content = tuple(sorted(map(self._identity, value)))
        number = self._numbers.setdefault((type(value), content), len(self._numbers))
        self._known[id(value)] = number
        return number


def _rank(value: Any) -> tuple[int, Decimal, str]:
    """Return the place of a value among others: numbers by value, all else by the beginning of its JSON."""
    if isinstance(value, Decimal):
        return 0, value, ""
    # In pieces, of which the first 20 do: whole documents as sort keys would be written out n times
    text = json.JSONEncoder(sort_keys=True, default=str).iterencode(value)
    return 1 + isinstance(value, (dict, list)), Decimal(0), "".join(islice(text, 20))


def _shown(key: str) -> str:
    """Return a key as part of a path, in text that can be written anywhere."""
    short = shorten_text(key, 40)
    if short.isidentifier():
        return short
    return json.dumps(short)
