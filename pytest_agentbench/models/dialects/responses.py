"""OpenAI's Responses as agents ask in them. Items of one turn of the model's make one assistant message."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.models.dialects.base import (
    Asked,
    Dialect,
    Draft,
    JsonObject,
    Route,
    ToolName,
    choose_function,
    custom_function,
    finish_of,
    keep_given,
    kind_of,
    make_function,
    make_id,
    malformed,
    need,
    read_custom_input,
    refuse_fields,
    split_arguments,
    split_words,
    take,
    take_model,
    take_objects,
    text_part,
    unsupported,
    write_custom_input,
    write_event,
)
from pytest_agentbench.models.dialects.chat import describe_model, error, list_models
from pytest_agentbench.models.messages import ToolCall
from pytest_agentbench.models.protocols.responses import ITEMS, read_output

if TYPE_CHECKING:
    from pytest_agentbench.models.replies import ChatReply
    from pytest_agentbench.records.run import Usage

_KNOWN = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options"}
    | {"max_output_tokens", "temperature", "top_p", "text", "reasoning", "include", "prompt_cache_key"}
    | {"top_logprobs"}
)
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_RESULTS = frozenset(f"{kind}_output" for kind in _CALLS)
_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "summary_text": "text", "refusal": "refusal"}
"""Types of content parts that are texts, and the key of the text."""
_ROLES = {"system": "system", "developer": "system", "user": "user"}
_INCOMPLETE = {"length": "max_output_tokens", "filtered": "content_filter"}
_RESOURCE: Mapping[str, Any] = {
    "previous_response_id": None,
    "instructions": None,
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": None, "summary": None},
    "temperature": 1.0,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "truncation": "disabled",
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": False,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
}
"""What a response says of its request, if that says nothing: Open Responses demands each of the fields."""
_KEPT_NOWHERE = frozenset({"store", "background", "service_tier", "previous_response_id"})
_SHELL = "local_shell"
_SHELL_FUNCTION = {
    "name": _SHELL,
    "description": "Run a command in the local shell.",
    "parameters": {
        "type": "object",
        "properties": {
            "command": {"type": "array", "items": {"type": "string"}},
            "working_directory": {"type": "string"},
            "timeout_ms": {"type": "integer"},
        },
        "required": ["command"],
    },
}


def read(body: Mapping[str, Any], route: Route) -> Asked:
    """Return what a request asks. Raises RequestRefused where it is none."""
    refuse_fields(body)
    draft = Draft()
    if instructions := take(body, "instructions", str):
        draft.add("system", [text_part(instructions)])
    if isinstance(sent := body.get("input"), str):
        draft.add("user", [text_part(sent)])
    else:
        _read_items(take_objects(body, "input"), draft)
    for tool in take_objects(body, "tools"):
        _read_tool(tool, draft)
    if body.get("top_logprobs"):
        draft.lose("logprobs")
    text, reasoning = take(body, "text", dict) or {}, take(body, "reasoning", dict) or {}
    parameters = keep_given(
        max_tokens=body.get("max_output_tokens"),
        temperature=body.get("temperature"),
        top_p=body.get("top_p"),
        parallel_tool_calls=body.get("parallel_tool_calls"),
        prompt_cache_key=body.get("prompt_cache_key"),
        tool_choice=_read_choice(body.get("tool_choice"), draft),
        response_format=_read_form(take(text, "format", dict) or {}),
        verbosity=text.get("verbosity"),
        reasoning_effort=reasoning.get("effort"),
    )
    more = {"stream": bool(body.get("stream")), "echo": _echo(body)}
    return draft.finish(body, _KNOWN, model=take_model(body), parameters=parameters, **more)


def _echo(body: Mapping[str, Any]) -> JsonObject:
    """Return the fields of a request that its response repeats, with what they leave out."""
    names = _RESOURCE.keys() - _KEPT_NOWHERE
    said: JsonObject = {name: body[name] for name in names if body.get(name) is not None}
    for name in ("text", "reasoning"):
        if name in said:
            said[name] = {**_RESOURCE[name], **said[name]}
    if "text" in said and kind_of(form := said["text"].get("format") or {}) == "json_schema":
        said["text"]["format"] = {"description": None, "strict": False, **form}
    if "tools" in said:
        said["tools"] = [
            {"description": None, "parameters": None, "strict": None, **tool} if kind_of(tool) == "function" else tool
            for tool in said["tools"]
        ]
    return said


def _read_items(items: Sequence[JsonObject], draft: Draft) -> None:
    own: list[JsonObject] = []
    for item in items:
        kind = kind_of(item) or "message"
        if kind in _CALLS or kind == "reasoning" or (kind == "message" and item.get("role") == "assistant"):
            own.append(item)
            continue
        if kind == "item_reference":
            raise unsupported(kind)
        if kind not in _RESULTS and kind != "message":
            draft.lose(f"{kind} items")  # of tools that the provider ran, for the most part
            continue
        _add_own(own, draft)
        own = []
        if kind == "message":
            role = _ROLES.get(need(item, "role", str))
            if role is None:
                raise malformed("role", ", ".join((*_ROLES, "assistant")))
            draft.add(role, _read_parts(item.get("content"), draft))
        else:
            call_id = take(item, "call_id", str) or need(item, "id", str)
            draft.add_result(call_id, _read_parts(item.get("output"), draft))
    _add_own(own, draft)


def _add_own(items: Sequence[JsonObject], draft: Draft) -> None:
    """Add the model's items as a message; it keeps them where they hold thoughts that only a provider can read."""
    if not items:
        return
    plain = [_read_own(item, draft) for item in items]
    message = read_output(plain)
    if any(item.get("encrypted_content") for item in items):
        message[ITEMS] = [*items]
    draft.add_answer(message)


def _read_own(item: JsonObject, draft: Draft) -> JsonObject:
    """Return an item of the model's with its call as one of a function, and its text as a part."""
    kind = kind_of(item) or "message"
    if kind == "reasoning":
        return item
    if kind == "message":
        parts = take(item, "content", list) if not isinstance(item.get("content"), str) else None
        if parts is None:
            return {"type": kind, "content": [{"type": "output_text", "text": item.get("content") or ""}]}
        return {"type": kind, "content": parts}
    name, namespace = (_SHELL, None) if kind == "local_shell_call" else (need(item, "name", str), None)
    if kind == "function_call":
        namespace, arguments = take(item, "namespace", str), need(item, "arguments", str)
    elif kind == "custom_tool_call":
        namespace, arguments = take(item, "namespace", str), write_custom_input(need(item, "input", str))
    else:
        action = need(item, "action", dict)
        action = {name: value for name, value in action.items() if name != "type" and (name, value) != ("env", {})}
        arguments = json.dumps(action, ensure_ascii=False)
    call_id = take(item, "call_id", str) or need(item, "id", str)
    return {"type": "function_call", "call_id": call_id, "name": _join_name(namespace, name), "arguments": arguments}


def _join_name(namespace: str | None, name: str) -> str:
    return f"{namespace}__{name}" if namespace else name


def _read_parts(content: Any, draft: Draft) -> list[JsonObject]:
    if isinstance(content, str):
        return [text_part(content)]
    return [_read_part(part, draft) for part in take_objects({"content": content}, "content")]


def _read_part(part: JsonObject, draft: Draft) -> JsonObject:
    kind = kind_of(part)
    if kind in _TEXTS:
        return text_part(need(part, _TEXTS[kind], str))
    if part.get("file_id"):
        raise unsupported("file_id")
    url = need(part, "image_url", str) if kind == "input_image" else None
    detail = take(part, "detail", str)
    return draft.read_part(url, kind, **({"detail": detail} if detail not in (None, "auto") else {}))


def _read_tool(tool: JsonObject, draft: Draft, namespace: str | None = None) -> None:
    kind = kind_of(tool)
    if kind in ("function", "custom"):
        name = need(tool, "name", str)
        flat = _join_name(namespace, name)
        if kind == "function":
            own = ToolName(name, namespace) if namespace else None
            draft.add_tool(make_function(tool, "parameters", flat), own)
            return
        if tool.get("format"):
            draft.lose("grammars of custom tools")
        draft.add_tool(custom_function(tool, flat), ToolName(name, namespace, "custom"))
    elif kind == "local_shell":
        draft.add_tool({"type": "function", "function": _SHELL_FUNCTION}, ToolName(_SHELL, kind="local_shell"))
    elif kind == "namespace" and namespace is None:
        draft.lose("namespaces of tools")
        for inner in take_objects(tool, "tools"):
            _read_tool(inner, draft, need(tool, "name", str))
    else:
        draft.server_tools.append(kind)


def _read_choice(choice: Any, draft: Draft) -> Any:
    if choice is None or isinstance(choice, str):
        return choice
    if not isinstance(choice, dict):
        raise malformed("tool_choice", "a text or an object")
    kind = kind_of(choice)
    if kind in ("function", "custom"):
        return choose_function(_join_name(take(choice, "namespace", str), need(choice, "name", str)))
    if kind == _SHELL:
        return choose_function(_SHELL)
    draft.lose(f"tool_choice {kind}")
    return choice.get("mode") if kind == "allowed_tools" else None


def _read_form(form: Mapping[str, Any]) -> JsonObject | None:
    kind = kind_of(form)
    if kind == "json_schema":
        return {"type": kind, "json_schema": {name: value for name, value in form.items() if name != "type"}}
    return {"type": kind} if kind == "json_object" else None


def write(reply: ChatReply, asked: Asked) -> JsonObject:
    """Return a reply as a response."""
    reason = _INCOMPLETE.get(finish_of(reply))
    return {
        **_RESOURCE,
        **asked.echo,
        "id": make_id("resp_", reply),
        "object": "response",
        "created_at": 0,
        "completed_at": 0 if reason is None else None,
        "status": "completed" if reason is None else "incomplete",
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "model": reply.model,
        "output": [*_list_items(reply, asked)],
        "usage": _write_usage(reply.usage),
    }


def _list_items(reply: ChatReply, asked: Asked) -> Iterator[JsonObject]:
    if isinstance(own := reply.message.get(ITEMS), list) and not asked.names:
        # What a reply in this protocol was made of, sealed thoughts included
        yield from ({"id": f"{make_id('item_', reply)}{number}", **item} for number, item in enumerate(own))
        return
    if reply.thoughts:
        summary = [{"type": "summary_text", "text": reply.thoughts}]
        yield {"type": "reasoning", "id": make_id("rs_", reply), "summary": summary}
    if reply.content:
        refused = reply.content == reply.message.get("refusal")
        part: JsonObject = (
            {"type": "refusal", "refusal": reply.content}
            if refused
            else {"type": "output_text", "text": reply.content, "annotations": []}
        )
        said = {"type": "message", "id": make_id("msg_", reply), "role": "assistant", "status": "completed"}
        yield {**said, "content": [part]}
    for number, call in enumerate(reply.tool_calls):
        yield _write_call(call, asked.names.get(call.name, ToolName(call.name)), f"{make_id('fc_', reply)}{number}")


def _write_call(call: ToolCall, own: ToolName, item_id: str) -> JsonObject:
    made: JsonObject = {"id": item_id, "call_id": call.id, "status": "completed"}
    if own.kind == "local_shell":
        action = {"type": "exec", "command": [], "env": {}, **(call.arguments or {})}
        # Some results of it name the call by this id
        return {"type": "local_shell_call", **made, "id": call.id, "action": action}
    named = {"name": own.name, **({"namespace": own.namespace} if own.namespace else {})}
    if own.kind == "custom":
        given = read_custom_input(call.arguments, call.raw)
        return {"type": "custom_tool_call", **made, **named, "input": given}
    return {"type": "function_call", **made, **named, "arguments": call.raw}


def _write_usage(usage: Usage) -> JsonObject | None:
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    written = {} if usage.cache_write_tokens is None else {"cache_write_tokens": usage.cache_write_tokens}
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens or 0, **written},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def events(reply: ChatReply, asked: Asked) -> Iterator[bytes]:
    """Yield the events of a reply."""
    response = write(reply, asked)
    empty: JsonObject = {"output": [], "usage": None, "incomplete_details": None, "completed_at": None}
    begun = {**response, "status": "in_progress", **empty}
    return _number(_list_events(response, begun))


def _number(made: Iterator[JsonObject]) -> Iterator[bytes]:
    for number, event in enumerate(made):
        yield write_event({**event, "sequence_number": number}, event["type"])


def _list_events(response: JsonObject, begun: JsonObject) -> Iterator[JsonObject]:
    yield {"type": "response.created", "response": begun}
    for index, item in enumerate(response["output"]):
        at = {"output_index": index}
        stream = _STREAMED.get(item["type"])
        empty = {"summary": [], "content": [], "arguments": "", "input": "", "status": "in_progress"}
        hollow = {name: empty.get(name, value) for name, value in item.items()} if stream else item
        yield {"type": "response.output_item.added", **at, "item": hollow}
        if stream:
            yield from ({**event, **at, "item_id": item["id"]} for event in stream(item))
        yield {"type": "response.output_item.done", **at, "item": item}
    yield {"type": f"response.{response['status']}", "response": response}


def _stream_text(item: JsonObject) -> Iterator[JsonObject]:
    for number, part in enumerate(item["content"]):
        at, key = {"content_index": number}, _TEXTS[part["type"]]
        logged: JsonObject = {"logprobs": []} if key == "text" else {}
        yield {"type": "response.content_part.added", **at, "part": {**part, key: ""}}
        for word in split_words(part[key]):
            yield {"type": f"response.{part['type']}.delta", **at, "delta": word, **logged}
        yield {"type": f"response.{part['type']}.done", **at, key: part[key], **logged}
        yield {"type": "response.content_part.done", **at, "part": part}


def _stream_thoughts(item: JsonObject) -> Iterator[JsonObject]:
    for number, part in enumerate(item["summary"]):
        at = {"summary_index": number}
        yield {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}}
        for word in split_words(part["text"]):
            yield {"type": "response.reasoning_summary_text.delta", **at, "delta": word}
        yield {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]}
        yield {"type": "response.reasoning_summary_part.done", **at, "part": part}


def _stream_call(item: JsonObject) -> Iterator[JsonObject]:
    key, kind = ("arguments", "function_call_arguments")
    if item["type"] == "custom_tool_call":
        key, kind = ("input", "custom_tool_call_input")
    for piece in split_arguments(item[key]):
        yield {"type": f"response.{kind}.delta", "delta": piece}
    named = {"name": item["name"]} if key == "arguments" else {}
    yield {"type": f"response.{kind}.done", key: item[key], **named}


_STREAMED: Mapping[str, Callable[[JsonObject], Iterator[JsonObject]]] = {
    "message": _stream_text,
    "reasoning": _stream_thoughts,
    "function_call": _stream_call,
    "custom_tool_call": _stream_call,
}


def _error_events(status: int, code: str, text: str) -> bytes:
    """Return a response that began and failed: what came before it, if anything, was to keep the connection alive."""
    made_of = {"id": "resp_agentbench", "object": "response", "created_at": 0, "status": "in_progress", "model": ""}
    empty: JsonObject = {"output": [], "usage": None, "error": None, "incomplete_details": None, "completed_at": None}
    begun: JsonObject = {**_RESOURCE, **made_of, **empty}
    failed = {**begun, "status": "failed", "error": {"code": code, "message": text}}
    made = [{"type": "response.created", "response": begun}, {"type": "response.failed", "response": failed}]
    return b"".join(_number(iter(made)))


RESPONSES = Dialect(
    name="responses",
    read=read,
    write=write,
    events=events,
    error=error,
    error_events=_error_events,
    # A comment: an event that is not known, ahead of the first, breaks `responses.stream` of openai 3.54
    keep_alive=b": keep-alive\n\n",
    list_models=list_models,
    describe_model=describe_model,
    count=lambda tokens: {"object": "response.input_tokens", "input_tokens": tokens},
)
