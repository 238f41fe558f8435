"""Anthropic's Messages: requests that agents send, and requests to endpoints.

An assistant message keeps its original blocks (`content_blocks`) if they contain more than its text and its calls:
`thinking` and `redacted_thinking` are sent back unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pytest_agentbench.models.apis.base import (
    BLOCKS,
    AgentApi,
    Asked,
    Draft,
    EndpointApi,
    JsonObject,
    Route,
    choose_function,
    choose_json_schema,
    find_limit,
    find_schema,
    finish_of,
    keep_given,
    kind_of,
    list_stops,
    make_call,
    make_completion,
    make_function,
    make_id,
    malformed,
    need,
    parse_arguments,
    read_content,
    refuse_fields,
    split_arguments,
    split_data_url,
    split_system,
    split_words,
    take,
    take_model,
    take_objects,
    text_part,
    unsupported,
    write_content,
    write_event,
)
from pytest_agentbench.models.json_values import as_object
from pytest_agentbench.models.messages import ChatReply, read_text
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage

VERSION = "anthropic-version"
"""Header with the version of the API, a date."""
_NEWEST = "2026-10-21"
"""The newest version. It accepts keys as `Authorization: Bearer`, and refuses the fields in SAMPLING."""
SAMPLING_VERSION = "2023-06-01"
"""The latest version before _NEWEST. It accepts keys in `x-api-key`, and the fields in SAMPLING."""
SAMPLING = frozenset({"temperature", "top_p", "top_k"})

_MOST_TOKENS = 4096
"""Default of `max_tokens`, which the API requires. A thinking budget is added to it."""
_STATUSES = {
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
_READ_REASONS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_TRANSLATED = frozenset(
    {"messages", "tools", "tool_choice", "parallel_tool_calls", "max_tokens", "max_completion_tokens", "stop"}
    | {"response_format", "reasoning_effort", "output_config"}
)

_PASSED_ON = {"max_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k"}
_KNOWN = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "stream", "stop_sequences", "thinking", "output_config"}
).union(_PASSED_ON)
_CALLED = {theirs: ours for ours, theirs in _CHOICES.items()}
_WRITTEN_REASONS = {"length": "max_tokens", "filtered": "refusal"}
_ERRORS = {status: kind for kind, status in _STATUSES.items()}
_SIGNATURE = "agentbench:"
"""Prefix of the signatures of thoughts that were made here. Providers cannot read such thoughts."""


def read_request(body: Mapping[str, Any], route: Route) -> Asked:
    """Parse an agent's request. Raises RequestRefused if it is invalid."""
    refuse_fields(body)
    draft = Draft()
    if body.get("system"):
        draft.add("system", read_content(body["system"], draft, _read_block))
    for message in take_objects(body, "messages"):
        _read_message(message, draft)
    for tool in take_objects(body, "tools"):
        _note_cache(tool, draft)
        if kind_of(tool) in ("", "custom"):
            draft.add_tool(make_function(tool, "input_schema"))
        else:
            draft.server_tools.append(kind_of(tool))
    choice, config = take(body, "tool_choice", dict) or {}, take(body, "output_config", dict) or {}
    for name in config.keys() - {"format", "effort"}:
        draft.lose(f"output_config.{name}")
    parameters = keep_given(
        **{ours: body.get(theirs) for theirs, ours in _PASSED_ON.items()},
        stop=take(body, "stop_sequences", list) or None,
        tool_choice=_read_choice(choice),
        parallel_tool_calls=False if choice.get("disable_parallel_tool_use") is True else None,
        response_format=_read_form(take(config, "format", dict)),
        reasoning_effort=config.get("effort")
        or draft.read_budget((take(body, "thinking", dict) or {}).get("budget_tokens")),
    )
    return draft.finish(body, _KNOWN, model=take_model(body), parameters=parameters, stream=bool(body.get("stream")))


def _note_cache(item: Mapping[str, Any], draft: Draft) -> None:
    if item.get("cache_control"):
        draft.lose("cache_control")


def _read_message(message: JsonObject, draft: Draft) -> None:
    role = need(message, "role", str)
    if role == "assistant":
        _read_answer(message, draft)
        return
    if role not in ("user", "system"):
        raise malformed("role", "user, assistant or system")
    if isinstance(content := message.get("content"), str):
        draft.add(role, [text_part(content)])
        return
    parts: list[JsonObject] = []
    for block in take_objects({"content": content}, "content"):
        if kind_of(block) != "tool_result":
            parts.append(_read_block(block, draft))
            continue
        _note_cache(block, draft)
        result = read_content(block.get("content"), draft, _read_block)
        draft.add_result(need(block, "tool_use_id", str), result, failed=block.get("is_error") is True)
    if parts:
        draft.add(role, parts)


def _read_answer(message: JsonObject, draft: Draft) -> None:
    """Add an assistant message. It keeps its blocks if they contain thoughts that only a provider can read."""
    if isinstance(content := message.get("content"), str):
        draft.add_answer({"role": "assistant", "content": content})
        return
    blocks = take_objects({"content": content}, "content")
    for block in blocks:
        _note_cache(block, draft)
        if block.get("citations"):
            draft.lose("citations")
        if kind_of(block) == "tool_use":
            need(block, "id", str), need(block, "name", str), need(block, "input", dict)
        elif kind_of(block) not in ("text", "thinking", "redacted_thinking"):
            draft.lose(f"{kind_of(block)} blocks")  # most are of tools that the provider ran
    made: JsonObject = read_reply({"content": blocks})["choices"][0]["message"]
    if not any(map(_is_sealed, blocks)):
        made.pop(BLOCKS, None)
    draft.add_answer(made)


def _is_sealed(block: Mapping[str, Any]) -> bool:
    kind, signature = kind_of(block), block.get("signature")
    own = isinstance(signature, str) and signature.startswith(_SIGNATURE)
    return kind == "redacted_thinking" or (kind == "thinking" and bool(signature) and not own)


def _read_block(block: JsonObject, draft: Draft) -> JsonObject:
    kind = kind_of(block)
    _note_cache(block, draft)
    if kind == "text":
        if block.get("citations"):
            draft.lose("citations")
        return text_part(need(block, "text", str))
    source = take(block, "source", dict) or {}
    if source.get("file_id"):
        raise unsupported("file_id")
    if kind != "image":
        return draft.read_part(None, kind)
    if kind_of(source) == "base64":
        return draft.read_part(f"data:{need(source, 'media_type', str)};base64,{need(source, 'data', str)}", kind)
    return draft.read_part(need(source, "url", str), kind)


def _read_choice(choice: Mapping[str, Any]) -> Any:
    kind = kind_of(choice)
    if kind == "tool":
        return choose_function(need(choice, "name", str))
    return _CALLED.get(kind)


def _read_form(form: Mapping[str, Any] | None) -> JsonObject | None:
    if form is None or form.get("schema") is None:
        return None
    return choose_json_schema(form["schema"])


def write_reply(reply: ChatReply, asked: Asked) -> JsonObject:
    """Return a reply as a message."""
    return {
        "id": make_id("msg_", reply),
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [*_list_blocks(reply)],
        "stop_reason": _WRITTEN_REASONS.get(finish_of(reply), "tool_use" if reply.tool_calls else "end_turn"),
        "stop_sequence": None,
        "usage": _write_usage(reply.usage),
    }


def _list_blocks(reply: ChatReply) -> Iterator[JsonObject]:
    if isinstance(own := reply.message.get(BLOCKS), list):
        yield from own  # the original blocks of the endpoint's reply, with the signatures of its thoughts
        return
    if reply.thoughts:
        signature = make_id(_SIGNATURE, reply)
        yield {"type": "thinking", "thinking": reply.thoughts, "signature": signature}
    if reply.content:
        yield text_part(reply.content)
    for call in reply.tool_calls:
        # The input must be an object, so invalid arguments become {}.
        yield _make_tool_use(call.id, call.name, call.arguments or {})


def _make_tool_use(call_id: str, name: str, arguments: JsonObject) -> JsonObject:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def _write_usage(usage: Usage) -> JsonObject:
    """Return the usage, with cached tokens separate. Unknown counts are 0, because the fields are required."""
    cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
    return {
        "input_tokens": max((usage.input_tokens or 0) - cached - written, 0),
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": written,
        "output_tokens": usage.output_tokens or 0,
    }


def write_events(reply: ChatReply, asked: Asked) -> Iterator[bytes]:
    """Yield the events of a reply."""
    message = write_reply(reply, asked)
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    begun = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 0}}
    yield _write_event({"type": "message_start", "message": begun})
    for index, block in enumerate(message["content"]):
        kind = block["type"]
        empty = {"text": "", "thinking": "", "signature": "", "input": {}}
        hollow = {name: empty.get(name, value) for name, value in block.items()}
        yield _write_event({"type": "content_block_start", "index": index, "content_block": hollow})
        for delta in _list_deltas(kind, block):
            yield _write_event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _write_event({"type": "content_block_stop", "index": index})
    yield _write_event({"type": "message_delta", "delta": ended, "usage": message["usage"]})
    yield _write_event({"type": "message_stop"})


def _list_deltas(kind: str, block: JsonObject) -> Iterator[JsonObject]:
    if kind == "tool_use":
        for piece in split_arguments(json.dumps(block["input"], ensure_ascii=False)):
            yield {"type": "input_json_delta", "partial_json": piece}
        return
    for word in split_words(block.get(kind)):  # sealed thoughts have no text
        yield {"type": f"{kind}_delta", kind: word}
    if "signature" in block:
        yield {"type": "signature_delta", "signature": block["signature"]}


def _write_event(event: JsonObject) -> bytes:
    return write_event(event, event["type"])


def _error(status: int, code: str, text: str) -> JsonObject:
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    # The code has no field in the API. Clients need it to distinguish errors with the same status.
    return {"type": "error", "error": {"type": kind, "message": text, "code": code}}


def _describe_model(name: str) -> JsonObject:
    return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}


def _list_models(name: str) -> JsonObject:
    return {"data": [_describe_model(name)], "has_more": False, "first_id": name, "last_id": name}


def choose_version(model: Model, fields: Collection[str]) -> str:
    """Return the version for a request: the configured one, else the newest that accepts the fields."""
    if model.anthropic_version is not None:
        return model.anthropic_version
    if SAMPLING.isdisjoint(fields):
        return _NEWEST
    return SAMPLING_VERSION


def explain_version(model: Model, fields: Collection[str]) -> str | None:
    """Return why requests with these fields need an older version than the newest; None if they do not."""
    named = ", ".join(sorted(SAMPLING.intersection(fields)))
    if not named or model.api != "messages" or model.scripted:
        return None
    if model.anthropic_version is not None or _has_version_header(model):  # the entry's choice needs no explanation
        return None
    return f"asked with {VERSION} {SAMPLING_VERSION}: {_NEWEST} takes no {named}"


def _choose_headers(request: Mapping[str, Any], model: Model) -> dict[str, str]:
    """Return the version header of a request, or {} if the model's entry sets the header."""
    if _has_version_header(model):
        return {}
    return {VERSION: choose_version(model, request)}


def _has_version_header(model: Model) -> bool:
    return any(name.lower() == VERSION for name in model.headers)


def choose_auth_header(version: str) -> str:
    """Return the name of the header for the key."""
    if version < _NEWEST:
        return "x-api-key"
    return "Authorization"


def write_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a request. Fields that have no translation are sent unchanged, and override translated fields."""
    made: dict[str, Any] = {name: value for name, value in request.items() if name not in _TRANSLATED}
    made["max_tokens"] = find_limit(request) or _choose_limit(request)
    instructions, messages = split_system(request["messages"])  # instructions have a separate field
    if system := _write_system(instructions):
        made.setdefault("system", system)
    made["messages"] = _write_messages(messages)
    if stop := request.get("stop"):
        made.setdefault("stop_sequences", list_stops(stop))
    if tools := request.get("tools"):
        made["tools"] = [_write_tool(tool) for tool in tools]
    if choice := _write_choice(request):
        made["tool_choice"] = choice
    config = {
        "format": _write_form(request.get("response_format")),
        "effort": request.get("reasoning_effort"),
        **(request.get("output_config") or {}),
    }
    if config := keep_given(**config):
        made["output_config"] = config
    return made


def _write_system(messages: Sequence[Mapping[str, Any]]) -> str | list[Any]:
    """Return the system messages as one text, or as parts if any has parts, which may have marks for the cache."""
    contents = [content for message in messages if (content := message.get("content"))]
    if not any(isinstance(content, list) for content in contents):
        return "\n\n".join(contents)
    parts: list[Any] = []
    for content in contents:
        if isinstance(content, list):
            parts += content
        else:
            parts.append(text_part(content))
    return parts


def _choose_limit(request: Mapping[str, Any]) -> int:
    budget = as_object(request.get("thinking")).get("budget_tokens")
    if isinstance(budget, int):
        return _MOST_TOKENS + budget
    return _MOST_TOKENS


def _write_choice(request: Mapping[str, Any]) -> dict[str, Any] | None:
    choice, one_by_one = request.get("tool_choice"), request.get("parallel_tool_calls") is False
    if isinstance(function := as_object(choice).get("function"), Mapping):
        made = {"type": "tool", "name": function.get("name")}
    elif isinstance(choice, Mapping):  # in the form of the API
        made = dict(choice)
    elif choice is None and not one_by_one:
        return None
    else:
        made = {"type": _CHOICES.get(choice or "auto", choice)}
    if one_by_one and made["type"] != "none":
        made["disable_parallel_tool_use"] = True
    return made


def _write_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):  # a tool of the endpoint, such as web_search
        return tool
    fields = {name: value for name, value in function.items() if name != "parameters"}
    return {**fields, "input_schema": function.get("parameters") or {"type": "object", "properties": {}}}


def _write_form(response_format: Any) -> dict[str, Any] | None:
    """Return the output format for a JSON Schema. The API has no other format."""
    if schema := find_schema(response_format):
        return {"type": "json_schema", "schema": schema}
    return None


def _write_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []
    results: list[dict[str, Any]] | None = None  # the API refuses results of one message's calls in several messages
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            result = {
                "type": "tool_result",
                "tool_use_id": message["tool_call_id"],
                "content": write_content(content, _write_part),
            }
            if results is None:
                written.append({"role": "user", "content": (results := [])})
            results.append(result)
            continue
        results = None
        if role != "assistant":
            written.append({"role": role, "content": write_content(content, _write_part)})
        elif blocks := _write_blocks(message):
            content = blocks
            if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
                content = blocks[0]["text"]
            written.append({"role": role, "content": content})
    return written


def _write_blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the original blocks of an assistant message without dropped calls, or blocks from its text and calls."""
    calls = message.get("tool_calls") or ()
    if isinstance(original := message.get(BLOCKS), list):
        call_ids = {call["id"] for call in calls}
        return [block for block in original if block.get("type") != "tool_use" or block.get("id") in call_ids]
    blocks: list[Mapping[str, Any]] = []
    if text := read_text(message.get("content")):
        blocks.append(text_part(text))
    blocks += [_make_tool_use(call["id"], call["function"]["name"], parse_arguments(call)) for call in calls]
    return blocks


def _write_part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = part.get("type")
    if kind == "image_url":
        return {"type": "image", "source": _write_source(part["image_url"]["url"])}
    if kind == "file" and (data := part["file"].get("file_data")):
        title = keep_given(title=part["file"].get("filename") or None)
        return {"type": "document", "source": _write_source(data), **title}
    return part


def _write_source(url: str) -> dict[str, str]:
    if (encoded := split_data_url(url)) is None:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": encoded[0], "data": encoded[1]}


def read_reply(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as a chat completion. Raises ValueError if it is invalid."""
    blocks = data.get("content")
    if not isinstance(blocks, list) or not all(isinstance(block, Mapping) for block in blocks):
        raise ValueError("it has no content")
    reason = data.get("stop_reason")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(_list_texts(blocks, "text")) or None}
    if thoughts := "\n".join(_list_texts(blocks, "thinking")):
        message["reasoning_content"] = thoughts
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    if calls and reason == "max_tokens" and blocks[-1] is calls[-1]:
        calls.pop()  # the token limit cut it off, so its input is incomplete
    if calls:
        message["tool_calls"] = [
            make_call(block.get("id"), block.get("name"), json.dumps(block.get("input") or {}, ensure_ascii=False))
            for block in calls
        ]
    # Stored only if text and calls alone do not reproduce the blocks, so that cassettes stay short.
    if blocks != _write_blocks(message) and all(block.get("id") for block in calls):
        message[BLOCKS] = blocks
    choice: dict[str, Any] = {"message": message, "finish_reason": _READ_REASONS.get(str(reason), reason)}
    if isinstance(category := as_object(data.get("stop_details")).get("category"), str):
        choice["content_filter_results"] = {category: {"filtered": True}}
    return make_completion(data.get("id"), data.get("model"), choice, data.get("usage"))


def _list_texts(blocks: Sequence[Mapping[str, Any]], kind: str) -> Iterator[str]:
    """Yield the texts of blocks of a kind. The kind is also the key of the text."""
    for block in blocks:
        if block.get("type") == kind and isinstance(text := block.get(kind), str) and text:
            yield text


AGENT = AgentApi(
    name="messages",
    read=read_request,
    write=write_reply,
    events=write_events,
    error=_error,
    error_events=lambda status, code, text: write_event(_error(status, code, text), "error"),
    keep_alive=write_event({"type": "ping"}, "ping"),
    list_models=_list_models,
    describe_model=_describe_model,
    count=lambda tokens: {"input_tokens": tokens},
)
ENDPOINT = EndpointApi(
    "/messages",
    "max_tokens",
    {"stream": True},
    _choose_headers,
    write=write_request,
    read=read_reply,
    statuses=_STATUSES,
)
