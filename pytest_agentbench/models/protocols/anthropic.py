"""Anthropic's Messages: requests of Chat Completions as `POST /messages` takes them, and its answers as completions.

An assistant message keeps the blocks that it was made of (`content_blocks`) where they are more than its text and its
calls: `thinking` and `redacted_thinking` go back as they came.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pytest_agentbench.models.messages import read_text
from pytest_agentbench.records.case import Model

VERSION = "anthropic-version"
"""Header of the version of the API, a date."""
NEWEST = "2026-10-21"
"""Takes keys as `Authorization: Bearer`, and none of SAMPLING."""
SAMPLING_VERSION = "2023-06-01"
"""The latest version before NEWEST: takes keys in `x-api-key`, and SAMPLING."""
SAMPLING = frozenset({"temperature", "top_p", "top_k"})

BLOCKS = "content_blocks"
MOST_TOKENS = 4096
"""The limit, which this protocol demands, where a request has none; beside it what it may think."""
STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_FINISHED = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_TRANSLATED = frozenset(
    {"messages", "tools", "tool_choice", "parallel_tool_calls", "max_tokens", "max_completion_tokens", "stop"}
    | {"response_format", "reasoning_effort", "output_config"}
)
_SYSTEM = frozenset({"system", "developer"})


def choose_version(model: Model, fields: Collection[str]) -> str:
    """Return the version for a request with these fields: the one set by hand, else the newest that takes them."""
    if model.anthropic_version is not None:
        return model.anthropic_version
    return NEWEST if SAMPLING.isdisjoint(fields) else SAMPLING_VERSION


def explain_version(model: Model, fields: Collection[str]) -> str | None:
    """Return why requests with these fields go to another version than the newest; None if they do not."""
    named = ", ".join(sorted(SAMPLING.intersection(fields)))
    if not named or model.api != "messages" or model.scripted or has_version(model):
        return None
    return f"asked with {VERSION} {SAMPLING_VERSION}: {NEWEST} takes no {named}"


def has_version(model: Model) -> bool:
    """Return whether the model's entry says the version."""
    return model.anthropic_version is not None or _has_version_header(model)


def choose_headers(request: Mapping[str, Any], model: Model) -> dict[str, str]:
    """Return the headers of a request, unless the model's entry has them."""
    return {} if _has_version_header(model) else {VERSION: choose_version(model, request)}


def _has_version_header(model: Model) -> bool:
    return any(name.lower() == VERSION for name in model.headers)


def choose_auth_header(version: str) -> str:
    """Return the header of the key by the version of the API."""
    return "x-api-key" if version < NEWEST else "Authorization"


def write_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request; its other fields go as they are, and win over what is translated."""
    made: dict[str, Any] = {name: value for name, value in request.items() if name not in _TRANSLATED}
    made["max_tokens"] = request.get("max_tokens") or request.get("max_completion_tokens") or _choose_limit(request)
    said, others = (
        [each for each in request["messages"] if (each.get("role") in _SYSTEM) is wanted] for wanted in (True, False)
    )
    if system := _write_system(said):
        made.setdefault("system", system)
    made["messages"] = _write_messages(others)
    if stop := request.get("stop"):
        made.setdefault("stop_sequences", [stop] if isinstance(stop, str) else stop)
    if tools := request.get("tools"):
        made["tools"] = [_write_tool(tool) for tool in tools]
    if choice := _write_choice(request):
        made["tool_choice"] = choice
    config = {
        "format": _write_form(request.get("response_format")),
        "effort": request.get("reasoning_effort"),
        **(request.get("output_config") or {}),
    }
    if given := {name: value for name, value in config.items() if value is not None}:
        made["output_config"] = given
    return made


def _write_system(messages: Sequence[Mapping[str, Any]]) -> str | list[Any]:
    """Return the texts of system messages as one, or as their parts where these say more, such as what to cache."""
    contents = [content for each in messages if (content := each.get("content"))]
    if not any(isinstance(content, list) for content in contents):
        return "\n\n".join(contents)
    parts: list[Any] = []
    for content in contents:
        parts += content if isinstance(content, list) else [{"type": "text", "text": content}]
    return parts


def _choose_limit(request: Mapping[str, Any]) -> int:
    thinking = request.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
    return MOST_TOKENS + (budget if isinstance(budget, int) else 0)


def _write_choice(request: Mapping[str, Any]) -> dict[str, Any] | None:
    choice, one_by_one = request.get("tool_choice"), request.get("parallel_tool_calls") is False
    function = choice.get("function") if isinstance(choice, Mapping) else None
    if isinstance(function, Mapping):
        made = {"type": "tool", "name": function.get("name")}
    elif isinstance(choice, Mapping):  # in this protocol's own form
        made = dict(choice)
    elif choice is None and not one_by_one:
        return None
    else:
        made = {"type": CHOICES.get(choice or "auto", choice)}
    if one_by_one and made["type"] != "none":
        made["disable_parallel_tool_use"] = True
    return made


def _write_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):  # one of the endpoint's own, such as web_search
        return tool
    kept = {name: value for name, value in function.items() if name != "parameters"}
    return {**kept, "input_schema": function.get("parameters") or {"type": "object", "properties": {}}}


def _write_form(wanted: Any) -> dict[str, Any] | None:
    """Return the form of reply that a JSON Schema asks for: there is no other here."""
    described = wanted.get("json_schema") if isinstance(wanted, Mapping) else None
    schema = described.get("schema") if isinstance(described, Mapping) else None
    return {"type": "json_schema", "schema": schema} if schema else None


def _write_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    results: list[dict[str, Any]] | None = None  # of the calls of one message all in one, or they are refused
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": _write_parts(content)}
            if results is None:
                made.append({"role": "user", "content": (results := [])})
            results.append(result)
            continue
        results = None
        if role != "assistant":
            made.append({"role": role, "content": _write_parts(content)})
        elif blocks := _write_blocks(message):
            is_text = len(blocks) == 1 and blocks[0].keys() == {"type", "text"}
            made.append({"role": role, "content": blocks[0]["text"] if is_text else blocks})
    return made


def _write_blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the blocks of an assistant message: those that it came with, but for calls that it has no more."""
    calls = message.get("tool_calls") or ()
    if isinstance(own := message.get(BLOCKS), list):
        kept = {call["id"] for call in calls}
        return [each for each in own if each.get("type") != "tool_use" or each.get("id") in kept]
    text = read_text(message.get("content"))
    return [*([{"type": "text", "text": text}] if text else ()), *(_write_call(call) for call in calls)]


def _write_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    try:
        given = json.loads(function["arguments"] or "{}")
    except (ValueError, RecursionError):
        given = None
    # What was no object can be none here: the tool's answer tells what was wrong with it
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": function["name"],
        "input": given if isinstance(given, dict) else {},
    }


def _write_parts(content: Any) -> Any:
    return [_write_part(part) for part in content] if isinstance(content, list) else content or ""


def _write_part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = part.get("type")
    if kind == "image_url":
        return {"type": "image", "source": _write_source(part["image_url"]["url"])}
    if kind == "file" and (data := part["file"].get("file_data")):
        named = {"title": name} if (name := part["file"].get("filename")) else {}
        return {"type": "document", "source": _write_source(data), **named}
    return part


def _write_source(url: str) -> dict[str, str]:
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    return {"type": "url", "url": url}


def read_message(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as a chat completion. Raises ValueError where it is none."""
    blocks = data.get("content")
    if not isinstance(blocks, list) or not all(isinstance(block, Mapping) for block in blocks):
        raise ValueError("it has no content")
    reason = data.get("stop_reason")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(_list_texts(blocks, "text")) or None}
    if thoughts := "\n".join(_list_texts(blocks, "thinking")):
        message["reasoning_content"] = thoughts
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    if calls and reason == "max_tokens" and blocks[-1] is calls[-1]:
        calls.pop()  # the limit cut it off: what it asks for is not whole
    if calls:
        message["tool_calls"] = [_read_call(block) for block in calls]
    if blocks != _write_blocks(message) and all(block.get("id") for block in calls):
        message[BLOCKS] = blocks
    choice = {"index": 0, "message": message, "finish_reason": _FINISHED.get(str(reason), reason)}
    details = data.get("stop_details")
    if isinstance(details, Mapping) and isinstance(category := details.get("category"), str):
        choice["content_filter_results"] = {category: {"filtered": True}}
    return {"id": data.get("id"), "model": data.get("model"), "choices": [choice], "usage": data.get("usage")}


def _read_call(block: Mapping[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    function = {"name": block.get("name"), "arguments": arguments}
    return {"id": block.get("id"), "type": "function", "function": function}


def _list_texts(blocks: Sequence[Mapping[str, Any]], kind: str) -> Iterator[str]:
    """Yield the texts of the blocks of a kind, which call them by it."""
    for block in blocks:
        if block.get("type") == kind and isinstance(text := block.get(kind), str) and text:
            yield text
