"""Hold the conversation of a run: a driver says the user's messages, the runner's conversation answers them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.clock import RUN_CLOCK, RunClock
from pytest_agentbench.records.case import Case, Message
from pytest_agentbench.records.run import (
    EndDetail,
    FinalOutputEvent,
    MessageEvent,
    ToolCallEvent,
    ToolResultEvent,
    TraceEvent,
)
from pytest_agentbench.runners.base import RunContext, RunEnd, RunOutput, end_by_time, make_end
from pytest_agentbench.runners.conversation import (
    AgentConversation,
    Converse,
    TurnOutput,
    TurnResult,
    name_turn,
    read_answer,
)


class ConversationOver(Exception):
    """The conversation is over: by a failed turn, a limit or a grade. It ends the driver that lets it pass."""


AfterTurn = Callable[[TurnResult], Awaitable[bool]]
"""Called after each turn that succeeded; returns whether it was the last one."""


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """The limits of a conversation; None: no limit."""

    turn_seconds: float | None = None
    turns: int | None = None
    steps: int | None = None


class Conversation:
    """A run's conversation, for its driver. `turns` are the finished turns.

    `total` is the number of turns, None if the driver decides it.
    """

    def __init__(
        self,
        agent: AgentConversation,
        context: RunContext,
        limits: TurnLimits,
        total: int | None = None,
        after_turn: AfterTurn | None = None,
    ) -> None:
        self.turns: list[TurnResult] = []
        self._agent, self._context, self._limits = agent, context, limits
        self._total, self._after_turn = total, after_turn
        self._end: RunEnd | None = None
        self._is_over = False

    async def say(self, message: str | Message) -> TurnResult:
        """Say the user's next message, and return the turn with the agent's answer.

        Raises ConversationOver after a failed turn, at a limit, and after a grade that ends the conversation.
        """
        number = len(self.turns) + 1
        self._require_open(number)
        if isinstance(message, str):
            message = Message(role="user", content=message)
        if not message.content.strip():
            raise ValueError(f"conversation.say: found an empty message in turn {number}, expected a text")
        trace = self._context.trace
        before = len(trace.events)
        trace.begin_turn(number)
        trace.message("user", self._agent.word(message, number))
        output = await self._ask(message, number)
        if output.end.status != "success":
            self._end = _place(output.end, number)
            raise ConversationOver
        text = _find_text(output, trace.events[before:])
        trace.message("assistant", text)
        messages = tuple(event for event in trace.events[before:] if isinstance(event, MessageEvent))
        turn = TurnResult(number, text, trace.turn_usage, output.end, messages)
        self.turns.append(turn)
        if self._after_turn is not None and await self._after_turn(turn):
            self._is_over = True
            raise ConversationOver
        return turn

    def _require_open(self, number: int) -> None:
        """Raise ConversationOver if no further turn may begin."""
        if self._is_over or self._end is not None:
            raise ConversationOver
        limits = self._limits
        if limits.turns is not None and number > limits.turns:
            self._end = _exceed("max_turns", limits.turns, number)
        elif limits.steps is not None and count_steps(self._context.trace.events) >= limits.steps:
            self._end = _exceed("max_steps", limits.steps, number)
        if self._end is not None:
            raise ConversationOver

    async def _ask(self, message: Message, number: int) -> TurnOutput:
        """Return the agent's output, or the end of a turn that took too long."""
        limit, name = self._limits.turn_seconds, "turn_timeout_seconds"
        if message.max_seconds is not None:
            limit, name = message.max_seconds, "max_seconds"
        # The limits of a turn stop with the run's clock, while a request waits for its endpoint
        clock, timer = RUN_CLOCK.get() or RunClock(), None
        try:
            async with clock.limit(limit) as timer:
                return await self._agent.reply(message, number)
        except TimeoutError:
            if limit is None or timer is None or not timer.expired():
                raise  # the agent's own
            described = f"{name} ({limit:g} s), in {name_turn(number, self._total)}"
            return TurnOutput(None, end_by_time("turn_timeout", described, clock))
        except ProviderError as error:
            detail = error.detail if isinstance(error.detail, EndDetail) else EndDetail()
            error.detail = detail.model_copy(update={"turn": number})
            raise

    async def conclude(self, returned: RunOutput | None) -> RunEnd:
        """Return how the run ended, with the last answer as its output. `returned` is the driver's value."""
        if self._end is not None:
            return self._end
        if not self.turns:
            return make_end("invalid", "empty_conversation", "the driver said nothing to the agent")
        last, trace = self.turns[-1], self._context.trace
        ends = [last.end, *await self._finish()]
        report = read_answer(returned, trace)
        ends.append(report.end)
        end = next((end for end in ends if end.status != "success"), last.end)
        if end.status == "success":
            trace.final_output(last.text if report.text is None else report.text)
        return replace(end, metadata={name: value for end in ends for name, value in end.metadata.items()})

    async def _finish(self) -> list[RunEnd]:
        """Return the end by the agent after its last turn, if it has one. It gets the time of one more turn."""
        limit, timer = self._limits.turn_seconds, None
        try:
            async with (RUN_CLOCK.get() or RunClock()).limit(limit) as timer:
                end = await self._agent.finish()
        except TimeoutError:
            if limit is None or timer is None or not timer.expired():
                raise
            message = f"the agent did not return within turn_timeout_seconds ({limit:g} s) after its last turn"
            end = make_end("timed_out", "turn_timeout", message)
        return [] if end is None else [end]


def _place(end: RunEnd, number: int) -> RunEnd:
    return replace(end, detail=(end.detail or EndDetail()).model_copy(update={"turn": number}))


def _exceed(name: str, limit: int, number: int) -> RunEnd:
    message = f"the conversation reached {name} ({limit}) before turn {number}"
    return _place(make_end("failed", "conversation_limit", message), number)


def _find_text(output: TurnOutput, events: Sequence[TraceEvent]) -> str:
    """Return the answer, which the agent may also have written to the trace."""
    if output.text is not None:
        return output.text
    return next((event.content for event in reversed(events) if isinstance(event, FinalOutputEvent)), "")


def count_steps(events: Sequence[TraceEvent]) -> int:
    """Return the number of messages and of rounds of tool calls. Calls and results without other events between them
    are one round.
    """
    messages, rounds, in_round = 0, 0, False
    for event in events:
        messages += isinstance(event, MessageEvent)
        if isinstance(event, ToolCallEvent) and not in_round:
            rounds += 1
        in_round = isinstance(event, ToolCallEvent | ToolResultEvent)
    return messages + rounds


Driver = Callable[[Conversation, Case, RunContext], Awaitable[RunOutput | None]]
"""Decides the user's messages: it says each by `conversation.say`, and returns when the conversation is over.

Roles of further models are its attribute `model_roles`. The text of a RunOutput replaces the last answer.
"""


async def drive_turns(conversation: Conversation, case: Case, context: RunContext) -> None:
    """Say the case's fixed turns."""
    for turn in case.turns:
        await conversation.say(turn)


async def hold_conversation(
    converse: Converse,
    driver: Driver,
    limits: TurnLimits,
    case: Case,
    context: RunContext,
    after_turn: AfterTurn | None = None,
) -> RunEnd:
    """Return how the conversation of a run ended.

    The last message of a case without fixed turns is the driver's to say, if it is the user's: it is no part of the
    context that the agent gets.
    """
    opening = case
    if not case.turns and case.messages and case.messages[-1].role == "user":
        opening = case.model_copy(update={"messages": case.messages[:-1]})
    agent = await converse(opening, context)
    total = len(case.turns) if driver is drive_turns else None
    conversation, returned = Conversation(agent, context, limits, total, after_turn), None
    try:
        with suppress(ConversationOver):
            returned = await driver(conversation, case, context)
        return await conversation.conclude(returned)
    finally:
        await agent.close()
