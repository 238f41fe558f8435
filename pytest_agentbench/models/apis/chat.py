"""OpenAI's Chat Completions: requests that agents send, and requests to endpoints.

It is the internal form, except for custom tools: these are functions there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pytest_agentbench.models.apis.base import (
    KEPT,
    AgentApi,
    Asked,
    EndpointApi,
    JsonObject,
    RequestRefused,
    Route,
    ToolName,
    count_cached,
    custom_function,
    kind_of,
    list_ignored,
    make_call,
    malformed,
    read_custom_input,
    refuse_fields,
    split_arguments,
    split_words,
    take_model,
    take_objects,
    unsupported,
    unsupported_content,
    write_custom_input,
    write_event,
)
from pytest_agentbench.models.json_values import as_list, as_object
from pytest_agentbench.models.messages import ChatReply, ToolCall
from pytest_agentbench.records.run import Usage

UNKNOWN = "*unknown"
"""In a dialect's `never_back`: all keys that the API does not define."""
_MESSAGE_KEYS = frozenset({"role", "content", "name", "tool_calls"})
_CALL_KEYS = frozenset({"id", "type", "function"})
_LAST_EVENT = b"data: [DONE]\n\n"
_PASSED_ON = frozenset(
    {"enable_thinking", "frequency_penalty", "include_reasoning", "logit_bias", "max_completion_tokens", "max_tokens"}
    | {"min_p", "parallel_tool_calls", "presence_penalty", "prompt_cache_key", "reasoning", "reasoning_effort", "seed"}
    | {"repetition_penalty", "response_format", "stop", "temperature", "thinking", "tool_choice", "top_a", "top_k"}
    | {"top_p", "verbosity"}
)
"""Fields that are passed to the model. Fields that select another model, search the web or store data are not."""
_OF_THE_PROTOCOL = frozenset({"model", "messages", "tools", "stream", "stream_options", "n", "web_search_options"})

_MEDIA = frozenset({"file", "input_audio", "video_url"})


def read_request(body: Mapping[str, Any], route: Route) -> Asked:
    """Parse an agent's request. Raises RequestRefused if it is invalid."""
    refuse_fields(body)
    messages = require_messages(body)
    tools: list[JsonObject] = []
    server_tools: list[str] = []
    names: dict[str, ToolName] = {}
    lost: dict[str, None] = {}
    if body.get("web_search_options") is not None:
        server_tools.append("web_search_options")
    for tool in take_objects(body, "tools"):
        kind = tool.get("type")
        if not isinstance(kind, str):
            raise malformed("tools", "a list of functions")
        if kind not in ("function", "custom"):
            server_tools.append(kind)
            continue
        described = as_object(tool.get(kind))
        if not isinstance(name := described.get("name"), str):
            raise malformed("tools", "a list of functions")
        if kind == "function":
            tools.append(tool)
            continue
        tools.append(custom_function(described))
        names[name] = ToolName(name, kind="custom")
        if described.get("format"):
            lost["grammars of custom tools"] = None
    return Asked(
        model=take_model(body),
        messages=[_read_message(message) for message in messages],
        tools=tools,
        parameters={name: value for name, value in body.items() if name in _PASSED_ON},
        stream=bool(body.get("stream")),
        include_usage=wants_usage(body),
        ignored=list_ignored(body, _PASSED_ON | _OF_THE_PROTOCOL),
        server_tools=tuple(server_tools),
        lost=tuple(lost),
        refusal=_find_refusal(body, messages),
        names=names,
    )


def require_messages(body: Mapping[str, Any]) -> list[JsonObject]:
    """Return the messages of a request. Raises RequestRefused if there are none."""
    messages = take_objects(body, "messages")
    if not messages:
        raise RequestRefused(400, "the request needs 'messages', a list of at least one message", "invalid_request")
    return messages


def wants_usage(body: Mapping[str, Any]) -> bool:
    """Return whether the stream of a reply must report its usage."""
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))


def _find_refusal(body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> RequestRefused | None:
    """Return why a request cannot be translated, or None. Raises RequestRefused for a stored file."""
    if body.get("n") not in (None, 1):
        return unsupported("n", "a request gets one reply")
    refusal = None
    for message in messages:
        for part in map(as_object, as_list(message.get("content"))):
            kind = kind_of(part)
            if kind == "file" and as_object(part.get("file")).get("file_id"):
                raise unsupported("file_id")
            if kind in _MEDIA:
                refusal = refusal or unsupported_content(kind)
    return refusal


def _read_message(message: JsonObject) -> JsonObject:
    """Return a message. Its calls of custom tools become calls of functions."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not any(isinstance(call, dict) and "custom" in call for call in calls):
        return message
    return {**message, "tool_calls": [_read_call(call) for call in calls]}


def _read_call(call: Any) -> Any:
    custom = as_object(call).get("custom")
    if custom is None:
        return call
    if not isinstance(custom, dict) or not isinstance(text := custom.get("input"), str):
        raise malformed("tool_calls.custom", "an object with 'name' and the text 'input'")
    return make_call(call.get("id"), custom.get("name"), write_custom_input(text))


def write_reply(reply: ChatReply, asked: Asked) -> JsonObject:
    """Return a reply as a chat completion."""
    fields = {name: value for name, value in drop_empty(reply.message).items() if name not in KEPT}
    # The content is one text, because agents accept no parts in a reply.
    message = {**fields, **reply.reasoning, "content": reply.content}
    if reply.tool_calls and asked.names:
        message["tool_calls"] = [
            _write_call(call, sent, asked) for call, sent in zip(reply.tool_calls, message["tool_calls"], strict=True)
        ]
    finish = reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")
    completion = {
        "id": reply.response_id or "chatcmpl-agentbench",
        "object": "chat.completion",
        "created": 0,
        "model": reply.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }
    usage = write_usage(reply.usage)
    if usage is None:
        return completion
    return {**completion, "usage": usage}


def _write_call(call: ToolCall, sent: JsonObject, asked: Asked) -> JsonObject:
    tool = asked.names.get(call.name)
    if tool is None:
        return sent
    custom = {"name": tool.name, "input": read_custom_input(call.arguments, call.raw)}
    return {"id": call.id, "type": "custom", "custom": custom}


def write_usage(usage: Usage) -> JsonObject | None:
    """Return the provider's usage, else a usage made from the counts. Return None if the tokens are unknown."""
    # Usage of Responses and Messages has other field names, which clients of Chat Completions do not read.
    if usage.raw and "prompt_tokens" in usage.raw[-1]:
        return usage.raw[-1]
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": count_cached(usage),
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
    }


def write_events(reply: ChatReply, asked: Asked) -> Iterator[bytes]:
    """Yield the chunks of a reply, with usage if the request asks for it."""
    return list_events(write_reply(reply, asked), include_usage=asked.include_usage)


def list_events(completion: Mapping[str, Any], *, include_usage: bool) -> Iterator[bytes]:
    """Yield a completion's events. The text is split into words."""
    head = {key: completion[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = completion["choices"][0]
    for delta in _split_message(choice["message"]):
        yield write_event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield write_event(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if include_usage and completion.get("usage") is not None:
        yield write_event(head | {"choices": [], "usage": completion["usage"]})
    yield _LAST_EVENT


def _split_message(message: Mapping[str, Any]) -> Iterator[JsonObject]:
    """Yield a message in pieces: its text in words, the arguments of each call in two pieces, other fields at once."""
    content = message["content"]
    head = {name: value for name, value in message.items() if name not in ("content", "tool_calls")}
    yield {**head, "content": None if content is None else ""}
    for word in split_words(content):
        yield {"content": word}
    for index, call in enumerate(message.get("tool_calls", ())):
        kind, key = "function", "arguments"
        if "custom" in call:
            kind, key = "custom", "input"
        yield {"tool_calls": [{"index": index, **call, kind: {"name": call[kind]["name"], key: ""}}]}
        for piece in split_arguments(call[kind][key]):
            yield {"tool_calls": [{"index": index, kind: {key: piece}}]}


def error(status: int, code: str, text: str) -> JsonObject:
    """Return the body of an error."""
    return {"error": {"message": text, "type": "agentbench_error", "param": None, "code": code}}


def _error_events(status: int, code: str, text: str) -> bytes:
    return write_event(error(status, code, text)) + _LAST_EVENT


def describe_model(name: str) -> JsonObject:
    """Return the description of a model in Chat Completions and Responses."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "agentbench"}


def list_models(name: str) -> JsonObject:
    """Return the list of models, which has one entry."""
    return {"object": "list", "data": [describe_model(name)]}


def fit_message(message: Mapping[str, Any], never: Collection[str], always: Collection[str]) -> dict[str, Any]:
    """Return the part of a model's message that is sent back: no empty fields, and no key that the endpoint refuses."""
    fitted = {name: value for name, value in message.items() if _goes_back(name, value, _MESSAGE_KEYS, never, always)}
    # `content` is required. It must not be "" next to calls: some servers make an empty block of it, which
    # they refuse.
    fitted["content"] = message.get("content")
    calls = fitted.get("tool_calls")
    if calls:
        fitted["content"] = fitted["content"] or None
    if isinstance(calls, list):
        fitted["tool_calls"] = [_fit_call(call, never, always) for call in calls]
    return fitted


def _fit_call(call: Any, never: Collection[str], always: Collection[str]) -> Any:
    if not isinstance(call, dict):
        return call
    return {
        name: value
        for name, value in call.items()
        if name != "index" and _goes_back(name, value, _CALL_KEYS, never, always)
    }


def _goes_back(
    name: str, value: object, known: Collection[str], never: Collection[str], always: Collection[str]
) -> bool:
    if not value and value in (None, "", [], {}):
        return False
    if name in never:
        return False
    return name in known or name in always or UNKNOWN not in never


def drop_empty(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return an assistant message without empty fields, at its top and in its calls."""
    return fit_message(message, (), ())


AGENT = AgentApi(
    name="chat",
    read=read_request,
    write=write_reply,
    events=write_events,
    error=error,
    error_events=_error_events,
    # A chunk without choices: clients that limit the time between two events do not count comments.
    keep_alive=write_event({"object": "chat.completion.chunk", "choices": []}),
    list_models=list_models,
    describe_model=describe_model,
    count=lambda tokens: {"input_tokens": tokens},
)
ENDPOINT = EndpointApi("/chat/completions", "max_tokens", {"stream": True, "stream_options": {"include_usage": True}})
