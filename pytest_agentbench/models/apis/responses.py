"""OpenAI's Responses: requests that agents send, and requests to endpoints.

Consecutive items of the model are one assistant message. The message keeps the items of an endpoint's reply
(`output_items`): they are sent back unchanged, each `reasoning` before its call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pytest_agentbench.models.apis.base import (
    ITEMS,
    AgentApi,
    Asked,
    Draft,
    EndpointApi,
    JsonObject,
    Route,
    ToolName,
    choose_function,
    count_cached,
    custom_function,
    find_limit,
    finish_of,
    keep_given,
    kind_of,
    make_call,
    make_completion,
    make_function,
    make_id,
    malformed,
    need,
    read_content,
    read_custom_input,
    refuse_fields,
    split_arguments,
    split_words,
    take,
    take_model,
    take_objects,
    text_part,
    unsupported,
    write_content,
    write_custom_input,
    write_event,
)
from pytest_agentbench.models.apis.chat import describe_model, error, list_models
from pytest_agentbench.models.json_values import as_list, as_object
from pytest_agentbench.models.messages import ChatReply, ToolCall, read_text, take_string
from pytest_agentbench.records.run import Usage

_STATUSES = {
    "server_error": 500,
    "rate_limit_exceeded": 429,
    "vector_store_timeout": 504,
    **dict.fromkeys(("data_residency_mismatch", "invalid_prompt", "failed_to_download_image"), 400),
    **dict.fromkeys(("invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url"), 400),
    **dict.fromkeys(("image_too_large", "image_too_small", "image_parse_error", "invalid_image_mode"), 400),
    **dict.fromkeys(("image_file_too_large", "unsupported_image_media_type", "empty_image_file"), 400),
    "image_file_not_found": 400,
}
"""Codes of failed responses, by openai 3.57. Codes of policies are a filter's, regardless of their status."""
_READ_REASONS = {"completed": "stop", "failed": "error", "cancelled": "cancelled"}
_TRANSLATED = frozenset(
    {"messages", "tools", "tool_choice", "max_tokens", "max_completion_tokens", "response_format", "verbosity"}
    | {"reasoning_effort", "text", "reasoning"}
)

_KNOWN = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options"}
    | {"max_output_tokens", "temperature", "top_p", "text", "reasoning", "include", "prompt_cache_key"}
    | {"top_logprobs"}
)
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_RESULTS = frozenset(f"{kind}_output" for kind in _CALLS)
_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "summary_text": "text", "refusal": "refusal"}
"""Types of content parts with a text, and the key of the text."""
_ROLES = {"system": "system", "developer": "system", "user": "user"}
_WRITTEN_REASONS = {"length": "max_output_tokens", "filtered": "content_filter"}
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
"""Defaults of the request's fields in a response. Open Responses requires all of them."""
_TOOL_DEFAULTS: Mapping[str, JsonObject] = {"function": {"description": None, "parameters": None, "strict": None}}
"""Defaults of a tool's fields in a response, by its type."""
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


def read_request(body: Mapping[str, Any], route: Route) -> Asked:
    """Parse an agent's request. Raises RequestRefused if it is invalid."""
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
    """Return the fields of a request that its response repeats, with their defaults."""
    names = _RESOURCE.keys() - _KEPT_NOWHERE
    echo: JsonObject = {name: body[name] for name in names if body.get(name) is not None}
    for name in ("text", "reasoning"):
        if name in echo:
            echo[name] = {**_RESOURCE[name], **echo[name]}
    if "text" in echo and kind_of(form := echo["text"].get("format") or {}) == "json_schema":
        echo["text"]["format"] = {"description": None, "strict": False, **form}
    if "tools" in echo:
        echo["tools"] = [{**_TOOL_DEFAULTS.get(kind_of(tool), {}), **tool} for tool in echo["tools"]]
    return echo


def _read_items(items: Sequence[JsonObject], draft: Draft) -> None:
    own: list[JsonObject] = []  # consecutive items of the model, which are one message
    for item in items:
        kind = kind_of(item) or "message"
        if kind in _CALLS or kind == "reasoning" or (kind == "message" and item.get("role") == "assistant"):
            own.append(item)
            continue
        if kind == "item_reference":
            raise unsupported(kind)
        if kind not in _RESULTS and kind != "message":
            draft.lose(f"{kind} items")  # most are of tools that the provider ran
            continue
        _add_own(own, draft)
        own = []
        if kind == "message":
            role = _ROLES.get(need(item, "role", str))
            if role is None:
                raise malformed("role", ", ".join((*_ROLES, "assistant")))
            draft.add(role, read_content(item.get("content"), draft, _read_part))
        else:
            call_id = take(item, "call_id", str) or need(item, "id", str)
            draft.add_result(call_id, read_content(item.get("output"), draft, _read_part))
    _add_own(own, draft)


def _add_own(items: Sequence[JsonObject], draft: Draft) -> None:
    """Add the model's items as a message. It keeps the items if they contain thoughts that only a provider can read."""
    if not items:
        return
    plain = [_read_own(item, draft) for item in items]
    message = _read_output(plain)
    if any(item.get("encrypted_content") for item in items):
        message[ITEMS] = [*items]
    draft.add_answer(message)


def _read_own(item: JsonObject, draft: Draft) -> JsonObject:
    """Return an item of the model. A call becomes a function's call, and a text a list of parts."""
    kind = kind_of(item) or "message"
    if kind == "reasoning":
        return item
    if kind == "message":
        content = item.get("content")
        if content is None or isinstance(content, str):
            return {"type": kind, "content": [{"type": "output_text", "text": content or ""}]}
        return {"type": kind, "content": need(item, "content", list)}
    name = _SHELL
    if kind != "local_shell_call":
        name = need(item, "name", str)
        name = _join_name(take(item, "namespace", str), name)
    if kind == "function_call":
        arguments = need(item, "arguments", str)
    elif kind == "custom_tool_call":
        arguments = write_custom_input(need(item, "input", str))
    else:
        action = need(item, "action", dict)
        action = {name: value for name, value in action.items() if name != "type" and (name, value) != ("env", {})}
        arguments = json.dumps(action, ensure_ascii=False)
    call_id = take(item, "call_id", str) or need(item, "id", str)
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def _join_name(namespace: str | None, name: str) -> str:
    if namespace:
        return f"{namespace}__{name}"
    return name


def _read_part(part: JsonObject, draft: Draft) -> JsonObject:
    kind = kind_of(part)
    if kind in _TEXTS:
        return text_part(need(part, _TEXTS[kind], str))
    if part.get("file_id"):
        raise unsupported("file_id")
    if kind != "input_image":
        return draft.read_part(None, kind)
    url, detail = need(part, "image_url", str), take(part, "detail", str)
    if detail in (None, "auto"):
        return draft.read_part(url, kind)
    return draft.read_part(url, kind, detail=detail)


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
    if kind == "allowed_tools":
        return choice.get("mode")
    return None


def _read_form(form: Mapping[str, Any]) -> JsonObject | None:
    kind = kind_of(form)
    if kind == "json_schema":
        return {"type": kind, "json_schema": {name: value for name, value in form.items() if name != "type"}}
    if kind == "json_object":
        return {"type": kind}
    return None


def write_reply(reply: ChatReply, asked: Asked) -> JsonObject:
    """Return a reply as a response."""
    reason = _WRITTEN_REASONS.get(finish_of(reply))
    ended: JsonObject = {"completed_at": 0, "status": "completed", "error": None, "incomplete_details": None}
    if reason is not None:
        ended |= {"completed_at": None, "status": "incomplete", "incomplete_details": {"reason": reason}}
    return {
        **_RESOURCE,
        **asked.echo,
        "id": make_id("resp_", reply),
        "object": "response",
        "created_at": 0,
        **ended,
        "model": reply.model,
        "output": [*_list_items(reply, asked)],
        "usage": _write_usage(reply.usage),
    }


def _list_items(reply: ChatReply, asked: Asked) -> Iterator[JsonObject]:
    if isinstance(own := reply.message.get(ITEMS), list) and not asked.names:
        # The original items of the endpoint's reply, with sealed thoughts.
        yield from ({"id": f"{make_id('item_', reply)}{number}", **item} for number, item in enumerate(own))
        return
    if reply.thoughts:
        summary = [{"type": "summary_text", "text": reply.thoughts}]
        yield {"type": "reasoning", "id": make_id("rs_", reply), "summary": summary}
    if reply.content:
        part: JsonObject = {"type": "output_text", "text": reply.content, "annotations": []}
        if reply.content == reply.message.get("refusal"):
            part = {"type": "refusal", "refusal": reply.content}
        head = {"type": "message", "id": make_id("msg_", reply), "role": "assistant", "status": "completed"}
        yield {**head, "content": [part]}
    for number, call in enumerate(reply.tool_calls):
        yield _write_call(call, asked.names.get(call.name, ToolName(call.name)), f"{make_id('fc_', reply)}{number}")


def _write_call(call: ToolCall, own: ToolName, item_id: str) -> JsonObject:
    made: JsonObject = {"id": item_id, "call_id": call.id, "status": "completed"}
    if own.kind == "local_shell":
        action = {"type": "exec", "command": [], "env": {}, **(call.arguments or {})}
        # Some results of the local shell refer to the call by the item's id.
        return {"type": "local_shell_call", **made, "id": call.id, "action": action}
    named = keep_given(name=own.name, namespace=own.namespace or None)
    if own.kind == "custom":
        text = read_custom_input(call.arguments, call.raw)
        return {"type": "custom_tool_call", **made, **named, "input": text}
    return {"type": "function_call", **made, **named, "arguments": call.raw}


def _write_usage(usage: Usage) -> JsonObject | None:
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": count_cached(usage),
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def write_events(reply: ChatReply, asked: Asked) -> Iterator[bytes]:
    """Yield the events of a reply."""
    response = write_reply(reply, asked)
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
        if stream is None:
            yield {"type": "response.output_item.added", **at, "item": item}
        else:
            empty = {"summary": [], "content": [], "arguments": "", "input": "", "status": "in_progress"}
            hollow = {name: empty.get(name, value) for name, value in item.items()}
            yield {"type": "response.output_item.added", **at, "item": hollow}
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
    if item["type"] == "custom_tool_call":
        key, kind, named = "input", "custom_tool_call_input", {}
    else:
        key, kind, named = "arguments", "function_call_arguments", {"name": item["name"]}
    for piece in split_arguments(item[key]):
        yield {"type": f"response.{kind}.delta", "delta": piece}
    yield {"type": f"response.{kind}.done", key: item[key], **named}


_STREAMED: Mapping[str, Callable[[JsonObject], Iterator[JsonObject]]] = {
    "message": _stream_text,
    "reasoning": _stream_thoughts,
    "function_call": _stream_call,
    "custom_tool_call": _stream_call,
}


def _error_events(status: int, code: str, text: str) -> bytes:
    """Return a response that was created and failed. Only keep-alive comments may have been sent before it."""
    made_of = {"id": "resp_agentbench", "object": "response", "created_at": 0, "status": "in_progress", "model": ""}
    empty: JsonObject = {"output": [], "usage": None, "error": None, "incomplete_details": None, "completed_at": None}
    begun: JsonObject = {**_RESOURCE, **made_of, **empty}
    failed = {**begun, "status": "failed", "error": {"code": code, "message": text}}
    made = [{"type": "response.created", "response": begun}, {"type": "response.failed", "response": failed}]
    return b"".join(_number(iter(made)))


def write_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a request. Fields that have no translation are sent unchanged, and override translated fields."""
    made: dict[str, Any] = {name: value for name, value in request.items() if name not in _TRANSLATED}
    made["input"] = [item for message in request["messages"] for item in _write_message(message)]
    if limit := find_limit(request):
        made.setdefault("max_output_tokens", limit)  # a field by its name in the API takes precedence
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
    if fields := keep_given(**text):
        made["text"] = fields
    if fields := keep_given(**reasoning):
        made["reasoning"] = fields
    return made


def _write_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):  # a tool of the endpoint, such as web_search
        return tool
    # The API's default is strict, and most tools' schemas are refused then.
    return {"type": "function", "strict": False, **function}


def _name_function(choice: Any) -> Any:
    """Return a choice of a tool. The tool's name is a key next to the type."""
    if isinstance(function := as_object(choice).get("function"), Mapping):
        return {"type": "function", **function}
    return choice


def _write_form(response_format: Any) -> Any:
    if isinstance(schema := as_object(response_format).get("json_schema"), Mapping):
        return {"type": "json_schema", **schema}
    return response_format


def _write_message(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        yield {
            "type": "function_call_output",
            "call_id": message["tool_call_id"],
            "output": write_content(content, _write_part),
        }
    elif role != "assistant":
        yield {"type": "message", "role": role, "content": write_content(content, _write_part)}
    elif isinstance(items := message.get(ITEMS), list):
        # A call that an agent has removed has no result, and the API refuses a call without one.
        call_ids = {call["id"] for call in message.get("tool_calls") or ()}
        yield from (item for item in items if item.get("type") != "function_call" or item.get("call_id") in call_ids)
    else:
        if text := read_text(content):
            yield {"type": "message", "role": role, "content": text}
        for call in message.get("tool_calls") or ():
            function = call["function"]
            named = {"name": function["name"], "arguments": function["arguments"]}
            yield {"type": "function_call", "call_id": call["id"], **named}


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


def read_reply(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response as a chat completion. Raises ValueError if it is invalid."""
    output = data.get("output")
    if not isinstance(output, list) or not all(isinstance(item, Mapping) for item in output):
        raise ValueError("it has no output")
    message = _read_output(output)
    calls = message.get("tool_calls") or ()
    if all(take_string(call["id"]) for call in calls):  # other calls get new ids, which the items do not have
        message[ITEMS] = output
    choice = {"message": message, "finish_reason": _read_finish(data, bool(calls))}
    return make_completion(data.get("id"), data.get("model"), choice, data.get("usage"))


def _read_output(output: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a response's items as the message of a chat completion."""
    messages, thoughts, calls = [], [], []
    for item in output:
        kind = item.get("type")
        if kind == "message":
            messages.append(item)
        elif kind == "reasoning":
            thoughts.append(item)
        # A call without the status "completed" was cut off: its arguments are incomplete.
        elif kind == "function_call" and item.get("status") in (None, "completed"):
            calls.append(item)
    message: dict[str, Any] = {"role": "assistant", "content": _join_text(messages, "output_text")}
    if refusal := _join_text(messages, "refusal"):
        message["refusal"] = refusal
    if thought := _join_thoughts(thoughts):
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = [
            make_call(item.get("call_id"), item.get("name"), item.get("arguments")) for item in calls
        ]
    return message


def _read_finish(data: Mapping[str, Any], calls: bool) -> str | None:
    status, details = data.get("status"), data.get("incomplete_details")
    if status == "incomplete" and isinstance(details, Mapping):
        reason = take_string(details.get("reason"))
        if reason == "max_output_tokens":
            return "length"
        return reason
    plain = take_string(status) or "completed"  # some servers omit it
    if calls and plain == "completed":
        return "tool_calls"
    return _READ_REASONS.get(plain, plain)


def _join_text(messages: Sequence[Mapping[str, Any]], kind: str) -> str | None:
    """Return the text of all messages, or only of those in the phase "final_answer" if there are any."""
    if not messages:
        return None
    final = [item for item in messages if item.get("phase") == "final_answer"]
    texts = ("".join(_list_texts(item.get("content"), kind)) for item in final or messages)
    return "\n".join(filter(None, texts)) or None


def _join_thoughts(thoughts: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(
        text
        for item in thoughts
        for text in (
            *_list_texts(item.get("summary"), "summary_text"),
            *_list_texts(item.get("content"), "reasoning_text"),
        )
    )


def _list_texts(parts: Any, kind: str) -> Iterator[str]:
    """Yield the texts of content parts of a type."""
    key = _TEXTS.get(kind, "text")
    for part in map(as_object, as_list(parts)):
        if part.get("type") == kind and isinstance(text := part.get(key), str):
            yield text


AGENT = AgentApi(
    name="responses",
    read=read_request,
    write=write_reply,
    events=write_events,
    error=error,
    error_events=_error_events,
    # A comment, because an unknown event before the first breaks `responses.stream` of openai 3.54.
    keep_alive=b": keep-alive\n\n",
    list_models=list_models,
    describe_model=describe_model,
    count=lambda tokens: {"object": "response.input_tokens", "input_tokens": tokens},
)
ENDPOINT = EndpointApi(
    "/responses",
    "max_output_tokens",
    {"stream": True},
    write=write_request,
    read=read_reply,
    # The endpoint stores nothing, so the model's thoughts come sealed and are sent back with the next request.
    defaults={"store": False, "include": ["reasoning.encrypted_content"]},
    least=16,
    statuses=_STATUSES,
)
