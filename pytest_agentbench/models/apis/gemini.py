"""Google's generateContent: requests that agents send, and requests to endpoints.

Keys of agents' requests are in camelCase or snake_case, and calls may lack an id. An assistant message keeps its
original parts (`content_parts`) if one is signed: Gemini refuses a call without its signature.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_agentbench.models.apis.base import (
    PARTS,
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
    list_stops,
    make_call,
    make_completion,
    make_function,
    make_id,
    need,
    parse_arguments,
    refuse_fields,
    split_data_url,
    split_system,
    split_words,
    take,
    take_objects,
    text_part,
    unsupported,
    write_event,
)
from pytest_agentbench.models.json_values import as_list, as_object
from pytest_agentbench.models.messages import ChatReply, read_text
from pytest_agentbench.records.run import Usage

_STATUSES = {
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
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
READ_REASONS = {"STOP": "stop", "MAX_TOKENS": "length"}
_TRANSLATED = frozenset(
    {"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "max_completion_tokens", "stop"}
    | {"response_format", "reasoning_effort", "stream", "generationConfig"}
).union(SETTINGS)

_KNOWN = frozenset({"model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"})
_CHOICES = {theirs: ours for ours, theirs in _MODES.items()}
_WRITTEN_REASONS = {"length": "MAX_TOKENS", "filtered": "SAFETY"}
_ERRORS = {status: name for name, status in _STATUSES.items()}
_SNAKE = re.compile(r"_([a-z])")


def read_request(body: Mapping[str, Any], route: Route) -> Asked:
    """Parse an agent's request. Raises RequestRefused if it is invalid."""
    body = _camel(body)
    if route.kind == "count":
        body = _camel(take(body, "generateContentRequest", dict) or body)
    refuse_fields(body)
    draft = Draft()
    if isinstance(system := body.get("systemInstruction"), str):
        draft.add("system", [text_part(system)])
    elif texts := _read_parts(take(body, "systemInstruction", dict) or {}, draft):
        draft.add("system", texts)
    _Contents(draft).read(take_objects(body, "contents"))
    for tool in take_objects(body, "tools"):
        _read_tool(_camel(tool), draft)
    config = _camel(take(body, "generationConfig", dict) or {})
    calling = _camel(take(_camel(take(body, "toolConfig", dict) or {}), "functionCallingConfig", dict) or {})
    _check_config(config, draft)
    parameters = keep_given(
        **{ours: config.get(theirs) for ours, theirs in SETTINGS.items()},
        stop=take(config, "stopSequences", list) or None,
        tool_choice=_read_choice(calling, draft),
        response_format=_read_form(config),
        reasoning_effort=_read_thinking(_camel(take(config, "thinkingConfig", dict) or {}), draft),
    )
    return draft.finish(
        body,
        _KNOWN,
        model=route.model or take(body, "model", str) or "",
        parameters=parameters,
        stream=route.stream,
        as_list=route.as_list,
    )


def _camel(fields: Mapping[str, Any]) -> JsonObject:
    """Return an object with its top-level keys in camelCase."""
    if not any("_" in name for name in fields):
        return dict(fields)
    return {_SNAKE.sub(lambda match: match[1].upper(), name): value for name, value in fields.items()}


def _read_parts(content: Mapping[str, Any], draft: Draft) -> list[JsonObject]:
    return [_read_part(_camel(part), draft) for part in take_objects(content, "parts")]


def _read_part(part: JsonObject, draft: Draft) -> JsonObject:
    if part.get("text") is not None:
        return text_part(need(part, "text", str))
    if (data := take(part, "inlineData", dict)) is not None:
        kind = need(data := _camel(data), "mimeType", str)
        if not kind.startswith("image/"):
            return draft.read_part(None, kind)
        return draft.read_part(f"data:{kind};base64,{need(data, 'data', str)}", kind)
    if (data := take(part, "fileData", dict)) is not None:
        url = need(data := _camel(data), "fileUri", str)
        if "/files/" in url and "googleapis.com" in url:
            raise unsupported("fileData.fileUri")
        kind = take(data, "mimeType", str) or "image/*"
        if not kind.startswith("image/"):
            return draft.read_part(None, kind)
        return draft.read_part(url, kind)
    return draft.read_part(None, next(iter(part), "an empty part"))


class _Contents:
    """A reader of a request's contents, in order. It matches results to calls by id, or by name if they have no id."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._open: dict[str, str] = {}  # names of the calls without a result, by id
        self._answered: set[str] = set()

    def read(self, contents: list[JsonObject]) -> None:
        """Add all contents to the draft."""
        for turn, content in enumerate(contents):
            parts = [_camel(part) for part in take_objects(content, "parts")]
            if take(content, "role", str) == "model":
                self._read_own(parts, turn)
                continue
            user_parts: list[JsonObject] = []
            for part in parts:
                if (response := take(part, "functionResponse", dict)) is None:
                    user_parts.append(_read_part(part, self._draft))
                else:
                    self._read_result(_camel(response))
            if user_parts:
                self._draft.add("user", user_parts)

    def _read_own(self, parts: list[JsonObject], turn: int) -> None:
        for number, part in enumerate(parts):
            if (call := take(part, "functionCall", dict)) is not None:
                name, call_id = need(call, "name", str), take(call, "id", str) or f"call_{turn}_{number}"
                part["functionCall"] = {**call, "id": call_id, "args": take(call, "args", dict) or {}}
                self._open[call_id] = name
                self._answered.discard(call_id)  # some agents restart the numbers of calls in each turn
            elif not isinstance(part.get("text"), str):
                self._draft.lose(f"{next(iter(part), 'empty')} parts")
        self._draft.add_answer(_make_message(parts))

    def _read_result(self, response: JsonObject) -> None:
        """Add a result once. Gemini CLI 0.61 sends each twice."""
        name, call_id = need(response, "name", str), take(response, "id", str)
        if call_id is None:
            call_id = next((open_id for open_id, open_name in self._open.items() if open_name == name), None)
        if call_id is None:
            self._draft.lose("results without a call")
        if call_id is None or call_id in self._answered:
            return
        self._open.pop(call_id, None)
        self._answered.add(call_id)
        text, failed = _read_output(take(response, "response", dict) or {})
        parts = _read_parts(response, self._draft)
        if text:
            parts.insert(0, text_part(text))
        self._draft.add_result(call_id, parts, failed=failed)


def _read_output(response: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the text of a result, and whether it is an error."""
    for name in ("output", "result", "error"):
        if response.keys() == {name} and isinstance(text := response[name], str):
            return text, name == "error"
    return json.dumps(response, ensure_ascii=False), False


def _read_tool(tool: JsonObject, draft: Draft) -> None:
    for declaration in take_objects(tool, "functionDeclarations"):
        function = _camel(declaration)
        schema = "parametersJsonSchema"
        if schema not in function and (parameters := take(function, "parameters", dict)) is not None:
            function[schema] = _plain_schema(parameters)
        draft.add_tool(make_function(function, schema))
    draft.server_tools += [name for name in tool if name != "functionDeclarations"]


def _plain_schema(schema: Any) -> Any:
    """Return a schema of Google's as JSON Schema. Google's types are in upper case, and a type is `nullable`."""
    if isinstance(schema, list):
        return [_plain_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _plain_schema(value) for name, value in schema.items()}
    kind = schema.get("type")
    if isinstance(kind, str):
        plain["type"] = kind.lower()
        if plain.pop("nullable", None) is True:
            plain["type"] = [kind.lower(), "null"]
    return plain


def _check_config(config: Mapping[str, Any], draft: Draft) -> None:
    if config.get("candidateCount") not in (None, 1):
        draft.refuse(unsupported("candidateCount", "a request gets one reply"))
    modes = take(config, "responseModalities", list) or []
    for mode in modes:
        if str(mode).upper() != "TEXT":
            draft.refuse(unsupported("responseModalities", "replies contain only text"))
    if config.get("responseLogprobs"):
        draft.lose("logprobs")


def _read_choice(calling: Mapping[str, Any], draft: Draft) -> Any:
    mode, allowed = take(calling, "mode", str), take(calling, "allowedFunctionNames", list) or []
    if mode == "ANY" and len(allowed) == 1 and isinstance(allowed[0], str):
        return choose_function(allowed[0])
    if allowed:
        draft.lose("allowedFunctionNames")
    return _CHOICES.get(mode or "")


def _read_form(config: Mapping[str, Any]) -> JsonObject | None:
    schema = config.get("responseJsonSchema") or _plain_schema(config.get("responseSchema"))
    if schema:
        return choose_json_schema(schema)
    if config.get("responseMimeType") == "application/json":
        return {"type": "json_object"}
    return None


def _read_thinking(thinking: Mapping[str, Any], draft: Draft) -> str | None:
    effort = draft.read_budget(thinking.get("thinkingBudget"))
    level = take(thinking, "thinkingLevel", str)
    if level is None:
        return effort
    return level.lower()


def write_reply(reply: ChatReply, asked: Asked) -> Any:
    """Return a reply as a response. It is in a list if the agent asked for a stream that is no stream of events."""
    made = {**_write_piece(_list_parts(reply), finishReason=_choose_finish(reply)), **_write_end(reply)}
    if asked.as_list:
        return [made]
    return made


def _choose_finish(reply: ChatReply) -> str:
    return _WRITTEN_REASONS.get(finish_of(reply), "STOP")


def _write_piece(parts: list[JsonObject], **finish: str) -> JsonObject:
    return {"candidates": [{"content": {"role": "model", "parts": parts}, **finish, "index": 0}]}


def _list_parts(reply: ChatReply) -> list[JsonObject]:
    if isinstance(own := reply.message.get(PARTS), list):
        return [*own]  # the original parts of the endpoint's reply, with the signatures of its calls
    parts: list[JsonObject] = []
    if reply.thoughts:
        parts.append({"text": reply.thoughts, "thought": True})
    if reply.content:
        parts.append({"text": reply.content})
    calls = ({"id": call.id, "name": call.name, "args": call.arguments or {}} for call in reply.tool_calls)
    return parts + [{"functionCall": call} for call in calls]


def _write_end(reply: ChatReply) -> JsonObject:
    """Return the fields of a response other than its candidate."""
    usage = keep_given(usageMetadata=_write_usage(reply.usage))
    return {**usage, "modelVersion": reply.model, "responseId": make_id("", reply)}


def _write_usage(usage: Usage) -> JsonObject | None:
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    return {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cached_tokens or 0,
        "candidatesTokenCount": usage.output_tokens - (usage.reasoning_tokens or 0),
        "thoughtsTokenCount": usage.reasoning_tokens or 0,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }


def write_events(reply: ChatReply, asked: Asked) -> Iterator[bytes]:
    """Yield the events of a reply. Each is a response with a piece of the content; the last has the usage."""
    end = _write_end(reply)
    head = {name: end[name] for name in ("modelVersion", "responseId")}
    for part in _list_parts(reply):
        pieces = [{**part, "text": word} for word in split_words(part.get("text"))]
        for piece in pieces or [part]:
            yield write_event({**_write_piece([piece]), **head})
    yield write_event({**_write_piece([{"text": ""}], finishReason=_choose_finish(reply)), **end})


def _error(status: int, code: str, text: str) -> JsonObject:
    name = _ERRORS.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code, "domain": "agentbench"}
    return {"error": {"code": status, "message": text, "status": name, "details": [info]}}


def _describe_model(name: str) -> JsonObject:
    methods = ["generateContent", "countTokens"]
    return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}


def write_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a request. Fields that have no translation are sent unchanged, and override translated fields."""
    made: dict[str, Any] = {name: value for name, value in request.items() if name not in _TRANSLATED}
    instructions, messages = split_system(request["messages"])
    if system := [part for message in instructions for part in _write_parts(message.get("content"))]:
        made.setdefault("systemInstruction", {"parts": system})
    made["contents"] = _write_contents(messages)
    if tools := [tool["function"] for tool in request.get("tools") or () if "function" in tool]:
        made.setdefault("tools", [{"functionDeclarations": [_write_tool(tool) for tool in tools]}])
    if (choice := request.get("tool_choice")) is not None:
        made.setdefault("toolConfig", {"functionCallingConfig": _write_choice(choice)})
    if config := {**_write_config(request), **(request.get("generationConfig") or {})}:
        made["generationConfig"] = config
    return made


def _write_config(request: Mapping[str, Any]) -> dict[str, Any]:
    settings = {**request, "max_tokens": find_limit(request)}
    config = {theirs: value for ours, theirs in SETTINGS.items() if (value := settings.get(ours)) is not None}
    if stop := request.get("stop"):
        config["stopSequences"] = list_stops(stop)
    if (effort := request.get("reasoning_effort")) is not None:
        config["thinkingConfig"] = {"thinkingLevel": effort}
    form = request.get("response_format")
    if isinstance(form, Mapping) and form.get("type") in ("json_object", "json_schema"):
        config["responseMimeType"] = "application/json"
        if schema := find_schema(form):
            config["responseJsonSchema"] = schema
    return config


def _write_tool(function: Mapping[str, Any]) -> dict[str, Any]:
    names = {"name": "name", "description": "description", "parameters": "parametersJsonSchema"}
    return {theirs: function[ours] for ours, theirs in names.items() if function.get(ours) is not None}


def _write_choice(choice: Any) -> dict[str, Any]:
    if isinstance(choice, str):
        return {"mode": _MODES.get(choice, choice)}
    return {"mode": "ANY", "allowedFunctionNames": [choice["function"]["name"]]}


def _write_contents(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = []
    results: list[dict[str, Any]] | None = None  # all results of a message's calls are in one content
    names: dict[str, str] = {}  # a result needs the name of its function, which a tool message lacks
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            call_id = message["tool_call_id"]
            response = {"id": call_id, "name": names.get(call_id, call_id), "response": {"output": read_text(content)}}
            if results is None:
                contents.append({"role": "user", "parts": (results := [])})
            results.append({"functionResponse": response})
            continue
        results = None
        if role != "assistant":
            contents.append({"role": role, "parts": _write_parts(content)})
            continue
        names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls") or ()}
        if parts := _write_own(message):
            contents.append({"role": "model", "parts": parts})
    return contents


def _write_own(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the original parts of an assistant message without dropped calls, or parts from its text and calls."""
    calls = message.get("tool_calls") or ()
    if isinstance(parts := message.get(PARTS), list):
        call_ids = {call["id"] for call in calls}
        return [part for part in parts if "functionCall" not in part or part["functionCall"].get("id") in call_ids]
    return _write_parts(read_text(message.get("content"))) + [
        {"functionCall": {"id": call["id"], "name": call["function"]["name"], "args": parse_arguments(call)}}
        for call in calls
    ]


def _write_parts(content: Any) -> list[dict[str, Any]]:
    if not isinstance(content, list):
        if content:
            return [{"text": content}]
        return []
    return [_write_part(part) for part in content]


def _write_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") != "image_url":
        return {"text": part["text"]}
    url = part["image_url"]["url"]
    if (encoded := split_data_url(url)) is None:
        return {"fileData": {"fileUri": url}}
    return {"inlineData": {"mimeType": encoded[0], "data": encoded[1]}}


def read_reply(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response as a chat completion. Raises ValueError if it is invalid."""
    candidate = as_object(next(iter(as_list(data.get("candidates"))), None))
    parts = as_object(candidate.get("content")).get("parts") or []
    blocked = as_object(data.get("promptFeedback")).get("blockReason")
    if not candidate and not blocked:
        raise ValueError("it has no candidates")
    if not isinstance(parts, list) or not all(isinstance(part, Mapping) for part in parts):
        raise ValueError("its parts are no objects")
    answer_id = data.get("responseId")
    message = _make_message([_name_call(part, f"call_{answer_id}_{number}") for number, part in enumerate(parts)])
    reason = str(candidate.get("finishReason") or "STOP")
    finish = READ_REASONS.get(reason, reason.lower())
    if not candidate:
        finish = "content_filter"
    elif "tool_calls" in message and finish == "stop":
        finish = "tool_calls"
    choice = {"message": message, "finish_reason": finish}
    return make_completion(answer_id, data.get("modelVersion"), choice, _read_usage(data.get("usageMetadata")))


def _name_call(part: Mapping[str, Any], call_id: str) -> Mapping[str, Any]:
    """Return a part. A call without an id gets `call_id`, so that its result can refer to it."""
    call = part.get("functionCall")
    if not isinstance(call, Mapping) or call.get("id"):
        return part
    return {**part, "functionCall": {**call, "id": call_id}}


def _make_message(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the parts of a model's content as an assistant message."""
    message: dict[str, Any] = {"role": "assistant", "content": "".join(_list_texts(parts, False)) or None}
    if thoughts := "".join(_list_texts(parts, True)):
        message["reasoning_content"] = thoughts
    calls = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), Mapping)]
    if calls:
        message["tool_calls"] = [
            make_call(call.get("id"), call.get("name"), json.dumps(call.get("args") or {}, ensure_ascii=False))
            for call in calls
        ]
    if any(part.get("thoughtSignature") for part in parts):
        message[PARTS] = [*parts]
    return message


def _list_texts(parts: Sequence[Mapping[str, Any]], thought: bool) -> Iterator[str]:
    for part in parts:
        if bool(part.get("thought")) is thought and isinstance(text := part.get("text"), str):
            yield text


def _read_usage(counted: Any) -> dict[str, Any] | None:
    """Return the usage with the names of Chat Completions in addition to Google's."""
    if not isinstance(counted, Mapping) or not isinstance(counted.get("promptTokenCount"), int):
        return None

    def add(*names: str) -> int | None:
        counts = [value for name in names if isinstance(value := counted.get(name), int)]
        if counts:
            return sum(counts)
        return None

    return {
        **counted,
        "prompt_tokens": add("promptTokenCount", "toolUsePromptTokenCount"),
        "prompt_tokens_details": {"cached_tokens": add("cachedContentTokenCount")},
        "completion_tokens": add("candidatesTokenCount", "thoughtsTokenCount"),
        "completion_tokens_details": {"reasoning_tokens": add("thoughtsTokenCount")},
    }


AGENT = AgentApi(
    name="gemini",
    read=read_request,
    write=write_reply,
    events=write_events,
    error=_error,
    error_events=lambda status, code, text: write_event(_error(status, code, text)),
    # An empty event, because comments break google-genai 2.34 and Gemini CLI 0.61.
    keep_alive=write_event({}),
    list_models=lambda name: {"models": [_describe_model(name)]},
    describe_model=_describe_model,
    count=lambda tokens: {"totalTokens": tokens},
)
ENDPOINT = EndpointApi(
    "/models/{model}:generateContent",
    "max_tokens",
    {},
    write=write_request,
    read=read_reply,
    statuses=_STATUSES,
    streamed="/models/{model}:streamGenerateContent?alt=sse",
)
