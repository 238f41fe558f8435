"""What a judge is told when its reply is refused, and what is kept of the asking: without an endpoint."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.judging.asking import MAX_ATTEMPTS, MAX_QUOTED_REPLY, JudgeReply, ask, failures_text, request_key
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.replies import InvalidReply
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage

QUESTION = [{"role": "user", "content": "How good?"}]


def number(text: str) -> int:
    if not text.isdecimal():
        raise InvalidReply("- found no number")
    return int(text)


def asked(*replies, backoff_seconds=0.0):
    """How asking a judge ends that gives these replies in order, and the conversations that it was sent."""
    conversations, left = [], iter(replies)

    async def send(conversation):
        conversations.append([dict(message) for message in conversation])
        reply = next(left)
        if isinstance(reply, Exception):
            raise reply
        return reply

    return asyncio.run(ask(send, QUESTION, number, backoff_seconds)), conversations


def test_a_reply_that_was_cut_off_is_said_to_be():
    """Nothing else tells a judge to be shorter."""
    found, conversations = asked(JudgeReply("{", finish_reason="length"), JudgeReply("7"))
    assert (found.status, found.verdict, found.attempts) == ("success", 7, 2)
    again = conversations[1][-1]["content"]
    assert "- found no number\n- the reply was cut off at the token limit\n" in again
    _, conversations = asked(JudgeReply("{", finish_reason="stop"), JudgeReply("7"))
    assert "cut off" not in conversations[1][-1]["content"]


@pytest.mark.parametrize("finish_reason", ["length", "MAX_TOKENS"])
def test_a_judge_that_was_cut_off_twice_is_not_asked_again(finish_reason):
    cut_off = ChatReply("{", (), finish_reason, Usage(), "judge", None, {}, 1, 0.1, end="length")
    found, conversations = asked(cut_off, cut_off, JudgeReply("7"))
    assert (found.status, len(conversations)) == ("invalid_output", 2)
    assert found.error.startswith("length: no verdict in 2 replies")


def test_only_the_last_refused_reply_is_quoted():
    found, conversations = asked(JudgeReply("one"), JudgeReply(None), JudgeReply("3"))
    assert (found.verdict, found.attempts, found.error) == (3, 3, None)
    assert conversations[0] == QUESTION
    assert [message["content"] for message in conversations[1][:2]] == ["How good?", "one"]
    assert conversations[2][1] == {"role": "assistant", "content": "(an empty reply)"}
    assert len(conversations[1]) == len(conversations[2]) == 3
    assert conversations[2][2]["role"] == "user"


def test_a_long_refused_reply_is_quoted_in_part():
    _, conversations = asked(JudgeReply("x" * 3 * MAX_QUOTED_REPLY), JudgeReply("3"))
    assert 0.9 * MAX_QUOTED_REPLY < len(conversations[1][1]["content"]) < 1.1 * MAX_QUOTED_REPLY


def test_after_three_replies_there_is_no_verdict():
    assert MAX_ATTEMPTS == 3
    found, conversations = asked(*[JudgeReply("no", Usage(input_tokens=5))] * 4)
    assert (found.status, found.verdict, found.attempts, len(conversations)) == ("invalid_output", None, 3, 3)
    assert found.error == "no verdict in 3 replies; the last one:\n- found no number"
    assert found.usage is not None
    assert found.usage.input_tokens == 15


@pytest.mark.parametrize(
    ("error", "said"),
    [(ProviderError("down", code="x"), "down"), (KeyError("x"), "KeyError: 'x'"), (OSError("no"), "OSError: no")],
)
def test_a_provider_error_ends_the_attempts(error, said):
    found, conversations = asked(JudgeReply("no", Usage(input_tokens=5)), error, JudgeReply("3"))
    assert (found.status, found.error, found.attempts, len(conversations)) == ("provider_error", said, 2, 2)
    assert found.usage is not None
    assert found.usage.input_tokens == 5
    found, _ = asked(error)
    assert (found.usage, found.attempts) == (None, 1)


def test_waits_double(monkeypatch):
    waits = []

    async def slept(seconds):
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", slept)
    asked(*[JudgeReply("no")] * 3, backoff_seconds=8.0)
    assert [8 <= waits[0] <= 12, 16 <= waits[1] <= 24] == [True, True]
    assert len(waits) == 2


def test_failures_are_counted_by_status_and_cause():
    failed = [("provider_error", "down"), ("invalid_output", "no"), ("provider_error", "down"), ("x", "a"), ("x", "b")]
    assert failures_text("votes", failed).splitlines() == [
        "no judge gave a verdict: 5 of 5 votes failed (1 invalid_output, 2 provider_error, 2 x).",
        "down [2 times]",
        "no",
        "a",
    ]


def test_every_setting_that_affects_an_answer_changes_its_key():
    model = Model(model_id="j", requested_model="judge", base_url="http://a/v1", parameters={"temperature": 0})
    plain = (1, model, QUESTION, 1)
    keys = [
        request_key(*plain),
        request_key(2, model, QUESTION, 1),
        request_key(1, model.model_copy(update={"requested_model": "other"}), QUESTION, 1),
        request_key(1, model.model_copy(update={"base_url": "http://b/v1"}), QUESTION, 1),
        request_key(1, model.model_copy(update={"parameters": {"temperature": 1}}), QUESTION, 1),
        request_key(1, model, [], 1),
        request_key(1, model, QUESTION, 2),
        request_key(*plain, language="zh"),
    ]
    assert all(one != other for one, other in pairwise(sorted(keys)))
    assert request_key(1, model.model_copy(update={"model_id": "k", "label": "K"}), QUESTION, 1) == keys[0]
