"""Requests of agents: how each API's codec reads them, which it refuses, and their routes."""

from __future__ import annotations

import pytest
from support.agent_apis import PIXEL, RICH, TALK, read, reply

from pytest_agentbench.models.apis.base import ITEMS, RequestRefused, Route
from pytest_agentbench.models.apis.choice import AGENT_APIS, find_route
from pytest_agentbench.models.apis.translation import translate


def call(call_id: str, name: str, arguments: str) -> dict:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def image(url: str) -> dict:
    return {"type": "image_url", "image_url": {"url": url}}


CUSTOM = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def test_a_chat_request_is_read():
    asked = read("chat", RICH["chat"])
    assert asked.messages[1]["tool_calls"] == [call("c", "p", '{"input": "x"}')]
    assert [tool["function"] for tool in asked.tools] == [
        {"name": "f"},
        {"name": "p", "description": "d", "parameters": CUSTOM},
    ]
    assert (asked.server_tools, asked.lost, asked.ignored) == (("mcp",), ("grammars of custom tools",), ())
    told = reply({"role": "assistant", "content": None, "tool_calls": [call("d", "p", '{"input": "hi"}')]})
    custom = {"id": "d", "type": "custom", "custom": {"name": "p", "input": "hi"}}
    assert AGENT_APIS["chat"].write(told, asked)["choices"][0]["message"]["tool_calls"] == [custom]
    events = b"".join(AGENT_APIS["chat"].events(told, asked))
    assert b'"custom":{"name":"p","input":""}' in events


def test_a_responses_request_is_read():
    asked = read("responses", RICH["responses"])
    assert asked.messages == [
        {"role": "system", "content": "i"},
        {"role": "system", "content": "d"},
        {"role": "user", "content": [{"type": "text", "text": "?"}, image(PIXEL)]},
        {
            "role": "assistant",
            "content": "a",
            "reasoning_content": "hm",
            "tool_calls": [
                call("1", "ns__f", "{}"),
                call("2", "p", '{"input": "x"}'),
                call("3", "local_shell", '{"command": ["ls"]}'),
            ],
            ITEMS: RICH["responses"]["input"][2:7],
        },
        {"role": "tool", "tool_call_id": "1", "content": ""},
        {"role": "tool", "tool_call_id": "2", "content": "y"},
        {"role": "tool", "tool_call_id": "3", "content": "z"},
        {"role": "user", "content": [image(PIXEL)]},
    ]
    assert [tool["function"]["name"] for tool in asked.tools] == ["f", "p", "local_shell", "ns__f"]
    assert asked.parameters == {
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
        "verbosity": "low",
        "reasoning_effort": "low",
    }
    assert (asked.server_tools, asked.ignored) == (("web_search",), ("user",))
    assert asked.lost == (
        "places of images in results",
        "web_search_call items",
        "grammars of custom tools",
        "namespaces of tools",
    )


def test_responses_have_calls_of_the_agents_own_tools():
    asked = read("responses", RICH["responses"])
    calls = [
        call("1", "ns__f", "{}"),
        call("2", "p", '{"input": "x"}'),
        call("3", "local_shell", '{"command": ["ls"]}'),
    ]
    told = reply({"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls")
    items = AGENT_APIS["responses"].write(told, asked)["output"]
    wanted = [
        {"type": "function_call", "call_id": "1", "namespace": "ns", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "2", "name": "p", "input": "x"},
        {"type": "local_shell_call", "call_id": "3", "action": {"type": "exec", "env": {}, "command": ["ls"]}},
    ]
    assert [{key: item[key] for key in each} for item, each in zip(items, wanted, strict=True)] == wanted
    [answered] = read("responses", {**RICH["responses"], "input": items}).messages[1:]
    assert answered["tool_calls"] == calls


def test_a_messages_request_is_read():
    asked = read("messages", RICH["messages"])
    pixel = image("data:image/png;base64,AA==")
    assert asked.messages == [
        {"role": "system", "content": "s"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "?"}, pixel, image("https://example.org/a.png")],
        },
        {
            "role": "assistant",
            "content": "a",
            "reasoning_content": "hm",
            "tool_calls": [call("1", "f", '{"x": 1}'), call("2", "f", "{}")],
        },
        {"role": "tool", "tool_call_id": "1", "content": "[error] no"},
        {"role": "tool", "tool_call_id": "2", "content": "seen"},
        {"role": "user", "content": [pixel]},
        {"role": "user", "content": "go on"},
    ]
    assert asked.parameters == {
        "max_tokens": 9,
        "stop": ["END"],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}},
        "reasoning_effort": "low",
    }
    assert (asked.server_tools, asked.ignored) == (("web_search_20250305",), ("metadata",))
    assert asked.lost == (
        *("cache_control", "citations", "server_tool_use blocks"),
        *("marks of failed results", "places of images in results", "thinking budget"),
    )


def test_a_gemini_request_is_read():
    asked = read("gemini", RICH["gemini"])
    assert asked.messages == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "?"}, image("data:image/png;base64,AA==")]},
        {
            "role": "assistant",
            "content": "a",
            "reasoning_content": "hm",
            "tool_calls": [call("call_1_2", "f", '{"x": 1}'), call("call_1_3", "f", "{}"), call("own", "g", "{}")],
        },
        {"role": "tool", "tool_call_id": "call_1_2", "content": "one"},
        {"role": "tool", "tool_call_id": "call_1_3", "content": "[error] two"},
        {"role": "tool", "tool_call_id": "own", "content": '{"a": 1}'},
        {"role": "user", "content": "go on"},
    ]
    schema = {"type": "object", "properties": {"x": {"type": ["string", "null"]}}}
    assert [tool["function"] for tool in asked.tools] == [
        {"name": "f", "parameters": schema},
        {"name": "g", "parameters": {"type": "object"}},
    ]
    assert asked.parameters == {
        "max_tokens": 9,
        "stop": ["END"],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}},
        "reasoning_effort": "high",
    }
    assert (asked.server_tools, asked.lost, asked.ignored) == (
        ("googleSearch",),
        ("marks of failed results", "thinking budget"),
        ("safetySettings",),
    )


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        *(("responses", field, "x") for field in ("previous_response_id", "conversation", "background", "prompt")),
        *(("messages", field, [{}]) for field in ("container", "mcp_servers")),
        *(("gemini", field, "x") for field in ("cachedContent", "cached_content")),
        ("chat", "messages", [{"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}]),
        ("messages", "messages", [{"role": "user", "content": [{"type": "image", "source": {"file_id": "x"}}]}]),
        ("responses", "input", [{"type": "item_reference", "id": "x"}]),
        ("responses", "input", [{"role": "user", "content": [{"type": "input_image", "file_id": "x"}]}]),
    ],
)
def test_a_field_that_refers_to_stored_data_is_refused_by_its_name(name, field, value):
    with pytest.raises(RequestRefused, match="is not supported here") as refused:
        read(name, {**TALK[name], field: value})
    assert (refused.value.status, refused.value.code) == (400, "unsupported_parameter")
    assert read(name, {**TALK[name], **({field: None} if field not in TALK[name] else {})}).messages


@pytest.mark.parametrize(
    ("name", "more", "code"),
    [
        ("chat", {"n": 2}, "unsupported_parameter"),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "unsupported_content"),
        ("gemini", {"generationConfig": {"candidateCount": 2}}, "unsupported_parameter"),
        ("gemini", {"generationConfig": {"responseModalities": ["AUDIO"]}}, "unsupported_parameter"),
        ("responses", {"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "unsupported_content"),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "unsupported_content"),
        (
            "gemini",
            {"contents": [{"parts": [{"inlineData": {"mimeType": "audio/wav", "data": ""}}]}]},
            "unsupported_content",
        ),
    ],
)
def test_a_request_without_a_translation_is_read_with_its_refusal(name, more, code):
    refusal = read(name, {**TALK[name], **more}).refusal
    assert (refusal.status, refusal.code) == (400, code)


@pytest.mark.parametrize(
    ("method", "target", "headers", "route"),
    [
        ("POST", "/v1/chat/completions", {}, Route("chat", "ask")),
        ("POST", "/r/TOKEN/v1/chat/completions/", {}, Route("chat", "ask", token="TOKEN")),
        ("POST", "/r/TOKEN/responses", {}, Route("responses", "ask", token="TOKEN")),
        ("POST", "/any/prefix/v1/responses?beta=true", {}, Route("responses", "ask")),
        ("POST", "/v1/messages/count_tokens", {}, Route("messages", "count")),
        ("POST", "/v1/responses/count_tokens", {}, Route("responses", "unknown")),
        ("POST", "/v1/threads/t/messages", {}, Route("messages", "unknown")),
        ("GET", "/v1/responses/resp_1", {}, Route("responses", "unknown")),
        ("POST", "/v1beta/models/a%2Fb:generateContent", {}, Route("gemini", "ask", "a/b")),
        ("POST", "/models/m:countTokens", {}, Route("gemini", "count", "m")),
        ("POST", "/v1/models/m:streamGenerateContent", {}, Route("gemini", "ask", "m", as_list=True)),
        ("POST", "/v1beta/models/m:streamGenerateContent?alt=sse", {}, Route("gemini", "ask", "m", stream=True)),
        ("POST", "/v1beta/models/m:embedContent", {}, Route("gemini", "unknown")),
        ("GET", "/v1/models", {}, Route("chat", "models")),
        ("GET", "/v1/models/m", {"anthropic-version": "2023-06-01"}, Route("messages", "models", "m")),
        ("GET", "/v1beta/models", {}, Route("gemini", "models")),
        ("HEAD", "/r/TOKEN", {}, Route("chat", "ping", token="TOKEN")),
        ("HEAD", "/", {}, Route("chat", "ping")),
        ("GET", "/", {}, Route("chat", "unknown")),
        ("POST", "/v1/embeddings", {}, Route("chat", "unknown")),
    ],
)
def test_a_path_has_its_route(method, target, headers, route):
    assert find_route(method, target, headers) == route


def test_a_translated_request_lacks_fields_of_its_own_provider():
    body = {**RICH["responses"], "input": RICH["responses"]["input"][1:4]}
    asked = translate(read("responses", body), "chat")
    assert asked.messages[-1] == {"role": "assistant", "content": "a"}
    asked = read("messages", {**TALK["messages"], "top_k": 64})
    assert [translate(asked, wire).parameters for wire in ("chat", "gemini")] == [{}, {"top_k": 64}]
    assert translate(asked, "chat").lost == ("top_k",)
    with pytest.raises(RequestRefused, match="'n' is not supported"):
        translate(read("chat", {**TALK["chat"], "n": 2}), "messages")
