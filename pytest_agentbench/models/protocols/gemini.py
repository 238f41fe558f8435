"""Google's generateContent: requests of Chat Completions as `models/M:generateContent` takes them, and its answers as
completions.

An assistant message keeps the parts that it was made of (`content_parts`) where one is signed: a call of Gemini's goes
back with its signature or is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_agentbench.models.messages import read_text

PARTS = "content_parts"
STATUSES = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
SETTINGS = {
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
"""Parameters whose values are the same in `generationConfig`."""
MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_FINISHED = {"STOP": "stop", "MAX_TOKENS": "length"}
_TRANSLATED = frozenset(
    {"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "max_completion_tokens", "stop"}
    | {"response_format", "reasoning_effort", "stream", "generationConfig"}
).union(SETTINGS)
_SYSTEM = frozenset({"system", "developer"})


def write_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request; its other fields go as they are, and win over what is translated."""
    made: dict[str, Any] = {name: value for name, value in request.items() if name not in _TRANSLATED}
    messages = request["messages"]
    system = [part for each in messages if each.get("role") in _SYSTEM for part in _write_parts(each.get("content"))]
    if system:
        made.setdefault("systemInstruction", {"parts": system})
    made["contents"] = _write_contents([each for each in messages if each.get("role") not in _SYSTEM])
    if tools := [tool["function"] for tool in request.get("tools") or () if "function" in tool]:
        made.setdefault("tools", [{"functionDeclarations": [_write_tool(tool) for tool in tools]}])
    if (choice := request.get("tool_choice")) is not None:
        made.setdefault("toolConfig", {"functionCallingConfig": _write_choice(choice)})
    if config := {**_write_config(request), **(request.get("generationConfig") or {})}:
        made["generationConfig"] = config
    return made


def _write_config(request: Mapping[str, Any]) -> dict[str, Any]:
    limit = request.get("max_tokens") or request.get("max_completion_tokens")
    given = {**request, "max_tokens": limit}
    config = {theirs: value for ours, theirs in SETTINGS.items() if (value := given.get(ours)) is not None}
    if stop := request.get("stop"):
        config["stopSequences"] = [stop] if isinstance(stop, str) else stop
    if (effort := request.get("reasoning_effort")) is not None:
        config["thinkingConfig"] = {"thinkingLevel": effort}
    form = request.get("response_format")
    if isinstance(form, Mapping) and form.get("type") in ("json_object", "json_schema"):
        config["responseMimeType"] = "application/json"
        if schema := (form.get("json_schema") or {}).get("schema"):
            config["responseJsonSchema"] = schema
    return config


def _write_tool(function: Mapping[str, Any]) -> dict[str, Any]:
    names = {"name": "name", "description": "description", "parameters": "parametersJsonSchema"}
    return {theirs: function[ours] for ours, theirs in names.items() if function.get(ours) is not None}


def _write_choice(choice: Any) -> dict[str, Any]:
    if isinstance(choice, str):
        return {"mode": MODES.get(choice, choice)}
    return {"mode": "ANY", "allowedFunctionNames": [choice["function"]["name"]]}


def _write_contents(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    results: list[dict[str, Any]] | None = None  # of the calls of one message all in one
    called: dict[str, str] = {}
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            call_id = message["tool_call_id"]
            answer = {"id": call_id, "name": called.get(call_id, call_id), "response": {"output": read_text(content)}}
            if results is None:
                made.append({"role": "user", "parts": (results := [])})
            results.append({"functionResponse": answer})
            continue
        results = None
        if role != "assistant":
            made.append({"role": role, "parts": _write_parts(content)})
            continue
        called |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls") or ()}
        if parts := _write_own(message):
            made.append({"role": "model", "parts": parts})
    return made


def _write_own(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the parts of an assistant message: those that it came with, but for calls that it has no more."""
    calls = message.get("tool_calls") or ()
    if isinstance(own := message.get(PARTS), list):
        kept = {call["id"] for call in calls}
        return [each for each in own if "functionCall" not in each or each["functionCall"].get("id") in kept]
    text = read_text(message.get("content"))
    return [*([{"text": text}] if text else ()), *(_write_call(call) for call in calls)]


def _write_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    try:
        given = json.loads(function["arguments"] or "{}")
    except (ValueError, RecursionError):
        given = None
    arguments = given if isinstance(given, dict) else {}
    return {"functionCall": {"id": call["id"], "name": function["name"], "args": arguments}}


def _write_parts(content: Any) -> list[dict[str, Any]]:
    if not isinstance(content, list):
        return [{"text": content}] if content else []
    return [_write_part(part) for part in content]


def _write_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") != "image_url":
        return {"text": part["text"]}
    url = part["image_url"]["url"]
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return {"inlineData": {"mimeType": head.removeprefix("data:"), "data": data}}
    return {"fileData": {"fileUri": url}}


def read_response(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response as a chat completion. Raises ValueError where it is none."""
    candidates = data.get("candidates")
    first = candidates[0] if isinstance(candidates, list) and candidates else None
    candidate = first if isinstance(first, Mapping) else {}
    content = candidate.get("content")
    parts = content.get("parts") or [] if isinstance(content, Mapping) else []
    feedback = data.get("promptFeedback")
    blocked = feedback.get("blockReason") if isinstance(feedback, Mapping) else None
    if not candidate and not blocked:
        raise ValueError("it has no candidates")
    if not isinstance(parts, list) or not all(isinstance(part, Mapping) for part in parts):
        raise ValueError("its parts are no objects")
    answer_id = data.get("responseId")
    message = read_parts([_name_call(part, f"call_{answer_id}_{number}") for number, part in enumerate(parts)])
    reason = str(candidate.get("finishReason") or "STOP")
    finish = _FINISHED.get(reason, reason.lower()) if candidate else "content_filter"
    finish = "tool_calls" if "tool_calls" in message and finish == "stop" else finish
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = _read_usage(data.get("usageMetadata"))
    return {"id": answer_id, "model": data.get("modelVersion"), "choices": [choice], "usage": usage}


def _name_call(part: Mapping[str, Any], call_id: str) -> Mapping[str, Any]:
    """Return a part, its call with an id: Google gives none, and by it the result is told apart."""
    call = part.get("functionCall")
    if not isinstance(call, Mapping) or call.get("id"):
        return part
    return {**part, "functionCall": {**call, "id": call_id}}


def read_parts(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the parts of a model's content as an assistant message."""
    message: dict[str, Any] = {"role": "assistant", "content": "".join(_list_texts(parts, False)) or None}
    if thoughts := "".join(_list_texts(parts, True)):
        message["reasoning_content"] = thoughts
    calls = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), Mapping)]
    if calls:
        message["tool_calls"] = [_read_call(call) for call in calls]
    if any(part.get("thoughtSignature") for part in parts):
        message[PARTS] = [*parts]
    return message


def _read_call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
    return {"id": call.get("id"), "type": "function", "function": {"name": call.get("name"), "arguments": arguments}}


def _list_texts(parts: Sequence[Mapping[str, Any]], thought: bool) -> Iterator[str]:
    for part in parts:
        if bool(part.get("thought")) is thought and isinstance(text := part.get("text"), str):
            yield text


def _read_usage(counted: Any) -> dict[str, Any] | None:
    """Return the tokens by the names of Chat Completions, beside Google's own."""
    if not isinstance(counted, Mapping) or not isinstance(counted.get("promptTokenCount"), int):
        return None

    def add(*names: str) -> int | None:
        told = [value for name in names if isinstance(value := counted.get(name), int)]
        return sum(told) if told else None

    return {
        **counted,
        "prompt_tokens": add("promptTokenCount", "toolUsePromptTokenCount"),
        "prompt_tokens_details": {"cached_tokens": add("cachedContentTokenCount")},
        "completion_tokens": add("candidatesTokenCount", "thoughtsTokenCount"),
        "completion_tokens_details": {"reasoning_tokens": add("thoughtsTokenCount")},
    }
