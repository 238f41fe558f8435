"""The `llm_probe` runner: a chat model, the case's messages, and a loop over the tools the case exposes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config import RunnerSettings
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.records import Case
from pytest_agentbench.runners.base import RunContext, RunOutput
from pytest_agentbench.runners.prompt import render_messages
from pytest_agentbench.runners.recorder import Recorder
from pytest_agentbench.tools import Toolbox, ToolOutput

if TYPE_CHECKING:
    from pytest_agentbench.models import ChatClient, ChatReply, ToolCall

FINAL_ANSWER_REQUEST = "No more tool calls are possible. Give your final answer now."
"""What the model is told once it has used all its turns."""


async def llm_probe(case: Case, context: RunContext) -> RunOutput:
    """Ask the model, run the tools it calls, and go on until it answers without calling one.

    1. Up to `max_turns` requests offer the case's tools; the calls of one reply run in parallel.
    2. A model that still calls tools after that is asked once more, without tools, for its final answer.

    Every request, retry and reply is a runner event of the trace (`request`, `retry`, `reply`). An answer that the
    provider's content filter withheld is a failed run; one that was cut at the token limit is kept as it is, with
    `finish_reason: length` in the metadata. Raises ProviderError, UnavailableError and ConfigError.
    """
    if context.client is None:
        raise UnavailableError("llm_probe needs a model: name one with --model")
    settings = RunnerSettings.model_validate(dict(context.settings))
    toolbox = context.toolbox()
    conversation = _Conversation(case, context.client, settings, context.trace, render_messages(case))
    tools = toolbox.specs()
    conversation.describe(tools)
    for _ in range(settings.max_turns):
        reply = await conversation.ask(tools)
        if not reply.tool_calls:
            return _answer(reply)
        await conversation.use_tools(toolbox, reply.tool_calls)
    context.trace.event("max_turns_reached", max_turns=settings.max_turns)
    conversation.say(FINAL_ANSWER_REQUEST)
    return _answer(await conversation.ask(()), forced=True)


class _Conversation:
    """The growing list of messages, and the trace beside it."""

    def __init__(
        self,
        case: Case,
        client: ChatClient,
        settings: RunnerSettings,
        trace: Recorder,
        messages: list[dict[str, Any]],
    ) -> None:
        self._case = case
        self._client = client
        self._settings = settings
        self._trace = trace
        self._messages = messages
        self._requests = 0

    def describe(self, tools: Sequence[dict[str, Any]]) -> None:
        """Note what is asked of whom, and the messages given."""
        settings = self._settings
        parameters = {**self._client.model.parameters, **settings.request_parameters}
        self._trace.request.update(
            model=self._client.model.requested_model,
            parameters={name: value for name, value in parameters.items() if value is not None},
            tools=[spec["function"]["name"] for spec in tools],
            timeout_seconds=settings.timeout_seconds,
            retries=settings.retries,
            max_turns=settings.max_turns,
        )
        for message in self._messages:
            self._trace.message(message["role"], message["content"], message.get("name"))

    def say(self, text: str) -> None:
        """Add a user message."""
        self._messages.append({"role": "user", "content": text})
        self._trace.message("user", text)

    async def ask(self, tools: Sequence[dict[str, Any]]) -> ChatReply:
        """One request; its reply becomes part of the conversation."""
        self._requests += 1
        number = self._requests
        self._trace.event("request", number=number, messages=len(self._messages), tools=len(tools))
        reply = await self._client.complete(
            self._messages,
            tools=tools,
            parameters=self._settings.request_parameters,
            timeout=self._settings.timeout_seconds,
            retries=self._settings.retries,
            case_id=self._case.case_id,
            on_retry=lambda reason, delay: self._trace.event(
                "retry", number=number, reason=reason, delay_seconds=delay
            ),
        )
        self._note(reply, number)
        self._messages.append(reply.message)
        return reply

    async def use_tools(self, toolbox: Toolbox, calls: Sequence[ToolCall]) -> None:
        """Run the calls of one reply side by side. The trace keeps the model's order, even of what was cut off."""
        for call in calls:
            self._trace.tool_call(call.id, call.name, call.arguments, call.raw if call.arguments is None else None)
        tasks = [asyncio.ensure_future(toolbox.call(call.name, call.arguments, call.raw)) for call in calls]
        try:
            await asyncio.gather(*tasks)
        finally:
            await _settled(tasks)
            for call, task in zip(calls, tasks, strict=True):
                if not task.cancelled() and task.exception() is None:
                    self._answer_call(call, task.result())

    def _answer_call(self, call: ToolCall, output: ToolOutput) -> None:
        self._trace.tool_result(
            call.id, call.name, output.content, is_error=output.is_error, duration_seconds=output.seconds
        )
        self._messages.append({"role": "tool", "tool_call_id": call.id, "content": output.content})

    def _note(self, reply: ChatReply, number: int) -> None:
        self._trace.add_usage(reply.usage)
        self._trace.event(
            "reply",
            number=number,
            finish_reason=reply.finish_reason,
            attempts=reply.attempts,
            seconds=reply.seconds,
            response_id=reply.response_id,
        )
        provider = self._trace.provider
        provider["model"] = reply.model
        provider["finish_reason"] = reply.finish_reason
        provider["requests"] = number
        provider["attempts"] = provider.get("attempts", 0) + reply.attempts
        provider["seconds"] = provider.get("seconds", 0.0) + reply.seconds
        provider.setdefault("response_ids", []).append(reply.response_id)
        if reply.content and reply.tool_calls:
            self._trace.message("assistant", reply.content)


async def _settled(tasks: Sequence[asyncio.Task[ToolOutput]]) -> None:
    """Cancel what still runs and wait until it has cleaned up."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending)


def _answer(reply: ChatReply, *, forced: bool = False) -> RunOutput:
    """The run's output: the text as it came, empty where there is none."""
    text = reply.content or ""
    metadata: dict[str, Any] = {
        "finish_reason": reply.finish_reason,
        **({"forced_final_answer": True} if forced else {}),
    }
    if reply.finish_reason == "content_filter":
        error = "the provider's content filter withheld the answer (finish_reason: content_filter)"
        return RunOutput(output=text, status="failed", error=error, metadata=metadata)
    return RunOutput(output=text, metadata=metadata)
