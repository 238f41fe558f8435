"""The metric `llm_judgement`: a judge decides whether answer and reference have the same meaning (seed 001)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial, reduce
from math import comb
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from weakref import WeakValueDictionary

from pydantic import Field

from pytest_agentbench.metrics.registry import Measured, MetricContext, metric
from pytest_agentbench.models.thoughts import drop_thoughts
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.evaluation import AnswerVerdict
from pytest_agentbench.records.run import Usage

if TYPE_CHECKING:
    from pytest_agentbench.judging.asking import Asked
    from pytest_agentbench.models.client import ChatClient

_asking: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, Path, str], asyncio.Lock] = WeakValueDictionary()
"""A lock for each vote that is being asked for: repetitions often give the same answer at the same time."""


@metric("llm_judgement")
async def llm_judgement(
    ground_truth: str,
    prediction: str,
    *,
    context: MetricContext,
    model: str | None = None,
    repetitions: Annotated[int, Field(ge=1)] = 1,
    compat: Literal["v1"] | None = None,
) -> Measured:
    """Return 1 if most of `repetitions` votes of a judge find the answer correct, else 0, also for a tie.

    `model` is the judge's model id. Votes are stored in `context.cache` and paid for once. Details: `votes`, their
    `agreement` (the share of pairs that agree, None for a single vote), the `reason` of the first vote on the winning
    side, the number of `cached` and of `failed` votes, the `model` and whether it is `scripted`. A blank answer is
    incorrect without asking. Raises JudgeError if no vote was received, ValueError for a blank reference (not in
    compat) and for options out of range.
    """
    if isinstance(repetitions, bool) or not isinstance(repetitions, int) or repetitions < 1:
        raise ValueError(f"repetitions: found {repetitions!r}, expected a whole number from 1")
    if not compat:  # the original (seed 001) showed judges the whole text
        prediction = drop_thoughts(prediction)
    if not prediction.strip():
        return Measured(0.0, _details([], "the answer is empty, so no judge was asked"))
    if not ground_truth.strip() and compat is None:
        raise ValueError("the reference answer is empty: there is nothing to compare the answer with")
    from pytest_agentbench.judging.correctness import answer_messages

    messages = answer_messages(context.question, ground_truth, prediction, compat)
    return await take_votes(context.client(model), messages, context, repetitions, compat)


async def take_votes(
    client: ChatClient,
    messages: list[dict[str, str]],
    context: MetricContext,
    repetitions: int,
    compat: Literal["v1"] | None = None,
) -> Measured:
    """Return 1 if most of the votes on a question are `correct`, else 0, with the details of `llm_judgement`.

    Raises JudgeError if no vote was received.
    """
    if context.redactor is not None:
        messages = context.redactor.value(messages)
    votes = await asyncio.gather(
        *(_vote(client, messages, context, number, compat) for number in range(1, repetitions + 1))
    )
    return _counted(votes, client.model)


async def _vote(
    client: ChatClient,
    messages: list[dict[str, str]],
    context: MetricContext,
    repetition: int,
    compat: Literal["v1"] | None,
) -> AnswerVerdict | Asked[AnswerVerdict]:
    """Return a stored vote, or ask for one and store it. Votes of scripts, and of cassettes, are not stored."""
    from pytest_agentbench.judging.correctness import ask_vote, vote_key
    from pytest_agentbench.store.judgements import Judgements

    ask = partial(ask_vote, client, messages, case_id=context.case_id, repetition=repetition, compat=compat)
    if context.cache is None or client.model.scripted or getattr(client, "taped", False):
        return await ask()
    store = Judgements(context.cache.parent, context.redactor, context.remote, context.signer)
    key = vote_key(client.model, messages, repetition, compat)
    anew = context.anew
    async with _asking.setdefault((asyncio.get_running_loop(), context.cache, key), asyncio.Lock()):
        counts = anew is None or key in anew
        if counts and (verdict := store.find(key)) is not None:
            return verdict
        async with store.claim(key):
            if counts:
                await store.pull(key)
                if (verdict := store.find(key)) is not None:  # another session has asked meanwhile, here or elsewhere
                    return verdict
            outcome = await ask()
            if outcome.verdict is not None:
                store.keep(key, client.model.requested_model, outcome.verdict)
        if anew is not None:
            anew.add(key)
        return outcome


def _counted(votes: Sequence[AnswerVerdict | Asked[AnswerVerdict]], model: Model) -> Measured:
    """Return the majority, its explanation, and the usage of the votes that were asked for now."""
    from pytest_agentbench.judging.correctness import VoteError

    outcomes = [vote for vote in votes if not isinstance(vote, AnswerVerdict)]
    usages = [vote.usage for vote in outcomes if vote.usage is not None] or [Usage()]
    usage = reduce(add, usages) if outcomes else None
    all_verdicts = [vote if isinstance(vote, AnswerVerdict) else vote.verdict for vote in votes]
    verdicts = [verdict for verdict in all_verdicts if verdict is not None]
    if not verdicts:
        raise VoteError(model.requested_model, outcomes, usage or Usage())
    correct = sum(verdict.correct for verdict in verdicts) * 2 > len(verdicts)
    reason = next(verdict.reason for verdict in verdicts if verdict.correct == correct)
    details = _details(verdicts, reason)
    details |= {"cached": len(votes) - len(outcomes), "failed": len(votes) - len(verdicts)}
    details |= {"model": model.requested_model, "scripted": model.scripted}
    return Measured(float(correct), details, usage)


def _details(verdicts: Sequence[AnswerVerdict], reason: str) -> dict[str, Any]:
    return {
        "votes": [verdict.model_dump() for verdict in verdicts],
        "agreement": agreement([verdict.correct for verdict in verdicts]),
        "reason": reason,
        "cached": 0,
        "failed": 0,
        "model": None,
    }


def agreement(votes: Sequence[bool]) -> float | None:
    """Return the share of pairs of votes that agree, 0-1, or None if there are no pairs."""
    correct, pairs = sum(votes), comb(len(votes), 2)
    if pairs:
        return (comb(correct, 2) + comb(len(votes) - correct, 2)) / pairs
    return None
