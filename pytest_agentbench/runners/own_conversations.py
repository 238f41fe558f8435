"""Conversations with a user's own agent: an object that opens them, a chat function, or code with its own loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from inspect import getattr_static, signature
from typing import Any

from pytest_agentbench.records.case import Case, Message
from pytest_agentbench.runners.base import RunContext, RunEnd, Runner, RunOutput, make_end
from pytest_agentbench.runners.chat import render_messages, with_attachments
from pytest_agentbench.runners.conversation import AgentConversation, TurnOutput, name_turn, read_answer
from pytest_agentbench.runners.kinds import RunnerKind

ChatFunction = Callable[[Sequence[Mapping[str, Any]]], str | Awaitable[str]]
"""Returns the next answer of a chat, of which it gets all messages. It may be a coroutine function."""


async def call_user_code(context: RunContext, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the value of a user's function: of a coroutine function on the loop, of a plain function in a thread."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    value = await context.in_thread(partial(function, *arguments))
    if inspect.isawaitable(value):
        return await value
    return value


def opens_conversations(agent: Any) -> bool:
    """Return whether a user's agent is an object with `open(case, context)`."""
    # A static look-up, because a proxy or a mock has every attribute. The `open` of a RunnerKind opens its session.
    if isinstance(agent, RunnerKind) or getattr_static(agent, "open", None) is None:
        return False
    try:
        signature(agent.open).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True


async def converse_with(agent: Any, runner: Runner, case: Case, context: RunContext) -> AgentConversation:
    """Begin a conversation with a user's agent. `runner` is the agent as a runner, for an agent with its own loop."""
    if opens_conversations(agent):
        return OpenedConversation(await call_user_code(context, agent.open, case, context), context)
    return LoopConversation(runner, case, context)


async def answer_alone(agent: Any, case: Case, context: RunContext) -> Any:
    """Return the answer to a case without turns of an agent that only opens conversations."""
    *before, message = case.messages
    alone = case.model_copy(update={"messages": tuple(before)})
    opened = OpenedConversation(await call_user_code(context, agent.open, alone, context), context)
    try:
        return await opened.ask(message)
    finally:
        await opened.close()


class OpenedConversation(AgentConversation):
    """Asks the object that the `open` of a user's agent returned: by its `reply(message)`. It may have a `close()`."""

    def __init__(self, opened: Any, context: RunContext) -> None:
        self._opened, self._context = opened, context

    async def ask(self, message: Message) -> Any:
        """Return the value of the object's `reply`."""
        return await call_user_code(self._context, self._opened.reply, message.content)

    async def reply(self, message: Message, turn: int) -> TurnOutput:
        """Return the answer of the object's `reply`."""
        return read_answer(await self.ask(message), self._context.trace)

    async def close(self) -> None:
        """Close the object if it has a `close`."""
        if getattr_static(self._opened, "close", None) is not None:
            await call_user_code(self._context, self._opened.close)


class LoopConversation(AgentConversation):
    """An agent that keeps its own loop: it hands over each answer to `context.turn` and gets the next message from it.

    The agent runs in a task of its own from the first message to its return. Either the engine waits for the agent's
    answer or the agent waits for the engine's message: the queues hold at most one of either.
    """

    def __init__(self, runner: Runner, case: Case, context: RunContext) -> None:
        self._runner, self._case, self._context = runner, case, context
        self._loop = asyncio.get_running_loop()
        self._answers: asyncio.Queue[str | RunOutput] = asyncio.Queue()
        self._messages: asyncio.Queue[str | None] = asyncio.Queue()
        self._agent: asyncio.Future[Any] | None = None
        self._turn, self._is_over = 0, False

    async def reply(self, message: Message, turn: int) -> TurnOutput:
        """Give the message to the agent, and return its next answer. The value that it returns is its last answer."""
        if self._agent is None:
            self._context.user = self
            # The first message is where agents look for the question of a case without turns
            case = self._case.model_copy(update={"messages": (*self._case.messages, message)})
            self._agent = asyncio.ensure_future(self._runner(case, self._context))
        elif self._agent.done():
            return TurnOutput(None, self._returned_early())
        else:
            self._messages.put_nowait(message.content)
        self._turn = turn
        answer = asyncio.ensure_future(self._answers.get())
        try:
            await asyncio.wait({answer, self._agent}, return_when=asyncio.FIRST_COMPLETED)
            value = answer.result() if answer.done() else self._agent.result()
        finally:
            answer.cancel()
        return read_answer(value, self._context.trace)

    def _returned_early(self) -> RunEnd:
        place = name_turn(self._turn, len(self._case.turns) or None)
        return make_end(
            "invalid",
            "returned_early",
            f"the agent returned at {place}; it gets the next message from `await context.turn(answer)`",
        )

    async def turn(self, answer: str | RunOutput) -> str | None:
        """Hand over the answer, and return the next message; None if the conversation is over."""
        if self._is_over:
            raise RuntimeError("context.turn: the conversation is over, and an earlier call returned None; return then")
        self._answers.put_nowait(answer)
        message = await self._messages.get()
        self._is_over = message is None
        return message

    def turn_sync(self, answer: str | RunOutput) -> str | None:
        """Do the same for an agent in a thread."""
        try:
            is_on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_on_loop = False
        if is_on_loop:
            raise RuntimeError("context.turn_sync would block the agent's event loop; use `await context.turn(...)`")
        return asyncio.run_coroutine_threadsafe(self.turn(answer), self._loop).result()

    async def finish(self) -> RunEnd | None:
        """Let the agent return. Its return value adds tool calls, usage, metadata and a failure, but no answer."""
        if self._agent is None or self._agent.done():
            return None
        self._messages.put_nowait(None)
        return read_answer(await self._agent, self._context.trace).end

    async def close(self) -> None:
        """Cancel the agent if it has not returned. A thread that waits for a message gets None."""
        self._is_over = True
        if self._agent is not None and not self._agent.done():
            self._messages.put_nowait(None)
            self._agent.cancel()
            await asyncio.wait([self._agent])


class ChatAgent:
    """An agent made of a chat function, with the function's name and identity: see `chat_agent`."""

    def __init__(self, function: ChatFunction) -> None:
        # The identity of an agent follows `__wrapped__`; its arguments are those of this class
        self.__signature__ = signature(self.__call__)
        self.__wrapped__ = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    async def __call__(self, case: Case, context: RunContext) -> Any:
        """Return the function's answer to the case's messages."""
        return await call_user_code(context, self.__wrapped__, render_messages(case))

    def open(self, case: Case, context: RunContext) -> Any:
        """Begin a conversation after the case's messages and attachments."""
        return _Chat(self.__wrapped__, context, with_attachments(case, case.messages))


class _Chat:
    """The messages of one conversation with a chat function."""

    def __init__(self, function: ChatFunction, context: RunContext, messages: list[dict[str, Any]]) -> None:
        self._function, self._context, self._messages = function, context, messages

    async def reply(self, message: str) -> Any:
        """Return the function's answer to all messages so far, and keep it."""
        self._messages.append({"role": "user", "content": message})
        answer = await call_user_code(self._context, self._function, [*self._messages])
        self._messages.append({"role": "assistant", "content": answer})
        return answer


def chat_agent(function: ChatFunction) -> ChatAgent:
    """Return an agent for a function of a chat's messages: it is called with the whole history in each turn.

    `messages` are mappings with `role` and `content`; the function returns the text of the next answer, or is a
    coroutine function that does.
    """
    return ChatAgent(function)
