"""Chat with a model: messages, requests, tool calls side by side, and the `llm_probe` runner."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.errors import ConfigError, UnavailableError
from pytest_agentbench.records.case import Attachment, Case, Message
from pytest_agentbench.runners.base import Recorder, RunContext, RunOutput

if TYPE_CHECKING:
    from pytest_agentbench.models.client import ChatClient
    from pytest_agentbench.models.replies import ChatReply, ToolCall
    from pytest_agentbench.tools.base import Tool, ToolOutput
    from pytest_agentbench.tools.toolbox import Toolbox


_MAX_ATTACHMENT = 16 * 2**20


def render_messages(case: Case) -> list[dict[str, Any]]:
    """Return chat messages in order, each attachment as a user message just before the first user message.

    Raises ConfigError for a case without messages, and for an attachment that is not UTF-8 text or is no longer the
    file that was loaded.
    """
    if not case.messages:
        raise ConfigError(_problem(case, "messages", "found none, expected at least one; add a user message"))
    return with_attachments(case, case.messages)


def with_attachments(case: Case, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return these messages of the case with its attachments, as `render_messages` does. Raises its ConfigError."""
    attached = [{"role": "user", "content": _attachment(case, attachment)} for attachment in case.attachments]
    shown = [
        {"role": message.role, "content": message.content, **({"name": message.name} if message.name else {})}
        for message in messages
    ]
    first = next((place for place, message in enumerate(messages) if message.role == "user"), len(messages))
    # In user messages of their own: a system prompt is not to hold what strangers may have written
    return shown[:first] + attached + shown[first:]


def _attachment(case: Case, attachment: Attachment) -> str:
    name = attachment.name
    content = _content(case, attachment)
    return f"Attached context file: {name}\n--- BEGIN ATTACHMENT {name} ---\n{content}\n--- END ATTACHMENT {name} ---"


def _content(case: Case, attachment: Attachment) -> str:
    name = attachment.name
    if attachment.size > _MAX_ATTACHMENT:
        found = f"found {name!r} with {attachment.size:,} bytes, expected at most {_MAX_ATTACHMENT:,}"
        raise ConfigError(_problem(case, "attachments", found))
    try:
        content = read_file(attachment.path, _MAX_ATTACHMENT)
    except OSError as error:
        raise ConfigError(_problem(case, "attachments", f"cannot read {name!r}: {error.strerror}")) from error
    # The run is stored under the fingerprint of what was loaded: it must see that
    if hashlib.sha256(content).hexdigest() != attachment.sha256:
        found = f"{name!r} changed after the case was loaded; start the session again"
        raise ConfigError(_problem(case, "attachments", found))
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"found {name!r}, which is not UTF-8 text (byte {error.start}), expected text; convert or remove it"
        raise ConfigError(_problem(case, "attachments", found)) from error


def _problem(case: Case, field: str, text: str) -> str:
    return f"{case.path}:{case.line}:1: input.{field}: {text}"


class Requests:
    """Sends one run's requests with the run's settings.

    Every request, retry and reply is a runner event of the trace (`request`, `retry`, `reply`); usage is added up.
    """

    def __init__(self, case_id: str, client: ChatClient, settings: RunnerSettings, trace: Recorder) -> None:
        self._case_id = case_id
        self._client = client
        self._settings = settings
        self._trace = trace
        self._sent = 0

    def describe(self, messages: Sequence[Mapping[str, Any]], tools: Iterable[Tool], **limits: Any) -> None:
        """Note what is asked of whom with which tools and limits, and the messages that the agent is given."""
        settings = self._settings
        parameters = {**self._client.model.parameters, **settings.request_parameters}
        self._trace.request.update(
            model=self._client.model.requested_model,
            parameters={name: value for name, value in parameters.items() if value is not None},
            tools=[tool.name for tool in tools],
            timeout_seconds=settings.timeout_seconds,
            retries=settings.retries,
            **limits,
        )
        for message in messages:
            self._trace.message(message["role"], message["content"], message.get("name"))

    def compare_by(self, alike: Callable[[str], str]) -> None:
        """Let a cassette, where one is in use, take requests for the same whose texts `alike` makes the same."""
        from pytest_agentbench.models.cassettes import TapedClient

        # Only what is compared is made alike: the model is sent the texts themselves
        if isinstance(self._client, TapedClient):
            self._client = self._client.comparing(alike)

    async def send(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        parameters: Mapping[str, Any] | None = None,
        *,
        alone: bool = False,
        **note: Any,
    ) -> ChatReply:
        """Send one request. `parameters` win over the settings; `note` joins its event. Raises ProviderError.

        `alone` says that it is the run's only one: it may go in a batch.
        """
        self._sent += 1
        number = self._sent
        self._trace.event("request", number=number, messages=len(messages), tools=len(tools), **note)
        reply = await self._client.complete(
            messages,
            tools=tools,
            parameters={**self._settings.request_parameters, **(parameters or {})},
            timeout=self._settings.timeout_seconds,
            retries=self._settings.retries,
            case_id=self._case_id,
            on_retry=lambda reason, delay: self._trace.event(
                "retry", number=number, reason=reason, delay_seconds=delay
            ),
            **self._settings.streaming,
            **({"alone": True} if alone and getattr(self._client, "takes_alone", False) else {}),
        )
        self._note(reply, number)
        return reply

    def _note(self, reply: ChatReply, number: int) -> None:
        self._trace.add_usage(reply.usage)
        self._trace.event(
            "reply",
            number=number,
            finish_reason=reply.finish_reason,
            attempts=reply.attempts,
            seconds=reply.seconds,
            response_id=reply.response_id,
            **({} if reply.times is None else reply.times.measure(reply.usage)),
        )
        provider = self._trace.provider
        provider["model"] = reply.model
        provider["finish_reason"] = reply.finish_reason
        provider["requests"] = provider.get("requests", 0) + 1
        provider["attempts"] = provider.get("attempts", 0) + reply.attempts
        provider["seconds"] = provider.get("seconds", 0.0) + reply.seconds
        if reply.batch is not None:
            provider["batch"] = dict(reply.batch)
        # All of them: with these a provider finds what it has billed
        provider.setdefault("response_ids", []).append(reply.response_id)


def answered(reply: ChatReply, **metadata: Any) -> RunOutput:
    """Return a run that ends with this reply: the text as it came, empty where there is none.

    An answer that the provider's content filter withheld is a failed run.
    """
    text = reply.content or ""
    metadata = {"finish_reason": reply.finish_reason, **metadata}
    # No blank answer of the agent: it was not let speak
    if reply.finish_reason == "content_filter":
        return RunOutput(output=text, status="failed", error=WITHHELD.format("answer"), metadata=metadata)
    return RunOutput(output=text, metadata=metadata)


WITHHELD = "the provider's content filter withheld the {} (finish_reason: content_filter)"


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
    settings, trace = RunnerSettings.model_validate(dict(context.settings)), context.trace
    # Most cases offer no tools: a toolbox is then needed only for a model that calls some that it made up
    toolbox = context.toolbox() if case.tools or context.servers is not None else None
    messages, tools = render_messages(case), toolbox.specs() if toolbox is not None else []
    requests = Requests(case.case_id, context.client, settings, trace)
    requests.describe(messages, toolbox.tools if toolbox is not None else (), max_turns=settings.max_turns)
    for _ in range(settings.max_turns):
        reply = await requests.send(messages, tools, alone=toolbox is None)
        if not reply.tool_calls:
            return answered(reply)
        if reply.content:
            trace.message("assistant", reply.content)
        messages.append(reply.message)
        toolbox = toolbox or context.toolbox()
        outputs = await call_tools(reply.tool_calls, toolbox, trace)
        for call, output in zip(reply.tool_calls, outputs, strict=True):
            messages.append({"role": "tool", "tool_call_id": call.id, "content": output.content})
    trace.event("max_turns_reached", max_turns=settings.max_turns)
    messages.append({"role": "user", "content": FINAL_ANSWER_REQUEST})
    trace.message("user", FINAL_ANSWER_REQUEST)
    # Without tools: a model that may still call one often does, and ends without an answer
    reply = await requests.send(messages)
    if reply.content and reply.tool_calls:
        trace.message("assistant", reply.content)
    return answered(reply, forced_final_answer=True)


T = TypeVar("T")


async def call_tools(
    calls: Sequence[ToolCall],
    toolbox: Toolbox,
    trace: Recorder,
    use: Callable[[ToolCall], Coroutine[Any, Any, ToolOutput]] | None = None,
) -> list[ToolOutput]:
    """Run the calls side by side; their outputs in the same order.

    The trace gets all calls, then all results that there are, in order, even of what was cut off. `use` makes one call;
    by default the toolbox does as it is. Raises InfrastructureError.
    """
    for call in calls:
        raw = call.raw if call.arguments is None else None
        # All calls before any result: the trace shows that they ran side by side
        trace.tool_call(call.id, toolbox.tool_id(call.name), call.arguments, raw)

    async def plainly(call: ToolCall) -> ToolOutput:
        return await toolbox.call(call.name, call.arguments, call.raw)

    tasks = [asyncio.ensure_future((use or plainly)(call)) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await settled(tasks)
        for call, task in zip(calls, tasks, strict=True):
            # What ended before the others were cut off has been done to the world: it belongs into the trace
            if not task.cancelled() and task.exception() is None:
                output, name = task.result(), toolbox.tool_id(call.name)
                trace.tool_result(
                    call.id,
                    name,
                    output.content,
                    is_error=output.is_error,
                    broken=output.broken,
                    duration_seconds=output.seconds,
                )


async def together(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Await all side by side. The first that fails cancels the others, which have ended when its error is raised."""
    tasks = [asyncio.ensure_future(each) for each in awaitables]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await settled(tasks)


async def settled(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Cancel what still runs and wait until it has cleaned up."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        # Wait for them: a tool that is cut off may still hold the sandbox that is stopped next
        await asyncio.wait(pending)
