"""Compare the verdicts of an Inspect log with those of the imported cases on the same answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_agentbench.bounded.patterns import search_pattern
from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.metrics.scoring import score
from pytest_agentbench.models.json_values import as_object
from pytest_agentbench.packs.importers.drafts import Draft
from pytest_agentbench.packs.importers.inspect_samples import Task

_SECONDS = 2.0
"""Seconds that the search for a pattern in one answer may take."""
_COMPUTED = ("numeric_match", "f1_score", "multiple_choice")
# Inspect's values: correct, incorrect, no answer. "P", partially correct, is no verdict.
_VALUES = {"C": True, "I": False, "N": False}


def read_verdict(sample: Mapping[str, Any], task: Task) -> bool | None:
    """Return whether the log's scorer accepted the sample's answer, or None for other values and partial scores."""
    scores = {str(name).rpartition("/")[2]: score for name, score in as_object(sample.get("scores")).items()}
    value = as_object(scores.get(task.scorer or "")).get("value")
    if isinstance(value, str):
        return _VALUES.get(value)
    if isinstance(value, bool | int | float):
        return float(value) == 1.0
    return None


def list_other_verdicts(drafts: Iterable[Draft], verdicts: Mapping[str, Sequence[bool | None]]) -> list[str]:
    """Return the names of drafts whose verdict on an answer differs from `verdicts`, which are by name and answer.

    Drafts that ask a judge, or whose metric is not chosen yet, are left out.
    """
    return [
        draft.name
        for draft in drafts
        if any(
            verdict is not None and _is_right(draft, answer) == (not verdict)
            for answer, verdict in zip(draft.answers, verdicts[draft.name], strict=True)
        )
    ]


def _is_right(draft: Draft, answer: str) -> bool | None:
    """Return whether the draft's case accepts an answer; None if a judge decides, or its metric is not chosen yet."""
    try:
        if draft.checks:
            spec = draft.checks[0]["declarative"]
            match = search_pattern(spec["pattern"], answer, _SECONDS, ignore_case=spec.get("ignore_case", False))
            return match is not None
        if draft.metric is None or draft.metric["name"] not in _COMPUTED:
            return None
        args: dict[str, Any] = {}
        if draft.choices:
            args["choices"] = list(draft.choices)
        return score(draft.metric["name"], draft.reference or "", answer, **args) >= 1.0
    except (AgentbenchError, ValueError, TimeoutError):
        # The case's run will report the mistake.
        return None
