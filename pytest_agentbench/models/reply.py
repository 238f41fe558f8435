"""A chat completion, as the rest of the package reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pytest_agentbench.models.failures import RequestFailed, invalid_reply, status_failed
from pytest_agentbench.models.pricing import read_usage
from pytest_agentbench.records import Model, Usage

_REASONING = ("reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model asks for. `arguments` is None where `raw`, the model's own text, is no JSON object."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    raw: str


@dataclass(frozen=True, slots=True)
class ChatReply:
    """One answer of a model.

    `message` is the assistant message as it goes back into the conversation. `usage` holds tokens and cost.
    `attempts` counts the requests it took, `seconds` is the time of the last one. `reasoning` are the fields of the
    message that hold the model's thoughts as text, for callers that show or return them.
    """

    content: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str | None
    usage: Usage
    model: str
    response_id: str | None
    message: dict[str, Any]
    attempts: int
    seconds: float
    reasoning: Mapping[str, str] = field(default_factory=dict)


def read_reply(body: bytes, content_type: str, model: Model, *, attempts: int, seconds: float) -> ChatReply:
    """The reply in a response with status 200; RequestFailed where it breaks the protocol."""
    data = _json_object(body, content_type, model)
    if isinstance(error := data.get("error"), Mapping | str) and error:  # OpenRouter reports a failing upstream so
        raise _error_inside(error, model)
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        raise invalid_reply("it has no choices", body, model)
    choice = choices[0]
    if isinstance(choice, Mapping) and isinstance(error := choice.get("error"), Mapping | str) and error:
        raise _error_inside(error, model)
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(message, Mapping):
        raise invalid_reply("its first choice has no message", body, model)
    content = text_of(message.get("content"))
    if content is None:
        content = text_of(message.get("refusal"))
    try:
        calls = tuple(read_tool_call(call, index) for index, call in enumerate(message.get("tool_calls") or ()))
    except (TypeError, KeyError, AttributeError) as error:
        raise invalid_reply("its tool calls are malformed", body, model) from error
    answered_by = _string(data.get("model")) or model.requested_model
    return ChatReply(
        content=content,
        tool_calls=calls,
        finish_reason=_string(choice.get("finish_reason")),
        usage=read_usage(data.get("usage"), model, answered_by),
        model=answered_by,
        response_id=_string(data.get("id")),
        message=_conversation_message(content, calls, message),
        attempts=attempts,
        seconds=seconds,
        reasoning={name: text for name in _REASONING if (text := _string(message.get(name)))},
    )


def _json_object(body: bytes, content_type: str, model: Model) -> dict[str, Any]:
    try:
        data = json.loads(body)
        if b"\\u" in body:
            # An escaped lone surrogate can be neither written to a file nor sent back to the model.
            data = json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        kind = content_type.partition(";")[0].strip()
        what = "its JSON is malformed" if kind == "application/json" else f"its content type is {kind or 'missing'}"
        raise invalid_reply(what, body, model) from error
    if not isinstance(data, dict):
        raise invalid_reply("it is no JSON object", body, model)
    return data


def _error_inside(error: Mapping[str, Any] | str, model: Model) -> RequestFailed:
    code = error.get("code") if isinstance(error, Mapping) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 502
    return status_failed(status, json.dumps({"error": error}).encode(), model)


def read_tool_call(call: Mapping[str, Any], index: int) -> ToolCall:
    """A call as an assistant message has it. Raises TypeError, KeyError or AttributeError where it is malformed."""
    function = call["function"]
    raw = function.get("arguments")
    text = raw if isinstance(raw, str) else json.dumps(raw if raw is not None else {})
    name = function["name"]
    if not isinstance(name, str):
        raise TypeError("a tool's name is text")
    return ToolCall(id=_string(call.get("id")) or f"call_{index}", name=name, arguments=_arguments(text), raw=text)


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text, parse_constant=_no_constant) if text.strip() else {}
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value")


def _conversation_message(content: str | None, calls: Sequence[ToolCall], message: Mapping[str, Any]) -> dict[str, Any]:
    """Only what every endpoint takes back, and the reasoning that some demand between tool calls."""
    result: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        result["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.raw}}
            for call in calls
        ]
    if details := message.get("reasoning_details"):
        result["reasoning_details"] = details
    return result


def text_of(value: object) -> str | None:
    """Text, or the text parts of a list of content parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [part.get("text") for part in value if isinstance(part, Mapping)]
        return "".join(part for part in parts if isinstance(part, str)) or None
    return None


def _string(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
