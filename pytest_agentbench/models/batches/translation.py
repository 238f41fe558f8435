"""Chat completions in the formats of Anthropic's and Google's batches.

Batches contain messages of text without tools, and one answer each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_agentbench.config.dialects import resolve_dialect
from pytest_agentbench.models.apis import gemini, messages
from pytest_agentbench.models.apis.base import find_limit, find_schema, list_stops, make_completion
from pytest_agentbench.models.messages import read_text

_OURS = frozenset({"model", "messages", "max_tokens", "max_completion_tokens", "stop", "response_format", "metadata"})


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
    system, others = _split_system(body["messages"])
    roles = {"user": "user", "assistant": "model"}
    made: dict[str, Any] = {
        "contents": [
            {"role": roles[each["role"]], "parts": [{"text": read_text(each.get("content")) or ""}]} for each in others
        ]
    }
    if system:
        made["systemInstruction"] = {"parts": [{"text": system}]}
    names = {"temperature": "temperature", "top_p": "topP", "seed": "seed", "presence_penalty": "presencePenalty"}
    names["frequency_penalty"] = "frequencyPenalty"
    config = {theirs: body[ours] for ours, theirs in names.items() if ours in body}
    if limit := find_limit(body):
        config["maxOutputTokens"] = limit
    if stop := body.get("stop"):
        config["stopSequences"] = list_stops(stop)
    if "response_format" in body:
        config["responseMimeType"] = "application/json"
        if schema := find_schema(body["response_format"]):
            config["responseJsonSchema"] = schema
    rest = {name: value for name, value in body.items() if name not in _OURS and name not in names}
    # Google refuses unknown fields by name, as in a direct request.
    return {**made, **({"generationConfig": config} if config else {}), **rest}


def from_gemini(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response of generateContent as a chat completion."""
    candidate = next((each for each in response.get("candidates") or () if isinstance(each, Mapping)), {})
    parts = [part for part in (candidate.get("content") or {}).get("parts") or () if isinstance(part, Mapping)]
    text, thoughts = (
        "".join(str(part.get("text") or "") for part in parts if bool(part.get("thought")) is wanted)
        for wanted in (False, True)
    )
    blocked = (response.get("promptFeedback") or {}).get("blockReason")
    reason = str(blocked or candidate.get("finishReason") or "")
    # Other reasons are normalised with those of all providers; not all of them mean a filter.
    finished = "content_filter" if blocked else gemini.READ_REASONS.get(reason, reason or None)
    used = response.get("usageMetadata") or {}
    thought = int(used.get("thoughtsTokenCount") or 0)
    usage = {
        "prompt_tokens": used.get("promptTokenCount"),
        "completion_tokens": int(used.get("candidatesTokenCount") or 0) + thought,
        "prompt_tokens_details": {"cached_tokens": int(used.get("cachedContentTokenCount") or 0)},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }
    message = {"role": "assistant", "content": text or None, **({"reasoning_content": thoughts} if thoughts else {})}
    choice = {"message": message, "finish_reason": finished}
    return make_completion(response.get("responseId"), response.get("modelVersion"), choice, usage)


def _split_system(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[Mapping[str, Any]]]:
    system = [read_text(each.get("content")) or "" for each in messages if each.get("role") == "system"]
    return "\n\n".join(system), [each for each in messages if each.get("role") != "system"]


def to_bytes(completion: Mapping[str, Any]) -> bytes:
    """Return a completion as the body of a reply."""
    return json.dumps(completion, ensure_ascii=False).encode("utf-8", "replace")
