"""Which runs are of one case, and which say something about what ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CaseKey = tuple[str, str]
"""The node id without its bracket, and the case's id: cases of one name in two files are two."""

_VERDICTS = frozenset(("passed", "failed"))


def case_key(row: Mapping[str, Any]) -> CaseKey:
    """The case that a row is of, whatever the model and the repetition."""
    return row["nodeid"].rpartition("[")[0], row["case_id"]


def has_verdict(row: Mapping[str, Any]) -> bool:
    """Whether its run passed or failed. Others enter no rate and no mean, whatever was measured before they broke."""
    return row["outcome"] in _VERDICTS
