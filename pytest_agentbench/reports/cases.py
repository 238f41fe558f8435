"""Which runs are of one case, and which say something about what ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

CaseKey = tuple[str, str]
"""The node id without model and repetition, and the case's id: cases of one name in two files are two."""

_VERDICTS = frozenset(("passed", "failed"))


def case_key(row: Mapping[str, Any]) -> CaseKey:
    """The case that a row is of, whatever the model and the repetition.

    A parametrized test by hand is a case for each of its `variant`s: they ask different things of a run.
    """
    place, variant = row["nodeid"].rpartition("[")[0], row.get("variant")
    return place if variant is None else f"{place}[{variant}]", row["case_id"]


def has_verdict(row: Mapping[str, Any]) -> bool:
    """Whether its run passed or failed. Others enter no rate and no mean, whatever was measured before they broke."""
    return row["outcome"] in _VERDICTS


def judged_cases(report: Mapping[str, Any], model_id: str) -> int:
    """Return how many cases of a model have a score; where only one has, how many of its runs."""
    scores = Counter(
        case_key(row)
        for row in report["runs"]
        if row["model_id"] == model_id and row["final_score"] is not None and has_verdict(row)
    )
    return next(iter(scores.values())) if len(scores) == 1 else len(scores)
