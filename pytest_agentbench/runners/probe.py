"""The runner `llm_probe`, which asks a chat model with tools, for one answer or in a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.functions import functions_of, offers_tools
from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.records.case import Case, Message
from pytest_agentbench.runners.base import Recorder, RunContext, RunEnd
from pytest_agentbench.runners.chat import Requests, call_tools, render_messages, with_attachments
from pytest_agentbench.runners.conversation import AgentConversation, TurnOutput, record_answer

if TYPE_CHECKING:
    from pytest_agentbench.models.messages import ChatReply
    from pytest_agentbench.tools.base import Tool
    from pytest_agentbench.tools.toolbox import Toolbox

FINAL_ANSWER_REQUEST = "No more tool calls are possible. Give your final answer now."
"""Message to the model after its last request with tools."""
UNREADABLE = "Your last reply could not be read ({}). Call a tool again, or answer."
"""Message to the model after a reply that is neither a call nor an answer."""
MOST_UNREADABLE = 2
"""Maximum consecutive UNREADABLE messages."""


class ProbeConversation(AgentConversation):
    """A list of messages that grows with each message, call, result and answer. All turns share the tools.

    `alone`: all messages are sent at once, and a batch may contain the request. Else the last messages are those of
    the case's turns, which are sent one by one.
    """

    def __init__(self, case: Case, context: RunContext, messages: Sequence[Mapping[str, Any]], *, alone: bool) -> None:
        if context.client is None:
            raise UnavailableError("llm_probe needs a model: name one with --model")
        self._context, self._alone = context, alone
        settings = RunnerSettings.model_validate(dict(context.settings))
        self._max_requests = settings.max_turns
        self._declared = bool(functions_of(case.context))
        # Most cases offer no tools. They need a toolbox only if the model calls invented tools.
        self._toolbox: Toolbox | None = None
        offered: Sequence[Tool] = ()
        self._tools: Sequence[Mapping[str, Any]] = ()
        if offers_tools(case) or context.servers is not None:
            self._toolbox = context.toolbox()
            offered, self._tools = self._toolbox.tools, self._toolbox.specs()
        if case.skills:
            from pytest_agentbench.runners.skills import offer_skills

            messages = offer_skills(messages, case, context.trace)
        first_turn = len(messages) if alone else len(messages) - len(case.turns)
        self._turns = messages[first_turn:]
        self._messages = [*messages[:first_turn]]
        self._requests = Requests(case.case_id, context.client, settings, context.trace, case.runner.overrides)
        self._requests.describe(self._messages, offered, max_turns=settings.max_turns)

    def word(self, message: Message, turn: int) -> str:
        """Return the message, with the instructions of a skill that it calls for."""
        return str(self._find_turn(message, turn)["content"])

    async def reply(self, message: Message, turn: int) -> TurnOutput:
        """Add the message and return the model's answer, which stays in the history."""
        self._messages.append(self._find_turn(message, turn))
        return await self.answer()

    def _find_turn(self, message: Message, turn: int) -> Mapping[str, Any]:
        if turn <= len(self._turns):
            return self._turns[turn - 1]
        return {"role": "user", "content": message.content}

    async def answer(self) -> TurnOutput:
        """Ask until the model answers without a call, at most `max_turns` times, then for a final answer."""
        unreadable, trace = 0, self._context.trace
        for _ in range(self._max_requests):
            reply = await self._requests.send(self._messages, self._tools, alone=self._alone and self._toolbox is None)
            if reply.end == "malformed_reply" and unreadable < MOST_UNREADABLE:
                unreadable += 1
                self._messages += _tell_unreadable(reply, trace)
                continue
            if not reply.tool_calls:
                return self._end(reply)
            unreadable = 0
            if reply.content:
                trace.message("assistant", reply.content)
            toolbox = self._toolbox = self._toolbox or self._context.toolbox()
            if self._declared:
                for call in reply.tool_calls:
                    trace.tool_call(call.trace_id or call.id, toolbox.tool_id(call.name), call.arguments, call.raw)
                return self._end(reply)
            self._messages.append(reply.message)
            outputs = await call_tools(reply.tool_calls, toolbox, trace, parallel=self._context.parallel_tools)
            for call, output in zip(reply.tool_calls, outputs, strict=True):
                self._messages.append({"role": "tool", "tool_call_id": call.id, "content": output.content})
        trace.event("max_turns_reached", max_turns=self._max_requests)
        self._messages.append({"role": "user", "content": FINAL_ANSWER_REQUEST})
        trace.message("user", FINAL_ANSWER_REQUEST)
        reply = await self._requests.send_last(self._messages, self._tools)
        if reply.content and reply.tool_calls:
            trace.message("assistant", reply.content)
        return self._end(reply, forced=True)

    def _end(self, reply: ChatReply, *, forced: bool = False) -> TurnOutput:
        message = reply.message
        if reply.tool_calls:
            # Endpoints refuse a history with calls that have no results
            message = {"role": "assistant", "content": reply.content or ""}
        self._messages.append(message)
        return self._requests.read_end(reply, forced=forced)


def _tell_unreadable(reply: ChatReply, trace: Recorder) -> list[dict[str, Any]]:
    """Return the messages after an unreadable reply: its text, if any, and the notice to the model."""
    raw = reply.detail.raw if reply.detail is not None else reply.finish_reason
    notice = UNREADABLE.format(raw or "no text and no tool call")
    trace.message("user", notice)
    own_text = [{"role": "assistant", "content": reply.content}] if reply.content else []
    return [*own_text, {"role": "user", "content": notice}]


class LlmProbe:
    """Calls the model, runs the tools that it calls, and repeats until it answers without a call.

    1. Up to `max_turns` requests offer the case's tools. A reply that is neither a call nor an answer costs a request,
       and the model gets a message about it, at most twice in a row. Functions that the case only declares are never
       run: the first reply with a call ends the run, or the turn.
    2. If the model still calls tools after that, one more request without tools asks for its final answer.

    In a conversation this happens in each turn. Every request, retry and reply is a runner event of the trace
    (`request`, `retry`, `reply`, `reply_message`, `reasoning`). The end has a reason of `records.run.EndReason`. Raises
    ProviderError, UnavailableError and ConfigError.
    """

    has_turns = True

    async def __call__(self, case: Case, context: RunContext) -> RunEnd:
        """Ask for one answer to the case's messages."""
        conversation = ProbeConversation(case, context, render_messages(case), alone=True)
        return record_answer(await conversation.answer(), context.trace)

    async def converse(self, case: Case, context: RunContext) -> ProbeConversation:
        """Begin a conversation after the case's messages and attachments."""
        opening = with_attachments(case, (*case.messages, *case.turns))
        return ProbeConversation(case, context, opening, alone=False)


llm_probe = LlmProbe()
