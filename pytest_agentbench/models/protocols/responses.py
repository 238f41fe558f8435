"""OpenAI's Responses: requests of Chat Completions as `POST /responses` takes them, and its answers as completions.

An assistant message keeps the items that it was made of (`output_items`): they go back as they came, each `reasoning`
before the call that it led to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_agentbench.models.messages import read_text, take_string

ITEMS = "output_items"
STATUSES = {
    "server_error": 500,
    "rate_limit_exceeded": 429,
    "vector_store_timeout": 504,
    **dict.fromkeys(("data_residency_mismatch", "invalid_prompt", "failed_to_download_image"), 400),
    **dict.fromkeys(("invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url"), 400),
    **dict.fromkeys(("image_too_large", "image_too_small", "image_parse_error", "invalid_image_mode"), 400),
    **dict.fromkeys(("image_file_too_large", "unsupported_image_media_type", "empty_image_file"), 400),
    "image_file_not_found": 400,
}
"""Codes of a response that failed, by openai 3.57; those of a policy are a filter's whatever their status."""
_FINISHED = {"completed": "stop", "failed": "error", "cancelled": "cancelled"}
_TRANSLATED = frozenset(
    {"messages", "tools", "tool_choice", "max_tokens", "max_completion_tokens", "response_format", "verbosity"}
    | {"reasoning_effort", "text", "reasoning"}
)


def write_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request; its other fields go as they are, and win over what is translated."""
    made: dict[str, Any] = {name: value for name, value in request.items() if name not in _TRANSLATED}
    made["input"] = [item for message in request["messages"] for item in _write_message(message)]
    limit = request.get("max_tokens") or request.get("max_completion_tokens")
    if limit:
        made.setdefault("max_output_tokens", limit)
    if tools := request.get("tools"):
        made["tools"] = [_write_tool(tool) for tool in tools]
    choice = request.get("tool_choice")
    if choice is not None:
        made["tool_choice"] = _name_function(choice)
    text = {
        "format": _write_form(request.get("response_format")),
        "verbosity": request.get("verbosity"),
        **(request.get("text") or {}),
    }
    reasoning = {"effort": request.get("reasoning_effort"), **(request.get("reasoning") or {})}
    for name, value in (("text", text), ("reasoning", reasoning)):
        if given := {key: item for key, item in value.items() if item is not None}:
            made[name] = given
    return made


def _write_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):  # one of the endpoint's own, such as web_search
        return tool
    # Strict where nothing is said: most schemas of tools are refused then
    return {"type": "function", "strict": False, **function}


def _name_function(choice: Any) -> Any:
    """Return a choice of a tool: by name it stands beside the type, and not in an object of its own."""
    function = choice.get("function") if isinstance(choice, Mapping) else None
    return {"type": "function", **function} if isinstance(function, Mapping) else choice


def _write_form(wanted: Any) -> Any:
    schema = wanted.get("json_schema") if isinstance(wanted, Mapping) else None
    return {"type": "json_schema", **schema} if isinstance(schema, Mapping) else wanted


def _write_message(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": _write_parts(content)}
    elif role != "assistant":
        yield {"type": "message", "role": role, "content": _write_parts(content)}
    elif isinstance(items := message.get(ITEMS), list):
        kept = {call["id"] for call in message.get("tool_calls") or ()}
        yield from (item for item in items if item.get("type") != "function_call" or item.get("call_id") in kept)
    else:
        if text := read_text(content):
            yield {"type": "message", "role": role, "content": text}
        for call in message.get("tool_calls") or ():
            function = call["function"]
            named = {"name": function["name"], "arguments": function["arguments"]}
            yield {"type": "function_call", "call_id": call["id"], **named}


def _write_parts(content: Any) -> Any:
    return [_write_part(part) for part in content] if isinstance(content, list) else content or ""


def _write_part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = part.get("type")
    if kind == "text":
        return {"type": "input_text", "text": part["text"]}
    if kind == "image_url":
        image = part["image_url"]
        return {"type": "input_image", "detail": image.get("detail") or "auto", "image_url": image["url"]}
    if kind == "file":
        return {"type": "input_file", **part["file"]}
    return part


def read_response(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response as a chat completion. Raises ValueError where it is none."""
    output = data.get("output")
    if not isinstance(output, list) or not all(isinstance(item, Mapping) for item in output):
        raise ValueError("it has no output")
    message = read_output(output)
    calls = message.get("tool_calls") or ()
    if all(take_string(call["id"]) for call in calls):  # else ids are made up, which the items do not have
        message[ITEMS] = output
    choice = {"index": 0, "message": message, "finish_reason": _read_finish(data, bool(calls))}
    return {"id": data.get("id"), "model": data.get("model"), "choices": [choice], "usage": data.get("usage")}


def read_output(output: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a response's items as the message of a chat completion."""
    said, thoughts, calls = [], [], []
    for item in output:
        kind = item.get("type")
        if kind == "message":
            said.append(item)
        elif kind == "reasoning":
            thoughts.append(item)
        # One that was cut off is no call: what it asks for is not whole
        elif kind == "function_call" and item.get("status") in (None, "completed"):
            calls.append(item)
    message: dict[str, Any] = {"role": "assistant", "content": _join_text(said, "output_text")}
    if refusal := _join_text(said, "refusal"):
        message["refusal"] = refusal
    if thought := _join_thoughts(thoughts):
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = [_read_call(item) for item in calls]
    return message


def _read_finish(data: Mapping[str, Any], calls: bool) -> str | None:
    status, details = data.get("status"), data.get("incomplete_details")
    if status == "incomplete" and isinstance(details, Mapping):
        reason = take_string(details.get("reason"))
        return "length" if reason == "max_output_tokens" else reason
    plain = take_string(status) or "completed"  # some servers leave it out
    return "tool_calls" if calls and plain == "completed" else _FINISHED.get(plain, plain)


def _read_call(item: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _join_text(messages: Sequence[Mapping[str, Any]], kind: str) -> str | None:
    """Return the text of all messages, or of those alone that are called the final answer."""
    if not messages:
        return None
    final = [item for item in messages if item.get("phase") == "final_answer"]
    name = "refusal" if kind == "refusal" else "text"
    texts = ("".join(_list_texts(item.get("content"), kind, name)) for item in final or messages)
    return "\n".join(filter(None, texts)) or None


def _join_thoughts(thoughts: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(
        text
        for item in thoughts
        for text in (
            *_list_texts(item.get("summary"), "summary_text", "text"),
            *_list_texts(item.get("content"), "reasoning_text", "text"),
        )
    )


def _list_texts(parts: Any, kind: str, name: str) -> Iterator[str]:
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, Mapping) and part.get("type") == kind and isinstance(text := part.get(name), str):
            yield text
