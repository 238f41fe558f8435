"""The chat client that replays a cassette's answers or records new ones."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import ConfigError, ProviderError
from pytest_agentbench.models.apis.chat import drop_empty
from pytest_agentbench.models.attempts import OnRetry
from pytest_agentbench.models.cassette_file import Answer, Refusal
from pytest_agentbench.models.client import ChatClient
from pytest_agentbench.models.limits import OUTAGE
from pytest_agentbench.models.messages import ChatReply, read_message
from pytest_agentbench.models.spelling import compose_request, write_request
from pytest_agentbench.models.tape import Form, Tape
from pytest_agentbench.records.case import Model, Streamed
from pytest_agentbench.records.run import EndDetail, EndReason

if TYPE_CHECKING:
    from pytest_agentbench.models.passing import PassedRequest

_REFUSALS: Mapping[str, EndReason] = {
    "bad_request": "rejected",
    "context_exceeded": "context_exceeded",
    "filtered": "filtered",
    "malformed_reply": "malformed_reply",
}
"""Codes of errors that an equal request always gets, and how a run ends by them."""


class TapedClient(ChatClient):
    """A client that asks one model through a tape. `connect` opens a client for answers that the tape lacks."""

    taped = True

    def __init__(
        self,
        model: Model,
        tape: Tape,
        connect: Callable[[], ChatClient],
        alike: Callable[[dict[str, Any]], dict[str, Any]] = lambda request: request,
        earlier: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self.model = model
        self._tape = tape
        self._connect = connect
        self._alike, self._earlier = alike, earlier

    def comparing(
        self,
        alike: Callable[[dict[str, Any]], dict[str, Any]],
        earlier: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> TapedClient:
        """Return a client for an agent whose requests contain the time and other changing values.

        `alike` returns the form of a request that is recorded and compared, `earlier` a form in which older cassettes
        have recorded it. The model gets the request itself.
        """
        return TapedClient(self.model, self._tape, self._connect, alike, earlier)

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        parameters: Mapping[str, Any] | None = None,
        timeout: float = 30,  # noqa: ASYNC109 - passed on
        retries: int | None = None,
        outage_seconds: float = OUTAGE,
        case_id: str | None = None,
        on_retry: OnRetry | None = None,
        stream: Streamed | None = None,
        stall_seconds: float | None = None,
        alone: bool = False,
        own: Collection[str] = (),
        way: str | None = None,
    ) -> ChatReply:
        """Return one chat completion, as `ChatClient.complete` does; a ProviderError may have the code `not_recorded`.

        `way` describes an agent's request in another API than the model's: its recorded answer is not used for others.
        """

        async def ask() -> ChatReply:
            client, batching = self._connect(), {}
            if alone and getattr(client, "takes_alone", False):
                batching["alone"] = True
            return await client.complete(
                messages,
                tools=tools,
                parameters=parameters,
                timeout=timeout,
                retries=retries,
                outage_seconds=outage_seconds,
                case_id=case_id,
                on_retry=on_retry,
                stream=stream,
                stall_seconds=stall_seconds,
                own=own,
                **batching,
            )

        return await self._play(compose_request(self.model, messages, tools, parameters or {}), ask, way)

    async def forward(self, passed: PassedRequest, **options: Any) -> ChatReply:
        """Return the reply to an agent's own request as `ChatClient.forward` does.

        A reply from the tape is not passed to the agent: the caller writes it.
        """

        async def ask() -> ChatReply:
            return await self._connect().forward(passed, **options)

        return await self._play(passed.request, ask, f"{passed.api}, pass")

    async def _play(
        self, composed: Mapping[str, Any], ask: Callable[[], Awaitable[ChatReply]], way: str | None
    ) -> ChatReply:
        # The request before its adaptation to an endpoint: equal requests to different endpoints are equal on a tape.
        sent, further = json.loads(write_request(composed)), {} if way is None else {"asked_in": way}
        request = {**self._alike(sent), **further}
        earlier = None if self._earlier is None else {**self._earlier(sent), **further}
        form = Form(_write_answer, self._read_answer, _keep_refusal, _restore_refusal)
        return await self._tape.play(self.model.model_id, request, ask, form, earlier)

    def _read_answer(self, answer: Answer, seconds: float) -> ChatReply:
        message = answer.message or {"role": "assistant", "content": answer.content}
        try:
            read = read_message(message, answer.finish_reason)
        except (TypeError, KeyError, AttributeError) as error:
            raise ConfigError(
                f"{self._tape.path}:1:1: a reply of {self.model.model_id} has malformed tool calls"
            ) from error
        return ChatReply(
            content=read.content,
            tool_calls=read.tool_calls,
            finish_reason=answer.finish_reason,
            usage=answer.usage,
            model=answer.model or self.model.requested_model,
            response_id=answer.response_id,
            message=read.message,
            attempts=answer.attempts,
            seconds=seconds,
            reasoning={**answer.reasoning, **read.reasoning},
            thoughts=read.thoughts or "\n".join(dict.fromkeys(answer.reasoning.values())) or None,
            end=read.end,
            detail=read.detail,
        )


def _write_answer(reply: ChatReply) -> Answer:
    """Return the recorded form of a reply: with its assistant message only if that is more than its text."""
    text = json.dumps(drop_empty(reply.message), ensure_ascii=False, default=str)
    message = json.loads(text.encode("utf-8", "replace"))  # lone surrogates cannot be written to a file
    answer: dict[str, Any] = {"message": message}
    content = message.get("content")
    # As short as possible: people read and edit cassettes.
    if message == {"role": "assistant", "content": content} and (content is None or isinstance(content, str)):
        answer = {"content": content}
    return Answer(
        **answer,
        reasoning={name: text for name, text in reply.reasoning.items() if name not in message},
        finish_reason=reply.finish_reason,
        model=reply.model,
        response_id=reply.response_id,
        usage=reply.usage,
        attempts=reply.attempts,
    )


def _keep_refusal(error: Exception) -> Refusal | None:
    if isinstance(error, ProviderError) and error.code in _REFUSALS:
        return Refusal(code=error.code, message=str(error), partial=error.partial)
    return None


def _restore_refusal(refusal: Refusal) -> ProviderError:
    return ProviderError(
        refusal.message,
        code=refusal.code,
        reason=_REFUSALS.get(refusal.code, "rejected"),
        detail=EndDetail(side="input" if refusal.code == "filtered" else None),
        partial=refusal.partial,
    )
