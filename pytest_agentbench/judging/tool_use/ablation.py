"""What shuffling and averaging do to judges: the figures of Table 7 (seed 004, 6.4), and the verdicts they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from pytest_agentbench.judging.asking import (
    BACKOFF_SECONDS,
    Asked,
    ask,
    chat_sender,
    numbered_options,
    request_key,
)
from pytest_agentbench.judging.tool_use.contract import TOOL_USE_FORMAT, parse_tool_use
from pytest_agentbench.judging.tool_use.scores import cv_percent
from pytest_agentbench.records import JudgeVerdict, Model

if TYPE_CHECKING:
    from pytest_agentbench.models import ChatClient

CONTRACT_VERSION = "tool_use 1"
"""Part of every kept verdict's identity: raised when the reading of replies changes."""

Pipeline = Literal["plain", "shuffled"]
"""One reply to the rubric in its own order; the mean over several shuffled orders."""

Completions = Sequence[Mapping[str, Sequence[float]]]
"""Of each run the task completion scores that each judge gave, one for each iteration that it answered."""


def cv_over_judges(runs: Completions) -> float | None:
    """How far judges differ: mean_i(sigma_i / mu_i) in percent over the runs, of the judges' means.

    Runs that fewer than two judges have scored tell nothing; None where all are such.
    """
    return _mean([cv_percent([fmean(scores) for scores in judges.values() if scores]) for judges in runs])


def cv_over_shuffles(runs: Completions) -> dict[str, float]:
    """How far each judge differs from itself: the same over its own iterations. Single ones tell nothing."""
    judges = dict.fromkeys(judge for scored in runs for judge in scored)
    found = {judge: _mean([cv_percent(scored.get(judge, ())) for scored in runs]) for judge in judges}
    return {judge: cv for judge, cv in found.items() if cv is not None}


def verdict_key(model: Model, messages: list[dict[str, str]], iteration: int, options: Mapping[str, Any]) -> str:
    """The identity of a verdict on a run, for those that are kept. 64 hex digits."""
    return request_key(CONTRACT_VERSION, model, messages, iteration, request=dict(options))


async def ask_verdict(
    client: ChatClient,
    messages: list[dict[str, str]],
    *,
    case_id: str,
    iteration: int,
    options: Mapping[str, Any],
    backoff_seconds: float = BACKOFF_SECONDS,
) -> Asked[JudgeVerdict]:
    """One verdict on the run of an MCP task, asked again where the reply breaks the contract."""
    send = chat_sender(client, case_id, TOOL_USE_FORMAT, numbered_options(client, options, iteration))
    return await ask(send, messages, parse_tool_use, backoff_seconds)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
