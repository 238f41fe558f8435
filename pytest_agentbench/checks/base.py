"""What a check is: a function `(spec, context) -> Verdict`, plain or a coroutine function; also for plugins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pytest_agentbench.metrics import Metric
from pytest_agentbench.records import Case, CheckOutcome, RunArtifact
from pytest_agentbench.workspaces import Workspace

_MAX_EXCERPT = 400
_MAX_LINES = 8


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What a check may look at. `workspace` is None where the run made none; `compat` is the profile's, for metrics.

    `in_thread` runs what takes long off the event loop that all runs share.
    """

    case: Case
    artifact: RunArtifact
    workspace: Workspace | None
    metrics: Mapping[str, Metric]
    compat: Literal["v1"] | None = None
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found. `message` is a sentence; `expected` and `actual` are short texts, never a transcript."""

    outcome: CheckOutcome
    message: str
    expected: str | None = None
    actual: str | None = None
    outputs: dict[str, Any] = field(default_factory=dict)


CheckFunction = Callable[[Any, CheckContext], Verdict | Awaitable[Verdict]]
"""Gets the declarative spec and the context; may be a coroutine function. What it raises is an `error`, but Unmet is a
`failed`."""


class Unmet(Exception):
    """The run lacks what the check looks at, so that it failed before anything could be compared."""

    def __init__(self, message: str, actual: str | None = None) -> None:
        super().__init__(message)
        self.actual = actual


def verdict(passed: bool, message: str, expected: str | None = None, actual: str | None = None) -> Verdict:
    """`passed` or `failed`, with the texts cut to what a report shows."""
    return Verdict("passed" if passed else "failed", message, _short(expected), _short(actual))


def excerpt(text: str) -> str:
    """The last lines of a text, where agents put their answer; `…` stands for what was left out."""
    kept = "\n".join(text.strip()[-_MAX_EXCERPT:].splitlines()[-_MAX_LINES:])
    return kept if len(kept) == len(text.strip()) else f"…{kept}"


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= _MAX_EXCERPT else f"{text[: _MAX_EXCERPT - 1]}…"
