"""Requests and replies of agents, written and read by every API's codec."""

from __future__ import annotations

import json

from pytest_agentbench.models.apis.base import Asked, Route
from pytest_agentbench.models.apis.choice import AGENT_APIS, ENDPOINT_APIS
from pytest_agentbench.models.apis.streams import open_reader
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.replies import read_reply
from pytest_agentbench.records.case import Model

NAMES = sorted(AGENT_APIS)

PIXEL = "data:image/png;base64,iVBORw0KGgo="

MODEL = Model(model_id="m", requested_model="m", base_url="http://127.0.0.1:1/v1")


def read(name: str, body: dict) -> Asked:
    return AGENT_APIS[name].read(body, Route(name, "ask", "m" if name == "gemini" else None))


def write(name: str, messages: list, tools: list = (), **parameters) -> dict:
    """A request as an agent sends it: what our own client would."""
    return ENDPOINT_APIS[name].write({"model": "m", "messages": messages, "tools": tools, **parameters})


def reply(message: dict, finish: str = "stop", usage: dict | None = None) -> ChatReply:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body = {"id": "c-1", "model": "m", "choices": [choice], "usage": usage or {}}
    return parse("chat", json.dumps(body).encode())


def parse(name: str, body: bytes) -> ChatReply:
    """A reply as our own client reads it."""
    spoken = MODEL.model_copy(update={"api": name})
    return read_reply(body, "application/json", spoken, attempts=1, seconds=0.0)


def fold_events(name: str, events: bytes) -> ChatReply:
    reader = open_reader(name)
    reader.feed(events)
    return parse(name, reader.finish(200, {}).content)


ASKED = Asked("m", [])

RICH = {
    "chat": {
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "?"}]},
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "p", "input": "x"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "y"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "f"}},
            {"type": "custom", "custom": {"name": "p", "description": "d", "format": {"type": "grammar"}}},
            {"type": "mcp"},
        ],
        "stream_options": {"include_usage": True},
        "n": 1,
    },
    "responses": {
        "model": "m",
        "instructions": "i",
        "input": [
            {"role": "developer", "content": "d"},
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "?"}, {"type": "input_image", "image_url": PIXEL}],
            },
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "S"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}", "namespace": "ns"},
            {"type": "custom_tool_call", "call_id": "2", "name": "p", "input": "x"},
            {"type": "local_shell_call", "call_id": "3", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_image", "image_url": PIXEL}]},
            {"type": "custom_tool_call_output", "call_id": "2", "output": "y"},
            {"type": "local_shell_call_output", "id": "3", "output": "z"},
            {"type": "web_search_call", "id": "w"},
        ],
        "tools": [
            {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": False},
            {"type": "custom", "name": "p", "format": {"type": "grammar"}},
            {"type": "local_shell"},
            {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "f"}]},
            {"type": "web_search"},
        ],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "store": False,
        "user": "u",
    },
    "messages": {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "?"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                    {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "agentbench:1"},
                    {"type": "text", "text": "a", "citations": [{}]},
                    {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}},
                    {"type": "tool_use", "id": "2", "name": "f", "input": {}},
                    {"type": "server_tool_use", "id": "3"},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": "no", "is_error": True},
                    {
                        "type": "tool_result",
                        "tool_use_id": "2",
                        "content": [
                            {"type": "text", "text": "seen"},
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                        ],
                    },
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "web"}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u"},
    },
    "gemini": {
        "system_instruction": {"parts": [{"text": "s"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "?"}, {"inline_data": {"mime_type": "image/png", "data": "AA=="}}]},
            {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True},
                    {"text": "a"},
                    {"functionCall": {"name": "f", "args": {"x": 1}}},
                    {"functionCall": {"name": "f", "args": {}}},
                    {"functionCall": {"id": "own", "name": "g"}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "f", "response": {"output": "one"}}},
                    {"functionResponse": {"name": "f", "response": {"error": "two"}}},
                    {"functionResponse": {"id": "own", "name": "g", "response": {"a": 1}}},
                    {"functionResponse": {"id": "own", "name": "g", "response": {"a": 1}}},
                    {"text": "go on"},
                ],
            },
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "f",
                        "parameters": {"type": "OBJECT", "properties": {"x": {"type": "STRING", "nullable": True}}},
                    },
                    {"name": "g", "parametersJsonSchema": {"type": "object"}},
                ]
            },
            {"googleSearch": {}},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "generationConfig": {
            "maxOutputTokens": 9,
            "responseMimeType": "application/json",
            "responseSchema": {"type": "OBJECT"},
            "thinkingConfig": {"thinkingBudget": 20000},
            "stopSequences": ["END"],
            "candidateCount": 1,
        },
        "safetySettings": [],
    },
}
"""Of each dialect a request with most of what there is."""

TALK = {
    "chat": {"messages": [{"role": "user", "content": "?"}]},
    "responses": {"input": "?"},
    "messages": {"messages": [{"role": "user", "content": "?"}]},
    "gemini": {"contents": [{"parts": [{"text": "?"}]}]},
}
