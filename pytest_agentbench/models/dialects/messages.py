"""Anthropic's Messages as agents ask in them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pytest_agentbench.models.dialects.base import (
    Asked,
    Dialect,
    Draft,
    JsonObject,
    Route,
    choose_effort,
    choose_function,
    finish_of,
    keep_given,
    kind_of,
    make_function,
    make_id,
    malformed,
    need,
    refuse_fields,
    split_arguments,
    split_words,
    take,
    take_model,
    take_objects,
    text_part,
    unsupported,
    write_event,
)
from pytest_agentbench.models.messages import ToolCall
from pytest_agentbench.models.protocols.anthropic import BLOCKS, CHOICES, STATUSES, read_message

if TYPE_CHECKING:
    from pytest_agentbench.models.replies import ChatReply
    from pytest_agentbench.records.run import Usage

_PASSED_ON = {"max_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k"}
_KNOWN = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "stream", "stop_sequences", "thinking", "output_config"}
).union(_PASSED_ON)
_CALLED = {theirs: ours for ours, theirs in CHOICES.items()}
_STOPS = {"length": "max_tokens", "filtered": "refusal"}
_ERRORS = {status: kind for kind, status in STATUSES.items()}
_SIGNATURE = "agentbench:"
"""What the signature begins with of thoughts that were written here, and mean nothing to a provider."""


def read(body: Mapping[str, Any], route: Route) -> Asked:
    """Return what a request asks. Raises RequestRefused where it is none."""
    refuse_fields(body)
    draft = Draft()
    if body.get("system"):
        draft.add("system", _read_parts(body["system"], draft))
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
        reasoning_effort=config.get("effort") or _read_thinking(take(body, "thinking", dict) or {}, draft),
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
        said = _read_parts(block.get("content"), draft)
        draft.add_result(need(block, "tool_use_id", str), said, failed=block.get("is_error") is True)
    if parts:
        draft.add(role, parts)


def _read_answer(message: JsonObject, draft: Draft) -> None:
    """Add a message of the model's; it keeps its blocks where they hold thoughts that only a provider can read."""
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
            draft.lose(f"{kind_of(block)} blocks")  # of tools that the provider ran, for the most part
    made: JsonObject = read_message({"content": blocks})["choices"][0]["message"]
    if not any(map(_is_sealed, blocks)):
        made.pop(BLOCKS, None)
    draft.add_answer(made)


def _is_sealed(block: Mapping[str, Any]) -> bool:
    kind, signature = kind_of(block), block.get("signature")
    own = isinstance(signature, str) and signature.startswith(_SIGNATURE)
    return kind == "redacted_thinking" or (kind == "thinking" and bool(signature) and not own)


def _read_parts(content: Any, draft: Draft) -> list[JsonObject]:
    if isinstance(content, str):
        return [text_part(content)]
    return [_read_block(block, draft) for block in take_objects({"content": content}, "content")]


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
    return choose_function(need(choice, "name", str)) if kind == "tool" else _CALLED.get(kind)


def _read_form(form: Mapping[str, Any] | None) -> JsonObject | None:
    schema = None if form is None else form.get("schema")
    return None if schema is None else {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def _read_thinking(thinking: Mapping[str, Any], draft: Draft) -> str | None:
    effort = choose_effort(thinking.get("budget_tokens"))
    if effort is not None:
        draft.lose("thinking budget")
    return effort


def write(reply: ChatReply, asked: Asked) -> JsonObject:
    """Return a reply as a message."""
    return {
        "id": make_id("msg_", reply),
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [*_list_blocks(reply)],
        "stop_reason": _STOPS.get(finish_of(reply), "tool_use" if reply.tool_calls else "end_turn"),
        "stop_sequence": None,
        "usage": _write_usage(reply.usage),
    }


def _list_blocks(reply: ChatReply) -> Iterator[JsonObject]:
    if isinstance(own := reply.message.get(BLOCKS), list):
        yield from own  # what a reply in this protocol was made of, with the signatures of its thoughts
        return
    if reply.thoughts:
        signature = make_id(_SIGNATURE, reply)
        yield {"type": "thinking", "thinking": reply.thoughts, "signature": signature}
    if reply.content:
        yield text_part(reply.content)
    for call in reply.tool_calls:
        yield _write_call(call)


def _write_call(call: ToolCall) -> JsonObject:
    # What was no object can be none here
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments or {}}


def _write_usage(usage: Usage) -> JsonObject:
    """Return the tokens, those of caches apart. What is unknown is 0: it has to be a number."""
    cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
    return {
        "input_tokens": max((usage.input_tokens or 0) - cached - written, 0),
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": written,
        "output_tokens": usage.output_tokens or 0,
    }


def events(reply: ChatReply, asked: Asked) -> Iterator[bytes]:
    """Yield the events of a reply."""
    message = write(reply, asked)
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
    for word in split_words(block.get(kind)):  # a sealed thought has none
        yield {"type": f"{kind}_delta", kind: word}
    if "signature" in block:
        yield {"type": "signature_delta", "signature": block["signature"]}


def _write_event(event: JsonObject) -> bytes:
    return write_event(event, event["type"])


def _error(status: int, code: str, text: str) -> JsonObject:
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    # The code too, which the protocol has no field for: without it 404 is one thing only
    return {"type": "error", "error": {"type": kind, "message": text, "code": code}}


def _describe_model(name: str) -> JsonObject:
    return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}


def _list_models(name: str) -> JsonObject:
    return {"data": [_describe_model(name)], "has_more": False, "first_id": name, "last_id": name}


MESSAGES = Dialect(
    name="messages",
    read=read,
    write=write,
    events=events,
    error=_error,
    error_events=lambda status, code, text: write_event(_error(status, code, text), "error"),
    keep_alive=write_event({"type": "ping"}, "ping"),
    list_models=_list_models,
    describe_model=_describe_model,
    count=lambda tokens: {"input_tokens": tokens},
)
