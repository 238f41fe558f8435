"""Chat with a model: messages, requests and tool calls."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.config.base import YAML_SUFFIXES
from pytest_agentbench.config.documents import make_located_error
from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.errors import ConfigError, ProviderError
from pytest_agentbench.models.apis.messages import explain_version
from pytest_agentbench.models.clock import Wait
from pytest_agentbench.models.ends import GIVEN_UP, is_known_finish, messages_fit, read_finish
from pytest_agentbench.models.learning import KEEP_TOOLS, LIMITS
from pytest_agentbench.models.messages import digest_media, is_call_as_text, read_message, read_text
from pytest_agentbench.models.spelling import dialect_of
from pytest_agentbench.records.base import RunStatus
from pytest_agentbench.records.case import Attachment, Case, Dialect, Message
from pytest_agentbench.records.run import CALL_AS_TEXT, EndDetail, EndReason, RunError, Usage, describe_end
from pytest_agentbench.runners.base import Recorder, RunEnd
from pytest_agentbench.runners.conversation import TurnOutput

if TYPE_CHECKING:
    from pytest_agentbench.models.client import ChatClient
    from pytest_agentbench.models.messages import ChatReply, ToolCall
    from pytest_agentbench.models.passing import PassedRequest
    from pytest_agentbench.tools.base import Tool, ToolOutput
    from pytest_agentbench.tools.toolbox import Toolbox


_MAX_ATTACHMENT = 16 * 2**20


def render_messages(case: Case) -> list[dict[str, Any]]:
    """Return chat messages in order, each attachment as a user message just before the first user message.

    Raises ConfigError for a case without messages, and for an attachment that is not UTF-8 text or is no longer the
    file that was loaded.
    """
    if not case.messages:
        raise _refuse(case, "messages", "found none, expected at least one; add a user message")
    return with_attachments(case, case.messages)


def render_first(case: Case) -> list[dict[str, Any]]:
    """Return the messages of a run's first request: with turns those up to the first turn, else `render_messages`."""
    if case.turns:
        return with_attachments(case, (*case.messages, case.turns[0]))
    return render_messages(case)


def with_attachments(case: Case, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return these messages of the case with its attachments, as `render_messages` does. Raises its ConfigError."""
    attached = [{"role": "user", "content": _attachment(case, attachment)} for attachment in case.attachments]
    rendered = [_wire_message(message) for message in messages]
    first = next((place for place, message in enumerate(messages) if message.role == "user"), len(messages))
    # In separate user messages: a system prompt must not contain text of strangers
    return rendered[:first] + attached + rendered[first:]


def _wire_message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name:
        wire["name"] = message.name
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        wire["content"] = message.content or None
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
            }
            for call in message.tool_calls
        ]
    return wire


def _attachment(case: Case, attachment: Attachment) -> str:
    name = attachment.name
    if attachment.size > _MAX_ATTACHMENT:
        problem = f"found {name!r} with {attachment.size:,} bytes, expected at most {_MAX_ATTACHMENT:,}"
        raise _refuse(case, "attachments", problem)
    try:
        content = read_file(attachment.path, _MAX_ATTACHMENT)
    except OSError as error:
        raise _refuse(case, "attachments", f"cannot read {name!r}: {error.strerror}") from error
    # The run's fingerprint covers the file as loaded, so the run has to send exactly that
    if hashlib.sha256(content).hexdigest() != attachment.sha256:
        problem = f"{name!r} changed after the case was loaded; start the session again"
        raise _refuse(case, "attachments", problem)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"found {name!r}, which is not UTF-8 text (byte {error.start}), expected text; convert or remove it"
        raise _refuse(case, "attachments", problem) from error
    return f"Attached context file: {name}\n--- BEGIN ATTACHMENT {name} ---\n{text}\n--- END ATTACHMENT {name} ---"


def _refuse(case: Case, field: str, text: str) -> ConfigError:
    """Return an error for a field of the case's input, with its place if the case has its own YAML file."""
    # A row of a dataset has a line only, and no field `input`
    if case.dataset is None and case.path.suffix in YAML_SUFFIXES and case.path.is_file():
        return make_located_error(case.path, [(("input", field), text)])
    return ConfigError(f"{case.path}:{case.line}:1: input.{field}: {text}")


class Requests:
    """Sends one run's requests with the run's settings.

    Every request, retry and reply is a runner event of the trace (`request`, `retry`, `reply`); usage is added up.
    """

    def __init__(
        self, case_id: str, client: ChatClient, settings: RunnerSettings, trace: Recorder, own: Collection[str] = ()
    ) -> None:
        """Set up a run's requests. `own` names fields that the case sets; no endpoint may drop them."""
        self._case_id = case_id
        self._client = client
        self._settings = settings
        self._repeats = settings.repeats
        self._trace = trace
        self._own = frozenset(own) - {"type"}
        self._sent = 0
        self._calls: Counter[str] = Counter()
        self._asked: tuple[tuple[Mapping[str, Any], ...], int | None] = (), None
        self._truncated = self._explained_version = False
        self._limit: int | None = None
        self._turns: int | None = None

    @property
    def longest_outage(self) -> float:
        """Return the seconds for which a failing request is retried; infinite: until the run's time limit."""
        return self._settings.outage_seconds or math.inf

    def describe(self, messages: Sequence[Mapping[str, Any]], tools: Iterable[Tool], **limits: Any) -> None:
        """Record model, parameters, tools and limits in the trace, and the first messages."""
        settings = self._settings
        parameters = {**self._client.model.parameters, **settings.request_parameters}
        self._limit = next((parameters[name] for name in LIMITS if parameters.get(name) is not None), None)
        self._turns = limits.get("max_turns")
        self._trace.request.update(
            model=self._client.model.requested_model,
            parameters={name: value for name, value in parameters.items() if value is not None},
            tools=[tool.name for tool in tools],
            timeout_seconds=settings.timeout_seconds,
            **self._repeats,
            **limits,
        )
        for message in messages:
            self._trace.message(message["role"], message["content"] or "", message.get("name"))

    def compare_by(
        self, alike: Callable[[dict[str, Any]], dict[str, Any]], earlier: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> None:
        """Make a cassette compare requests after `alike` was applied to them. Without a cassette do nothing.

        `earlier` makes the form that older cassettes have recorded.
        """
        from pytest_agentbench.models.cassettes import TapedClient

        # Only the comparison uses the changed request: the model gets the original
        if isinstance(self._client, TapedClient):
            self._client = self._client.comparing(alike, earlier)

    async def send(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        parameters: Mapping[str, Any] | None = None,
        *,
        alone: bool = False,
        passed: PassedRequest | None = None,
        way: str | None = None,
        **note: Any,
    ) -> ChatReply:
        """Send one request. `parameters` have precedence over the settings; `note` is added to its event. Raises
        ProviderError.

        `alone`: it is the run's only request, so a batch may contain it. `passed` is a request of an agent to forward
        unchanged. Otherwise `way` is the agent's API, for cassettes. If the endpoint could not parse the model's call,
        the reply has the end `malformed_reply`.
        """
        self._sent += 1
        number = self._sent
        self._trace.event("request", number=number, messages=len(messages), tools=len(tools), **note)
        # Optional arguments: a plugin's client may accept neither `own` nor `alone` nor `way`
        further: dict[str, Any] = {**self._repeats, **self._settings.streaming}
        if self._own and self._client.model.provider is None:
            further["own"] = self._own
        if alone and getattr(self._client, "takes_alone", False):
            further["alone"] = True
        if way is not None and getattr(self._client, "taped", False):
            further["way"] = way
        merged = {**self._settings.request_parameters, **(parameters or {})}
        if passed is None:
            self._explain_version(merged)
        ask: Callable[..., Awaitable[ChatReply]] = partial(
            self._client.complete, messages, tools=tools, parameters=merged, case_id=self._case_id, **further
        )
        if passed is not None:  # the agent's own bytes, which the settings must not change
            ask = partial(self._client.forward, passed, stall_seconds=self._settings.stall_seconds, **self._repeats)
        with Wait(self.longest_outage) as wait:
            noting = partial(self._note_retry, number, wait)
            try:
                reply = await ask(timeout=self._settings.timeout_seconds, on_retry=noting)
                wait.answered(reply.seconds)
            except ProviderError as error:
                wait.answered()
                if error.partial is not None:
                    self._trace.event("partial", number=number, text=error.partial)
                if error.reason != "malformed_reply":
                    raise self._explain(error, number) from error
                reply = _read_unreadable(error, self._client.model.requested_model)
        reply = self._tell_calls_apart(reply)
        self._note(reply, number)
        self._watch_prompt(messages, reply, number)
        self._watch_calls(tools, reply, number)
        return reply

    async def send_last(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> ChatReply:
        """Request the final answer, without tools.

        Some endpoints require the definitions of tools that a conversation has used. They get the tools with
        `tool_choice: none`.
        """
        if self._dialect.final_without_tools:
            try:
                return await self.send(messages)
            except ProviderError as error:
                if not tools or not _WANTS_TOOLS.search(str(error)):
                    raise
                # Later runs of the session learn from this refusal
                if (spelling := getattr(self._client, "spelling", None)) is not None:
                    spelling.note(KEEP_TOOLS)
        return await self.send(messages, tools, _NO_CALLS)

    @property
    def _dialect(self) -> Dialect:
        # A replayed cassette has no adapter with learned quirks
        spelling = getattr(self._client, "spelling", None)
        return dialect_of(self._client.model) if spelling is None else spelling.dialect

    def _note_retry(self, number: int, wait: Wait, reason: str, delay: float, partial: str | None = None) -> None:
        wait.begin(reason)
        text = {} if partial is None else {"partial": partial}
        self._trace.event("retry", number=number, reason=reason, delay_seconds=delay, **text)

    def _explain(self, error: ProviderError, number: int) -> ProviderError:
        """Return the error with its place in the run, and with a refined reason and message."""
        detail = error.detail if isinstance(error.detail, EndDetail) else EndDetail()
        detail = detail.model_copy(update=self._place(number))
        message, code, reason = str(error), error.code, error.reason
        if reason == "context_exceeded" and number == 1 and messages_fit(message):
            message, code, reason = (
                f"{message} The prompt alone would fit: lower max_tokens.",
                "bad_request",
                "rejected",
            )
        elif reason in ("context_exceeded", "filtered"):
            message = f"{describe_end(reason, detail)}: {message}"
        return ProviderError(message, code=code, retryable=error.retryable, reason=reason, detail=detail)

    def _place(self, number: int) -> dict[str, Any]:
        return {"request": number, "at": "first_request" if number == 1 else "loop"}

    def _tell_calls_apart(self, reply: ChatReply) -> ChatReply:
        """Return the reply with new ids in the trace for calls whose ids earlier calls have."""
        calls = []
        for call in reply.tool_calls:
            self._calls[call.id] += 1
            if (times := self._calls[call.id]) > 1:
                call = replace(call, trace_id=f"{call.id}-{times}")
            calls.append(call)
        if not any(call.trace_id for call in calls):
            return reply
        return replace(reply, tool_calls=tuple(calls))

    def _watch_prompt(self, messages: Sequence[Mapping[str, Any]], reply: ChatReply, number: int) -> None:
        """Record a truncated prompt: the endpoint counts fewer tokens although messages were only added."""
        if not self._dialect.truncation_watch:
            return
        before, last = self._asked
        tokens = reply.usage.input_tokens
        self._asked = tuple(messages), tokens
        if tokens is None or last is None or tokens >= _TRUNCATED * last or len(before) > len(messages):
            return
        # By identity, which costs nothing: true for conversations that are extended in this process
        if all(old is new for old, new in zip(before, messages, strict=False)):
            self._truncated = True
            self._trace.event("prompt_truncated", number=number, before=last, now=tokens)
            self._trace.warnings.append(
                "the prompt was truncated by its endpoint: it counted fewer tokens for a longer conversation; give its "
                "server a larger context"
            )

    def _explain_version(self, parameters: Mapping[str, Any]) -> None:
        """Warn once why requests go to an older version of their API."""
        model = self._client.model
        if self._explained_version or model.api != "messages":  # first, because every request calls this
            return
        fields = [name for name, value in {**model.parameters, **parameters}.items() if value is not None]
        explanation = explain_version(model, fields)
        if explanation is not None:
            self._explained_version = True
            self._trace.warnings.append(explanation)

    def _watch_calls(self, tools: Sequence[Mapping[str, Any]], reply: ChatReply, number: int) -> None:
        """Record that the model wrote a correct tool call as text that the endpoint did not parse."""
        text = reply.content or reply.thoughts
        if not tools or reply.tool_calls or not text:
            return
        functions = (tool.get("function") for tool in tools)
        names = {name for item in functions if isinstance(item, Mapping) and isinstance(name := item.get("name"), str)}
        if is_call_as_text(text, names):
            self._trace.event(CALL_AS_TEXT, number=number)
            self._trace.warnings.append(
                "a tool call came as text: the endpoint seems to have no tool parser (vLLM: --enable-auto-tool-choice "
                "and --tool-call-parser)"
            )

    def _note(self, reply: ChatReply, number: int) -> None:
        trace = self._trace
        trace.add_usage(reply.usage)
        trace.event(
            "reply",
            number=number,
            finish_reason=reply.finish_reason,
            attempts=reply.attempts,
            seconds=reply.seconds,
            response_id=reply.response_id,
            **({} if reply.times is None else reply.times.measure(reply.usage)),
        )
        trace.event("reply_message", number=number, message=digest_media(reply.message))
        if reply.thoughts:
            trace.event("reasoning", number=number, text=reply.thoughts, tokens=reply.usage.reasoning_tokens)
        if reply.adapted:
            trace.request["adapted"] = [*dict.fromkeys((*trace.request.get("adapted", ()), *reply.adapted))]
        if reply.unfiltered:
            trace.event("filter_did_not_run", number=number)
            trace.warnings.append("the provider's content filter did not run on all messages and replies")
        finish = reply.finish_reason
        if finish is None and reply.times is not None:
            trace.warnings.append("a stream ended without a finish reason: its answer may have been cut off")
        if reply.detail is not None and finish and not is_known_finish(read_finish(finish)[0]):
            treated = "tool_calls" if reply.tool_calls else "stop"
            trace.warnings.append(f"unknown finish reason {finish!r} (treated as {treated!r})")
        provider = trace.provider
        provider["model"] = reply.model
        if reply.system_fingerprint is not None:
            provider["system_fingerprint"] = reply.system_fingerprint
        provider["finish_reason"] = reply.finish_reason
        provider["requests"] = provider.get("requests", 0) + 1
        provider["attempts"] = provider.get("attempts", 0) + reply.attempts
        provider["seconds"] = provider.get("seconds", 0.0) + reply.seconds
        if reply.batch is not None:
            provider["batch"] = dict(reply.batch)
        # All ids, because a provider finds its bill by them
        provider.setdefault("response_ids", []).append(reply.response_id)

    def read_end(self, reply: ChatReply, *, forced: bool = False) -> TurnOutput:
        """Return the answer and the end with this reply. `forced`: the model could not call tools any more.

        The text is None after another end than a success.
        """
        read = read_message({"content": reply.content}, reply.finish_reason)
        # A plugin's model returns only text and finish reason
        reason = reply.end or (None if reply.tool_calls else read.end)
        facts: dict[str, Any] = {"truncated": self._truncated}
        if reason != "answered":
            facts |= self._place(self._sent)
        detail = (reply.detail or read.detail).model_copy(update=facts)
        text = reply.content or ""
        if self._settings.keep_reasoning_tags:
            text = read_text(reply.message.get("content")) or text
        has_text = bool(text.strip())
        metadata: dict[str, Any] = {"finish_reason": reply.finish_reason}
        if forced:
            metadata["forced_final_answer"] = True
            if reason not in ("filtered", "context_exceeded", *GIVEN_UP):
                reason = "max_turns"
        # After the last turn only the text of a reply counts, even if it calls tools
        reason = reason or "answered"
        status = _STATUS_BY_END.get(reason, "success")
        if reason in ("length", "max_turns") and not has_text:
            status = "failed"
        if status == "success":
            noted = detail if detail != _NOTHING else None
            return TurnOutput(text, RunEnd(status, metadata=metadata, reason=reason, detail=noted))
        used = reply.usage
        message = describe_end(reason, detail, limit=self._limit, thoughts=used.reasoning_tokens, turns=self._turns)
        return TurnOutput(None, RunEnd(status, RunError(code=reason, message=message), metadata, reason, detail))


_NOTHING = EndDetail()
_NO_CALLS = {"tool_choice": "none"}
_WANTS_TOOLS = re.compile("must define tools|toolconfig", re.IGNORECASE)
_TRUNCATED = 0.9
"""A longer conversation with fewer prompt tokens than this share of the last request's was truncated."""
_STATUS_BY_END: Mapping[EndReason, RunStatus] = {
    "filtered": "failed",
    "context_exceeded": "failed",
    "malformed_reply": "invalid",
    "no_text": "invalid",
    **dict.fromkeys(GIVEN_UP, "provider_error"),
}


def _read_unreadable(error: ProviderError, model: str) -> ChatReply:
    """Return a reply in place of one that the endpoint could not parse."""
    from pytest_agentbench.models.messages import ChatReply

    detail = error.detail if isinstance(error.detail, EndDetail) else None
    raw = error.code if detail is None else detail.raw
    message = {"role": "assistant", "content": error.partial}
    return ChatReply(
        error.partial, (), raw, Usage(), model, None, message, 1, 0.0, end="malformed_reply", detail=detail
    )


T = TypeVar("T")


async def call_tools(
    calls: Sequence[ToolCall],
    toolbox: Toolbox,
    trace: Recorder,
    use: Callable[[ToolCall], Coroutine[Any, Any, ToolOutput]] | None = None,
    parallel: Literal["always", "never"] | None = None,
) -> list[ToolOutput]:
    """Run the calls of one reply and return their outputs in order. `use` runs one call, by default the toolbox does.

    Calls run one by one, unless all of them only read or `parallel` is set. Raises InfrastructureError.
    """
    # A model may write a file and read it in one reply, so the order matters unless all calls only read
    if parallel == "always" or (parallel is None and all(toolbox.reads_only(call.name) for call in calls)):
        return await _call_side_by_side(calls, toolbox, trace, use)
    return [output for call in calls for output in await _call_side_by_side([call], toolbox, trace, use)]


async def _call_side_by_side(
    calls: Sequence[ToolCall],
    toolbox: Toolbox,
    trace: Recorder,
    use: Callable[[ToolCall], Coroutine[Any, Any, ToolOutput]] | None,
) -> list[ToolOutput]:
    """Run all calls concurrently. The trace gets all calls, then all results, also if some calls were cancelled."""
    for call in calls:
        # All calls before any result, so that the trace shows that they ran concurrently
        trace.tool_call(call.trace_id or call.id, toolbox.tool_id(call.name), call.arguments, call.raw)

    async def plainly(call: ToolCall) -> ToolOutput:
        return await toolbox.call(call.name, call.arguments, call.raw)

    tasks = [asyncio.ensure_future((use or plainly)(call)) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await settled(tasks)
        for call, task in zip(calls, tasks, strict=True):
            # A call that ended before the cancellation has had its effects, so its result belongs in the trace
            if not task.cancelled() and task.exception() is None:
                output, name = task.result(), toolbox.tool_id(call.name)
                trace.tool_result(
                    call.trace_id or call.id,
                    name,
                    output.content,
                    is_error=output.is_error,
                    broken=output.broken,
                    refused=output.refused,
                    duration_seconds=output.seconds,
                )


async def together(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Await all concurrently. The first failure cancels the others and is raised once they have ended."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await settled(tasks)


async def settled(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Cancel unfinished tasks and wait until they have cleaned up."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        # Wait for them, because a cancelled tool may still use the sandbox that is stopped next
        await asyncio.wait(pending)
