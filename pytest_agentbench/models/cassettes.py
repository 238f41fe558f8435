"""The cassettes of a session, and the chat client whose answers they have or keep."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.errors import ConfigError, ProviderError
from pytest_agentbench.models.cassette_file import CASSETTES, Answer, Cassette, Refusal
from pytest_agentbench.models.client import ChatClient, OnRetry, request_body
from pytest_agentbench.models.replies import ChatReply, read_text, read_tool_call
from pytest_agentbench.models.tape import Form, Tape, map_texts
from pytest_agentbench.records.case import Case, CassetteMode, Model
from pytest_agentbench.store.files import slug
from pytest_agentbench.store.redaction import Redactor

_REFUSALS = frozenset({"bad_request"})
"""Codes of errors that say of this very request that it will never be answered."""


class TapedClient(ChatClient):
    """A client that asks one model through a tape. `connect` makes the client that really asks, at the first need."""

    taped = True

    def __init__(
        self,
        model: Model,
        tape: Tape,
        connect: Callable[[], ChatClient],
        alike: Callable[[str], str] = lambda text: text,
    ) -> None:
        self.model = model
        self._tape = tape
        self._connect = connect
        self._alike = alike

    def comparing(self, alike: Callable[[str], str]) -> TapedClient:
        """Return a client for an agent whose requests hold the time and the like.

        `alike` gives each text as it is kept and compared. The model is sent the texts themselves.
        """
        return TapedClient(self.model, self._tape, self._connect, alike)

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        parameters: Mapping[str, Any] | None = None,
        timeout: float = 30,  # noqa: ASYNC109 - passed on
        retries: int = 5,
        case_id: str | None = None,
        on_retry: OnRetry | None = None,
    ) -> ChatReply:
        """Return one chat completion, as `ChatClient.complete` does;
        a ProviderError may have the code `not_recorded`.
        """

        async def ask() -> ChatReply:
            return await self._connect().complete(
                messages,
                tools=tools,
                parameters=parameters,
                timeout=timeout,
                retries=retries,
                case_id=case_id,
                on_retry=on_retry,
            )

        # Through the very bytes that would be sent: what the client leaves out or adds is compared too.
        request = map_texts(json.loads(request_body(self.model, messages, tools, parameters or {})), self._alike)
        form = Form(_write_answer, self._read_answer, _keep_refusal, _raise_again)
        return await self._tape.play(self.model.model_id, request, ask, form)

    def _read_answer(self, answer: Answer, seconds: float) -> ChatReply:
        message = answer.message or {"role": "assistant", "content": answer.content}
        content = answer.content if answer.message is None else read_text(answer.message.get("content"))
        try:
            calls = tuple(read_tool_call(call, at) for at, call in enumerate(message.get("tool_calls") or ()))
        except (TypeError, KeyError, AttributeError) as error:
            raise ConfigError(
                f"{self._tape.path}:1:1: a reply of {self.model.model_id} has malformed tool calls"
            ) from error
        return ChatReply(
            content=content,
            tool_calls=calls,
            finish_reason=answer.finish_reason,
            usage=answer.usage,
            model=answer.model or self.model.requested_model,
            response_id=answer.response_id,
            message=dict(message),
            attempts=answer.attempts,
            seconds=seconds,
            reasoning=answer.reasoning,
        )


def _write_answer(reply: ChatReply) -> Answer:
    """Return the reply as a cassette keeps it: its assistant message only where it is more than its text."""
    text = json.dumps(reply.message, ensure_ascii=False, default=str)
    message = json.loads(text.encode("utf-8", "replace"))  # no file holds lone surrogates
    content = message.get("content")
    plain = message == {"role": "assistant", "content": content} and (content is None or isinstance(content, str))
    return Answer(
        content=content if plain else None,
        message=None if plain else message,
        reasoning=dict(reply.reasoning),
        finish_reason=reply.finish_reason,
        model=reply.model,
        response_id=reply.response_id,
        usage=reply.usage,
        attempts=reply.attempts,
    )


def _keep_refusal(error: Exception) -> Refusal | None:
    if isinstance(error, ProviderError) and error.code in _REFUSALS:
        return Refusal(code=error.code, message=str(error))
    return None


def _raise_again(refusal: Refusal) -> ProviderError:
    return ProviderError(refusal.message, code=refusal.code)


@dataclass(frozen=True)
class Cassettes:
    """The cassettes of a session:
    `mode` holds for models that say nothing of their own, `session` names the session.
    """

    mode: CassetteMode = "off"
    session: str | None = None
    redactor: Redactor = field(default_factory=Redactor)

    def mode_of(self, model: Model) -> CassetteMode:
        """Return what is done for a model. Scripted ones are asked as ever."""
        return "off" if model.scripted else model.cassettes or self.mode

    def path(self, case: Case, model_id: str, repetition: int) -> Path:
        """Return the file of a run: `cassettes/<model>-r<n>.yaml` in the case's folder; of a dataset's row, below its
        id.
        """
        folder = case.path.parent / CASSETTES
        if case.dataset is not None:
            folder /= slug(case.case_id)
        return folder / f"{slug(model_id)}-r{repetition}.yaml"

    def digest(self, case: Case, model_id: str, repetition: int) -> str | None:
        """Return the SHA-256 of a run's cassette file, None where there is none."""
        try:
            return hashlib.sha256(read_file(self.path(case, model_id, repetition))).hexdigest()
        except OSError:
            return None

    def tape(self, case: Case, model_id: str, repetition: int, modes: Mapping[str, CassetteMode]) -> Tape:
        """Return the tape of a run.

        `modes` are those of its models by id; others have the session's.
        """
        label = Cassette(case.case_id, model_id, repetition, self.session)
        path = self.path(case, model_id, repetition)
        return Tape(path, label, lambda asked: modes.get(asked, self.mode), self.redactor)
