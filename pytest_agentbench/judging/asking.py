"""Asks one judge until its reply keeps the contract, or there is no more to try."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.prompts import clip_middle
from pytest_agentbench.models.replies import InvalidReply
from pytest_agentbench.models.scripted_app import REPETITION_FIELD
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage
from pytest_agentbench.store.fingerprints import fingerprint

if TYPE_CHECKING:
    from pytest_agentbench.models.client import ChatClient
    from pytest_agentbench.models.replies import ChatReply

MAX_ATTEMPTS = 3
"""How often a judge is asked before it is `invalid_output`."""
REQUEST_SECONDS = 120.0
BACKOFF_SECONDS = 0.25
"""The wait before the first re-asking; it doubles with each."""
MAX_QUOTED_REPLY = 20_000

_without_schemas: set[tuple[str | None, str]] = set()
"""The endpoints and models that have refused a response schema in this process: asked for plain JSON from then on."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """What a judge answered: its text, and what that used."""

    content: str | None
    usage: Usage = field(default_factory=Usage)
    finish_reason: str | None = None


Send = Callable[[Sequence[dict[str, str]]], Awaitable["JudgeReply | ChatReply"]]
"""One request with the conversation so far."""


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """How it ended: `verdict` where `status` is success, else `error` says why there is none.

    `usage` sums all replies, None where none came. `attempts` counts the requests that were answered or failed.
    """

    status: Literal["success", "invalid_output", "provider_error"]
    verdict: T | None
    error: str | None
    attempts: int
    usage: Usage | None
    seconds: float


async def ask(
    send: Send,
    messages: Sequence[dict[str, str]],
    parse: Callable[[str], T],
    backoff_seconds: float = BACKOFF_SECONDS,
) -> Asked[T]:
    """Ask, and asks again with what was wrong, until `parse` (which raises InvalidReply) takes the reply.

    Whatever `send` raises is a `provider_error`.
    """
    began, attempt = time.monotonic(), 0
    usage: Usage | None = None
    conversation = list(messages)

    def ended(
        status: Literal["success", "invalid_output", "provider_error"],
        verdict: T | None = None,
        error: str | None = None,
    ) -> Asked[T]:
        return Asked(status, verdict, error, attempt, usage, time.monotonic() - began)

    while True:
        attempt += 1
        try:
            reply = await send(conversation)
        except ProviderError as error:
            return ended("provider_error", error=str(error))
        except Exception as error:  # noqa: BLE001 - a plugin's judge or client; the other iterations count all the same
            return ended("provider_error", error=f"{type(error).__name__}: {error}")
        usage = reply.usage if usage is None else usage + reply.usage
        try:
            return ended("success", parse(reply.content or ""))
        except InvalidReply as error:
            cut = "\n- the reply was cut off at the token limit" if reply.finish_reason == "length" else ""
            problems = f"{error}{cut}"
        if attempt == MAX_ATTEMPTS:
            return ended("invalid_output", error=f"no verdict in {attempt} replies; the last one:\n{problems}")
        conversation = [*messages, *_reminder(reply, problems)]
        await asyncio.sleep(backoff_seconds * 2 ** (attempt - 1) * random.uniform(1, 1.5))


def chat_sender(
    client: ChatClient,
    case_id: str,
    response_format: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    request_seconds: float = REQUEST_SECONDS,
) -> Send:
    """Ask a chat model with structured output, unless the endpoint refuses it or `options` say otherwise.

    `options` are further fields of the request; None as `response_format` asks for plain text. `request_seconds` bounds
    each request. What a cassette keeps does not depend on what was asked before for others.
    """
    endpoint = (client.model.base_url, client.model.requested_model)
    without_schemas = set() if getattr(client, "taped", False) else _without_schemas

    async def send(conversation: Sequence[dict[str, str]]) -> ChatReply:
        structured = response_format is not None and "response_format" not in options
        if structured and endpoint not in without_schemas:
            try:
                return await client.complete(
                    conversation,
                    parameters={"response_format": response_format, **options},
                    timeout=request_seconds,
                    case_id=case_id,
                )
            except ProviderError as error:
                if not _refuses_schemas(error):
                    raise
                without_schemas.add(endpoint)
        return await client.complete(conversation, parameters=options, timeout=request_seconds, case_id=case_id)

    return send


def request_key(
    contract: int | str, model: Model, messages: Sequence[dict[str, str]], repetition: int, **further: Any
) -> str:
    """Return the identity of what one of several requests is answered: all that can change it, and which draw it is.

    64 hex digits. `contract` names the version of how replies are read.
    """
    identity = {"requested_model", "base_url", "provider", "scripted", "parameters", "options"}
    asked = {"contract": contract, "model": model.model_dump(include=identity), "messages": messages}
    return fingerprint({**asked, "repetition": repetition, **further})


def numbered_options(client: ChatClient, options: Mapping[str, Any], repetition: int) -> Mapping[str, Any]:
    """Return the options of one of several requests. Only a scripted model is told which one it is, from 1."""
    if not client.model.scripted:
        return options
    return {**options, "metadata": {REPETITION_FIELD: str(repetition)}}


def failures_text(what: str, failed: Sequence[tuple[str, str]]) -> str:
    """Return how many `what` failed and why, given their statuses and causes."""
    counts = Counter(status for status, _ in failed)
    named = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    causes = Counter(cause for _, cause in failed).most_common(3)
    shown = [f"{cause} [{count} times]" if count > 1 else cause for cause, count in causes]
    return "\n".join([f"no judge gave a verdict: {len(failed)} of {len(failed)} {what} failed ({named}).", *shown])


def _reminder(reply: JudgeReply | ChatReply, problems: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the refused reply and what is wrong with it."""
    quoted = clip_middle(reply.content or "(an empty reply)", MAX_QUOTED_REPLY)
    request = (
        f"Your reply does not keep the contract:\n{problems}\n"
        "Reply again, whole and in the form that was asked for, with nothing else."
    )
    return {"role": "assistant", "content": quoted}, {"role": "user", "content": request}


def _refuses_schemas(error: ProviderError) -> bool:
    text = str(error).lower()
    return not error.retryable and any(word in text for word in ("response_format", "json_schema", "structured output"))
