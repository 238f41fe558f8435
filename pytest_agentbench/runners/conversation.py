"""The interface of runners that hold a conversation: the agent's side, which answers one message after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pytest_agentbench.records.case import Case, Message
from pytest_agentbench.records.run import MessageEvent, Usage
from pytest_agentbench.runners.base import Recorder, RunContext, RunEnd, RunOutput, make_end, record_report

SUCCESS = RunEnd("success")


@dataclass(frozen=True, slots=True)
class TurnOutput:
    """The agent's answer to one message, and how its turn ended.

    The conversation is over after an `end` with another status than success. `text` is None if the agent gave no
    answer, or has written it to the trace itself.
    """

    text: str | None
    end: RunEnd = SUCCESS


@dataclass(frozen=True, slots=True)
class TurnResult:
    """A turn that succeeded. `text` is the agent's answer, `usage` that of the run's own model.

    `messages` are the user's message and all texts of the agent, in order.
    """

    number: int
    text: str
    usage: Usage
    end: RunEnd
    messages: tuple[MessageEvent, ...]


class AgentConversation:
    """The agent's side of one run's conversation. One task of the event loop owns it.

    The engine records each message and each answer in the trace, the conversation the actions in between.
    """

    def word(self, message: Message, turn: int) -> str:
        """Return the message as the agent gets it, for example with the case's attachments in the first turn."""
        return message.content

    async def reply(self, message: Message, turn: int) -> TurnOutput:
        """Return the agent's answer; `turn` counts from 1. A turn that takes too long is cancelled.

        May raise InfrastructureError, and UnavailableError for missing requirements.
        """
        raise NotImplementedError

    async def finish(self) -> RunEnd | None:
        """Return how the run ended after its last turn, None if as that turn. Not called after a failed turn."""
        return None

    async def close(self) -> None:
        """Free everything that the conversation uses. Called once, also after an error or a cancellation."""


Converse = Callable[[Case, RunContext], Awaitable[AgentConversation]]
"""Opens a conversation for a case, whose `messages` are the context of the first turn. A runner has it as its method
`converse`.
"""


def read_answer(returned: object, trace: Recorder) -> TurnOutput:
    """Return an agent's value for one turn, with its tool calls and usage recorded. Another type is `invalid`."""
    if returned is None or isinstance(returned, str):
        return TurnOutput(returned)
    if isinstance(returned, TurnOutput):
        return returned
    if isinstance(returned, RunOutput):
        return TurnOutput(returned.output, record_report(returned, trace))
    message = f"the agent answered with {type(returned).__name__}, expected str, RunOutput or None"
    return TurnOutput(None, make_end("invalid", "invalid_output", message))


def record_answer(output: TurnOutput, trace: Recorder) -> RunEnd:
    """Record the answer of a run of one message, if it has one, and return how the run ended."""
    if output.text is not None:
        trace.final_output(output.text)
    return output.end


async def answer_once(conversation: AgentConversation, message: Message, context: RunContext) -> RunEnd | RunOutput:
    """Return how a run of one message ended, and close the conversation. Its trace has no turns."""
    trace = context.trace
    try:
        trace.message("user", conversation.word(message, 1))
        output = await conversation.reply(message, 1)
        if output.end.status != "success":
            return output.end
        trace.message("assistant", output.text or "")
        await conversation.finish()
    finally:
        await conversation.close()
    return RunOutput(output=output.text)


def name_turn(number: int, total: int | None) -> str:
    """Return the name of a turn in messages. `total` is None if a driver decides the number of turns."""
    if total is None:
        return f"turn {number}"
    return f"turn {number} of {total}"
