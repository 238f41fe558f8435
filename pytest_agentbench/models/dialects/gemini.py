"""Google's generateContent as agents ask in it: keys in camelCase or snake_case, calls with an id or without."""

from __future__ import annotations

import json
import re
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
    make_function,
    make_id,
    need,
    refuse_fields,
    split_words,
    take,
    take_objects,
    text_part,
    unsupported,
    write_event,
)
from pytest_agentbench.models.protocols.gemini import MODES, PARTS, SETTINGS, STATUSES, read_parts

if TYPE_CHECKING:
    from pytest_agentbench.models.replies import ChatReply
    from pytest_agentbench.records.run import Usage

_KNOWN = frozenset({"model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"})
_CHOICES = {theirs: ours for ours, theirs in MODES.items()}
_FINISHED = {"length": "MAX_TOKENS", "filtered": "SAFETY"}
_ERRORS = {status: name for name, status in STATUSES.items()}
_SNAKE = re.compile(r"_([a-z])")


def read(body: Mapping[str, Any], route: Route) -> Asked:
    """Return what a request asks. Raises RequestRefused where it is none."""
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


def _camel(given: Mapping[str, Any]) -> JsonObject:
    """Return an object with its own keys in camelCase."""
    if not any("_" in name for name in given):
        return dict(given)
    return {_SNAKE.sub(lambda found: found[1].upper(), name): value for name, value in given.items()}


def _read_parts(content: Mapping[str, Any], draft: Draft) -> list[JsonObject]:
    return [_read_part(_camel(part), draft) for part in take_objects(content, "parts")]


def _read_part(part: JsonObject, draft: Draft) -> JsonObject:
    if part.get("text") is not None:
        return text_part(need(part, "text", str))
    if (data := take(part, "inlineData", dict)) is not None:
        kind = need(data := _camel(data), "mimeType", str)
        url = f"data:{kind};base64,{need(data, 'data', str)}" if kind.startswith("image/") else None
        return draft.read_part(url, kind)
    if (data := take(part, "fileData", dict)) is not None:
        url = need(data := _camel(data), "fileUri", str)
        if "/files/" in url and "googleapis.com" in url:
            raise unsupported("fileData.fileUri")
        kind = take(data, "mimeType", str) or "image/*"
        return draft.read_part(url if kind.startswith("image/") else None, kind)
    return draft.read_part(None, next(iter(part), "an empty part"))


class _Contents:
    """Contents of a request, read one after the other: a result belongs to a call by its id, else by its name."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._open: dict[str, str] = {}
        self._answered: set[str] = set()

    def read(self, contents: list[JsonObject]) -> None:
        """Add all of them."""
        for turn, content in enumerate(contents):
            parts = [_camel(part) for part in take_objects(content, "parts")]
            if take(content, "role", str) == "model":
                self._read_own(parts, turn)
                continue
            said: list[JsonObject] = []
            for part in parts:
                if (response := take(part, "functionResponse", dict)) is None:
                    said.append(_read_part(part, self._draft))
                else:
                    self._read_result(_camel(response))
            if said:
                self._draft.add("user", said)

    def _read_own(self, parts: list[JsonObject], turn: int) -> None:
        for number, part in enumerate(parts):
            if (call := take(part, "functionCall", dict)) is not None:
                name, call_id = need(call, "name", str), take(call, "id", str) or f"call_{turn}_{number}"
                part["functionCall"] = {**call, "id": call_id, "args": take(call, "args", dict) or {}}
                self._open[call_id] = name
                self._answered.discard(call_id)  # some count their calls anew in each turn
            elif not isinstance(part.get("text"), str):
                self._draft.lose(f"{next(iter(part), 'empty')} parts")
        self._draft.add_answer(read_parts(parts))

    def _read_result(self, response: JsonObject) -> None:
        """Add a result, once: Gemini CLI 0.61 sends each twice."""
        name, call_id = need(response, "name", str), take(response, "id", str)
        if call_id is None:
            call_id = next((known for known, called in self._open.items() if called == name), None)
        if call_id is None:
            self._draft.lose("results without a call")
        if call_id is None or call_id in self._answered:
            return
        self._open.pop(call_id, None)
        self._answered.add(call_id)
        text, failed = _read_output(take(response, "response", dict) or {})
        inner = [_read_part(_camel(part), self._draft) for part in take_objects(response, "parts")]
        self._draft.add_result(call_id, [*([text_part(text)] if text else ()), *inner], failed=failed)


def _read_output(response: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the text of a result, and whether it is that of an error."""
    for name in ("output", "result", "error"):
        if response.keys() == {name} and isinstance(text := response[name], str):
            return text, name == "error"
    return json.dumps(response, ensure_ascii=False), False


def _read_tool(tool: JsonObject, draft: Draft) -> None:
    for declared in take_objects(tool, "functionDeclarations"):
        function = _camel(declared)
        schema = "parametersJsonSchema"
        if schema not in function and (given := take(function, "parameters", dict)) is not None:
            function[schema] = _plain_schema(given)
        draft.add_tool(make_function(function, schema))
    draft.server_tools += [name for name in tool if name != "functionDeclarations"]


def _plain_schema(schema: Any) -> Any:
    """Return a schema of Google's as JSON Schema: its types are in upper case, and null is a type there."""
    if isinstance(schema, list):
        return [_plain_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _plain_schema(value) for name, value in schema.items()}
    kind = schema.get("type")
    if isinstance(kind, str):
        made["type"] = [kind.lower(), "null"] if schema.get("nullable") is True else kind.lower()
        made.pop("nullable", None)
    return made


def _check_config(config: Mapping[str, Any], draft: Draft) -> None:
    if config.get("candidateCount") not in (None, 1):
        draft.refuse(unsupported("candidateCount", "there is one answer to a request"))
    modes = take(config, "responseModalities", list) or []
    for mode in modes:
        if str(mode).upper() != "TEXT":
            draft.refuse(unsupported("responseModalities", "answers are text"))
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
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return {"type": "json_object"} if config.get("responseMimeType") == "application/json" else None


def _read_thinking(thinking: Mapping[str, Any], draft: Draft) -> str | None:
    effort = choose_effort(thinking.get("thinkingBudget"))
    if effort is not None:
        draft.lose("thinking budget")
    level = take(thinking, "thinkingLevel", str)
    return effort if level is None else level.lower()


def write(reply: ChatReply, asked: Asked) -> Any:
    """Return a reply as a response, in a list where a stream was asked for that is no stream of events."""
    made = {**_write_piece(_list_parts(reply), _FINISHED.get(finish_of(reply), "STOP")), **_write_end(reply)}
    return [made] if asked.as_list else made


def _write_piece(parts: list[JsonObject], finish: str | None = None) -> JsonObject:
    ended = {} if finish is None else {"finishReason": finish}
    return {"candidates": [{"content": {"role": "model", "parts": parts}, **ended, "index": 0}]}


def _list_parts(reply: ChatReply) -> list[JsonObject]:
    if isinstance(own := reply.message.get(PARTS), list):
        return [*own]  # what a reply in this protocol was made of, with the signatures of its calls
    parts: list[JsonObject] = [{"text": reply.thoughts, "thought": True}] if reply.thoughts else []
    if reply.content:
        parts.append({"text": reply.content})
    calls = ({"id": call.id, "name": call.name, "args": call.arguments or {}} for call in reply.tool_calls)
    return [*parts, *({"functionCall": call} for call in calls)]


def _write_end(reply: ChatReply) -> JsonObject:
    """Return what a response says beside its candidate."""
    usage = _write_usage(reply.usage)
    counted = {} if usage is None else {"usageMetadata": usage}
    return {**counted, "modelVersion": reply.model, "responseId": make_id("", reply)}


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


def events(reply: ChatReply, asked: Asked) -> Iterator[bytes]:
    """Yield the events of a reply: each is a response with a piece of the content, the last with the usage."""
    told = _write_end(reply)
    head = {name: told[name] for name in ("modelVersion", "responseId")}
    for part in _list_parts(reply):
        words = split_words(part["text"]) if "text" in part else ()
        for piece in ({**part, "text": word} for word in words) if words else (part,):
            yield write_event({**_write_piece([piece]), **head})
    yield write_event({**_write_piece([{"text": ""}], _FINISHED.get(finish_of(reply), "STOP")), **told})


def _error(status: int, code: str, text: str) -> JsonObject:
    name = _ERRORS.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code, "domain": "agentbench"}
    return {"error": {"code": status, "message": text, "status": name, "details": [info]}}


def _describe_model(name: str) -> JsonObject:
    methods = ["generateContent", "countTokens"]
    return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}


GEMINI = Dialect(
    name="gemini",
    read=read,
    write=write,
    events=events,
    error=_error,
    error_events=lambda status, code, text: write_event(_error(status, code, text)),
    # No comment: they break google-genai 2.34 and Gemini CLI 0.61
    keep_alive=write_event({}),
    list_models=lambda name: {"models": [_describe_model(name)]},
    describe_model=_describe_model,
    count=lambda tokens: {"totalTokens": tokens},
)
