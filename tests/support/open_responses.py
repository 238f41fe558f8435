"""Requests of each kind of Open Responses, and rules for responses and their events, by its conformance tests.

The schemas are written by the public specification of 2026-04-24: every field of a response is present, or null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
    "RU5ErkJggg=="
)
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather of a place.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}


def said(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, **fields}


CASES: Mapping[str, dict[str, Any]] = {
    "basic text": {"input": [said("user", "Say hello.")]},
    "text as input": {"input": "Say hello."},
    "system prompt": {"input": [said("developer", "Answer in one word."), said("user", "Say hello.")]},
    "instructions": {"instructions": "Answer in one word.", "input": [said("user", "Say hello.")]},
    "image input": {
        "input": [
            said("user", [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": PIXEL}])
        ]
    },
    "multi-turn": {
        "input": [said("user", "I am Alice."), said("assistant", "Hello Alice!"), said("user", "Who am I?")]
    },
    "phases": {
        "input": [
            said("assistant", "I look it up.", phase="commentary"),
            said("assistant", "It is four.", phase="final_answer"),
            said("user", "Repeat it."),
        ]
    },
    "tool call": {"input": [said("user", "The weather?")], "tools": [WEATHER], "tool_choice": "required"},
    "tool result": {
        "input": [
            said("user", "The weather?"),
            {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"place": "Paris"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
        ],
        "tools": [WEATHER],
    },
    "settings": {
        "input": [said("user", "Say hello.")],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 64,
        "parallel_tool_calls": False,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "truncation": "auto",
        "metadata": {"a": "b"},
        "prompt_cache_key": "k",
    },
}


def _nullable(kind: str) -> dict[str, Any]:
    return {"type": [kind, "null"]}


def _object(required: Sequence[str] = (), /, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": [*(required or properties)], "properties": properties}


_TEXT = {"type": "string", "minLength": 1}
_COUNT = {"type": "integer", "minimum": 0}
_PART = {
    "oneOf": [
        _object(type={"const": "output_text"}, text={"type": "string"}, annotations={"type": "array"}),
        _object(type={"const": "refusal"}, refusal={"type": "string"}),
    ]
}
_ITEM_STATUS = {"enum": ["in_progress", "completed", "incomplete"]}
_ITEM = {
    "oneOf": [
        _object(
            type={"const": "message"},
            id=_TEXT,
            status=_ITEM_STATUS,
            role={"const": "assistant"},
            content={"type": "array", "items": _PART},
        ),
        _object(
            type={"const": "function_call"},
            id=_TEXT,
            call_id=_TEXT,
            name=_TEXT,
            arguments={"type": "string"},
            status=_ITEM_STATUS,
        ),
        _object(type={"const": "reasoning"}, id=_TEXT, summary={"type": "array"}),
    ]
}
_FUNCTION = _object(
    type={"const": "function"},
    name=_TEXT,
    description=_nullable("string"),
    parameters=_nullable("object"),
    strict=_nullable("boolean"),
)
RESPONSE = _object(
    id=_TEXT,
    object={"const": "response"},
    created_at=_COUNT,
    completed_at=_nullable("integer"),
    status={"enum": ["in_progress", "completed", "incomplete", "failed"]},
    incomplete_details={"anyOf": [{"type": "null"}, _object(reason=_TEXT)]},
    model={"type": "string"},
    previous_response_id=_nullable("string"),
    instructions=_nullable("string"),
    output={"type": "array", "items": _ITEM},
    error={"anyOf": [{"type": "null"}, _object(code=_TEXT, message=_TEXT)]},
    tools={"type": "array", "items": _FUNCTION},
    tool_choice={"anyOf": [{"enum": ["none", "auto", "required"]}, {"type": "object"}]},
    truncation={"enum": ["auto", "disabled"]},
    parallel_tool_calls={"type": "boolean"},
    text=_object(["format"], format=_object(type={"enum": ["text", "json_object", "json_schema"]})),
    top_p={"type": "number"},
    presence_penalty={"type": "number"},
    frequency_penalty={"type": "number"},
    top_logprobs=_COUNT,
    temperature={"type": "number"},
    reasoning={"anyOf": [{"type": "null"}, _object(effort=_nullable("string"), summary=_nullable("string"))]},
    usage={
        "anyOf": [
            {"type": "null"},
            _object(
                input_tokens=_COUNT,
                output_tokens=_COUNT,
                total_tokens=_COUNT,
                input_tokens_details=_object(cached_tokens=_COUNT),
                output_tokens_details=_object(reasoning_tokens=_COUNT),
            ),
        ]
    },
    max_output_tokens=_nullable("integer"),
    max_tool_calls=_nullable("integer"),
    store={"type": "boolean"},
    background={"type": "boolean"},
    service_tier={"type": "string"},
    metadata={"type": "object"},
    safety_identifier=_nullable("string"),
    prompt_cache_key=_nullable("string"),
)
_INPUT_PART = {
    "oneOf": [
        _object(type={"const": "input_text"}, text={"type": "string"}),
        _object(["type", "image_url"], type={"const": "input_image"}, image_url=_TEXT, detail={"type": "string"}),
    ]
}
_CONTENT = {"anyOf": [{"type": "string"}, {"type": "array", "items": _INPUT_PART}]}
REQUEST = _object(
    ["model", "input"],
    model=_TEXT,
    input={
        "type": "array",
        "minItems": 1,
        "items": {
            "oneOf": [
                _object(type={"const": "message"}, role={"enum": ["user", "system", "developer"]}, content=_CONTENT),
                _object(type={"const": "message"}, role={"const": "assistant"}, content={"type": "string"}),
                _object(type={"const": "function_call"}, call_id=_TEXT, name=_TEXT, arguments={"type": "string"}),
                _object(type={"const": "function_call_output"}, call_id=_TEXT, output=_CONTENT),
            ]
        },
    },
    tools={"type": "array", "items": _object(["type", "name"], type={"const": "function"}, name=_TEXT)},
    stream={"type": "boolean"},
    store={"const": False},
)


def list_problems(found: Any, schema: Mapping[str, Any]) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(found)]


def list_event_problems(events: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Return the problems of a stream: of its order, numbers, items, and of its responses."""
    kinds = [event["type"] for event in events]
    if kinds[:1] != ["response.created"]:
        yield f"it begins with {kinds[:1]}"
    if kinds[-1] not in ("response.completed", "response.incomplete", "response.failed"):
        yield f"it ends with {kinds[-1]}"
    if [event.get("sequence_number") for event in events] != [*range(len(events))]:
        yield "its events are not numbered from 0"
    for event in events:
        if "response" in event:
            yield from list_problems(event["response"], RESPONSE)
        if event["type"] == "response.output_item.done":
            yield from list_problems(event["item"], _ITEM)
    final = events[-1]["response"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    if done != final["output"]:
        yield "its items are not those of its last response"
    texts = {
        event["item_id"]: "".join(
            each["delta"]
            for each in events
            if each["type"] == "response.output_text.delta" and each["item_id"] == event["item_id"]
        )
        for event in events
        if event["type"] == "response.output_text.done"
    }
    whole = {item["id"]: item["content"][0]["text"] for item in done if item["type"] == "message"}
    if texts != whole:
        yield f"its pieces make {texts}, and its items say {whole}"
