"""Chat completions in the formats of Anthropic's and Google's batches.

Batches contain messages of text without tools, and one answer each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_agentbench.config.dialects import resolve_dialect
from pytest_agentbench.models.apis import gemini, messages
from pytest_agentbench.models.apis.base import find_limit, find_schema, list_stops, make_completion, split_system
from pytest_agentbench.models.messages import read_text

_OURS = frozenset({"model", "messages", "max_tokens", "max_completion_tokens", "stop", "response_format", "metadata"})
_ROLES = {"user": "user", "assistant": "model"}
_SETTINGS = {
    "temperature": "temperature",
    "top_p": "topP",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
"""Parameters whose values are the same in `generationConfig`. The order is part of the bytes of a batch."""


def to_anthropic(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request as the parameters of Messages. Fields that have no translation are sent unchanged."""
    lacking = {*resolve_dialect("anthropic", "", api="messages").ignored, "metadata"}
    return messages.write_request({name: value for name, value in body.items() if name not in lacking})


def from_anthropic(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as a chat completion. An invalid message becomes {}, which has no choices and is refused."""
    try:
        return messages.read_reply(message)
    except ValueError:
        return {}


def to_gemini(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request as one for generateContent."""
    instructions, others = split_system(body["messages"])
    made: dict[str, Any] = {
        "contents": [{"role": _ROLES[message["role"]], "parts": [_write_text(message)]} for message in others]
    }
    system = "\n\n".join(_write_text(message)["text"] for message in instructions)
    if system:
        made["systemInstruction"] = {"parts": [{"text": system}]}
    config = {theirs: body[ours] for ours, theirs in _SETTINGS.items() if ours in body}
    if limit := find_limit(body):
        config["maxOutputTokens"] = limit
    if stop := body.get("stop"):
        config["stopSequences"] = list_stops(stop)
    if "response_format" in body:
        config["responseMimeType"] = "application/json"
        if schema := find_schema(body["response_format"]):
            config["responseJsonSchema"] = schema
    if config:
        made["generationConfig"] = config
    # Google refuses unknown fields by name, as in a direct request.
    return made | {name: value for name, value in body.items() if name not in _OURS and name not in _SETTINGS}


def _write_text(message: Mapping[str, Any]) -> dict[str, str]:
    return {"text": read_text(message.get("content")) or ""}


def from_gemini(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response of generateContent as a chat completion."""
    candidate = next((item for item in response.get("candidates") or () if isinstance(item, Mapping)), {})
    parts = [part for part in (candidate.get("content") or {}).get("parts") or () if isinstance(part, Mapping)]
    message: dict[str, Any] = {"role": "assistant", "content": _join_texts(parts, thoughts=False) or None}
    if thoughts := _join_texts(parts, thoughts=True):
        message["reasoning_content"] = thoughts
    blocked = (response.get("promptFeedback") or {}).get("blockReason")
    reason = str(blocked or candidate.get("finishReason") or "")
    # Other reasons are normalised with those of all providers; not all of them mean a filter.
    finish = "content_filter" if blocked else gemini.READ_REASONS.get(reason, reason or None)
    used = response.get("usageMetadata") or {}
    thought_tokens = int(used.get("thoughtsTokenCount") or 0)
    usage = {
        "prompt_tokens": used.get("promptTokenCount"),
        "completion_tokens": int(used.get("candidatesTokenCount") or 0) + thought_tokens,
        "prompt_tokens_details": {"cached_tokens": int(used.get("cachedContentTokenCount") or 0)},
        "completion_tokens_details": {"reasoning_tokens": thought_tokens},
    }
    choice = {"message": message, "finish_reason": finish}
    return make_completion(response.get("responseId"), response.get("modelVersion"), choice, usage)


def _join_texts(parts: list[Mapping[str, Any]], *, thoughts: bool) -> str:
    return "".join(str(part.get("text") or "") for part in parts if bool(part.get("thought")) is thoughts)


def to_bytes(completion: Mapping[str, Any]) -> bytes:
    """Return a completion as the body of a reply."""
    return json.dumps(completion, ensure_ascii=False).encode("utf-8", "replace")
