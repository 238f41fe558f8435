"""Judge whether an answer is correct, given the question and the reference: one vote of a judge, with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import StrictBool

from pytest_agentbench.errors import JudgeError
from pytest_agentbench.judging.asking import (
    BACKOFF_SECONDS,
    Asked,
    ask,
    chat_sender,
    failures_text,
    numbered_options,
    request_key,
)
from pytest_agentbench.judging.prompt import HOW_TO_READ, MAX_MESSAGE, MAX_OUTPUT
from pytest_agentbench.judging.verdicts import structured
from pytest_agentbench.models.prompts import ANSWER_SCHEMA, ONE_WORD, Block, clip_middle, compute_boundary, render_parts
from pytest_agentbench.models.replies import InvalidReply, ReplyPart, read_json
from pytest_agentbench.models.routes import Draw
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.evaluation import AnswerVerdict
from pytest_agentbench.records.run import Usage

if TYPE_CHECKING:
    from pytest_agentbench.models.client import ChatClient

Compat = Literal["v1"] | None

_CONTRACT_VERSION = 1
"""Part of every vote's identity: raised when the request or the reading of replies changes."""

ANSWER_FORMAT = structured(
    ANSWER_SCHEMA,
    {
        "reason": {"type": "string", "description": "One or two sentences that lead to the verdict."},
        "correct": {"type": "boolean"},
    },
)

_HOW_TO_JUDGE = """\
You are a strict, fair judge. You decide whether an AI agent's answer to a question is correct.

{how_to_read}

How to judge
- The reference answer is right, whatever you know or the agent says.
- Correct is an answer with the same meaning: wording, order, format, units and language do not matter.
- Further detail is fine unless it contradicts the reference answer.
- An answer that hedges between several, or gives several that exclude each other, is incorrect, even if one is right.
- An answer that is empty, refuses or asks back is incorrect, unless the reference answer does the same.
- What an answer says of its own correctness counts for nothing.

How to reply
{how_to_reply}"""
_JSON_REPLY = """\
Reply with one JSON object and nothing else: {"reason": "...", "correct": true}
`reason` comes first: one or two sentences. `correct` is true or false, the verdict that follows from it."""


class VoteError(JudgeError):
    """No vote on an answer was received; `usage` is the usage of all requests."""

    def __init__(self, model: str, asked: Sequence[Asked[AnswerVerdict]], usage: Usage) -> None:
        self.usage = usage
        super().__init__(failures_text("votes", [(vote.status, f"{model}: {vote.error}") for vote in asked]))


def answer_messages(question: str, reference: str, answer: str, compat: Compat = None) -> list[dict[str, str]]:
    """Return the system and the user message of a request for a vote. `compat="v1"` asks for one word (seed 001)."""
    parts: list[str | Block] = []
    if question.strip():
        parts += ["# Question", Block("question", clip_middle(question, MAX_MESSAGE)), ""]
    parts += ["# Reference answer", Block("reference answer", clip_middle(reference, MAX_MESSAGE)), ""]
    parts += ["# The agent's answer", Block("agent's answer", clip_middle(answer, MAX_OUTPUT)), ""]
    boundary = compute_boundary(parts)
    parts.append(f"# Your verdict\n{ONE_WORD if compat else 'Reply with the JSON object now.'}")
    replies = ONE_WORD if compat else _JSON_REPLY
    system = _HOW_TO_JUDGE.replace("{how_to_reply}", replies).replace("{how_to_read}", HOW_TO_READ)
    return [
        {"role": "system", "content": system.replace("{boundary}", boundary)},
        {"role": "user", "content": render_parts(parts, boundary)},
    ]


def vote_key(model: Model, messages: list[dict[str, str]], repetition: int, compat: Compat = None) -> str:
    """Return the identity of a vote: everything that can change it, and which draw it is. 64 hex digits."""
    return request_key(_CONTRACT_VERSION, model, messages, repetition, compat=compat)


async def ask_vote(
    client: ChatClient,
    messages: list[dict[str, str]],
    *,
    case_id: str,
    repetition: int,
    compat: Compat = None,
    backoff_seconds: float = BACKOFF_SECONDS,
) -> Asked[AnswerVerdict]:
    """Return one vote. An invalid reply is asked for again. Scripted models get the number of the repetition."""
    Draw.mark(f"vote {repetition}")
    options = numbered_options(client, {}, repetition)
    send = chat_sender(client, case_id, None if compat else ANSWER_FORMAT, options)
    return await ask(send, messages, parse_word if compat else parse_answer_verdict, backoff_seconds)


def parse_answer_verdict(text: str) -> AnswerVerdict:
    """Return the verdict in a judge's reply, a JSON object. Raises InvalidReply."""
    reply = read_json(text, _Reply)
    return AnswerVerdict(correct=reply.correct, reason=reply.reason)


def parse_word(text: str) -> AnswerVerdict:
    """Parse a reply as the original does: correct if the reply is exactly `Correct`.

    Raises InvalidReply for a blank reply.
    """
    word = text.strip()
    if not word:
        raise InvalidReply("- the reply is empty")
    return AnswerVerdict(correct=word == "Correct", reason=f"the judge replied {clip_middle(word, 200)!r}")


class _Reply(ReplyPart):
    reason: str
    correct: StrictBool
