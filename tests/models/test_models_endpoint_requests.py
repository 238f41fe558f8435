"""Requests to endpoints in Responses and Messages: fields, tools, content, and addresses."""

from __future__ import annotations

import asyncio
import json

import pytest
from support.endpoint_apis import (
    ASKED,
    FORM,
    SCHEMA,
    TOOL,
    URL,
    model,
    write,
)

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.apis.choice import ENDPOINT_APIS, find_endpoint_api
from pytest_agentbench.models.apis.messages import write_request as write_message
from pytest_agentbench.models.connections import HttpConnection
from pytest_agentbench.models.prompt_cache import ask_for_cache
from pytest_agentbench.models.spelling import Spelling, compose_request, dialect_of
from pytest_agentbench.models.streaming import ask_for_stream
from pytest_agentbench.records.case import Dialect, Model, PromptCache


def test_a_chat_is_written_as_responses():
    assert write("responses", tools=(TOOL,), max_tokens=7, reasoning_effort="low", tool_choice="required") == {
        "model": "m",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "input": [
            {"type": "message", "role": "system", "content": "Be brief."},
            {"type": "message", "role": "user", "content": "What is 2 + 2?"},
        ],
        "max_output_tokens": 7,
        "tools": [{"type": "function", "strict": False, **TOOL["function"]}],
        "tool_choice": "required",
        "reasoning": {"effort": "low"},
    }


def test_a_chat_is_written_as_messages():
    assert write("messages", tools=(TOOL,), max_tokens=7, reasoning_effort="low", tool_choice="required") == {
        "model": "m",
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "What is 2 + 2?"}],
        "max_tokens": 7,
        "tools": [{"name": "add", "description": "Add.", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "any"},
        "output_config": {"effort": "low"},
    }


@pytest.mark.parametrize(
    ("asked", "responses", "messages"),
    [
        ({"max_completion_tokens": 9}, {"max_output_tokens": 9}, {"max_tokens": 9}),
        ({}, {"max_output_tokens": None}, {"max_tokens": 4096}),
        ({"thinking": {"type": "enabled", "budget_tokens": 1000}}, {}, {"max_tokens": 5096}),
        ({"max_output_tokens": 9}, {"max_output_tokens": 9}, {}),
        ({"stop": "END"}, {"stop": None}, {"stop_sequences": ["END"], "stop": None}),
        ({"stop": ["A", "B"]}, {}, {"stop_sequences": ["A", "B"]}),
        (
            {"response_format": FORM},
            {"text": {"format": {"type": "json_schema", **FORM["json_schema"]}}, "response_format": None},
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}, "response_format": None},
        ),
        (
            {"response_format": {"type": "json_object"}, "verbosity": "low"},
            {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
            {"output_config": None, "verbosity": None},
        ),
        ({"reasoning": {"effort": "high"}}, {"reasoning": {"effort": "high"}}, {"output_config": {"effort": "high"}}),
        (
            {"reasoning": {"effort": "high", "summary": "auto"}},
            {"reasoning": {"effort": "high", "summary": "auto"}},
            {},
        ),
        (
            {"output_config": {"effort": "max"}, "reasoning_effort": "low"},
            {},
            {"output_config": {"effort": "max"}},
        ),
        ({"store": True, "include": []}, {"store": True, "include": []}, {"store": None}),
        ({"seed": 1, "temperature": 0.5}, {"seed": None, "temperature": 0.5}, {"seed": None, "temperature": 0.5}),
    ],
)
def test_parameters_have_the_names_of_the_api(asked, responses, messages):
    for api, wanted in (("responses", responses), ("messages", messages)):
        found = write(api, **asked)
        assert {name: found.get(name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("asked", "responses", "messages"),
    [
        ({"tool_choice": "none"}, "none", {"type": "none"}),
        ({"tool_choice": "none", "parallel_tool_calls": False}, "none", {"type": "none"}),
        ({"tool_choice": "auto"}, "auto", {"type": "auto"}),
        ({}, None, None),
        ({"parallel_tool_calls": True}, None, None),
        ({"parallel_tool_calls": False}, None, {"type": "auto", "disable_parallel_tool_use": True}),
        (
            {"tool_choice": {"type": "function", "function": {"name": "add"}}},
            {"type": "function", "name": "add"},
            {"type": "tool", "name": "add"},
        ),
        ({"tool_choice": {"type": "any"}}, {"type": "any"}, {"type": "any"}),
    ],
)
def test_the_choice_of_a_tool_is_translated(asked, responses, messages):
    assert write("responses", tools=(TOOL,), **asked).get("tool_choice") == responses
    made = write("messages", tools=(TOOL,), **asked)
    assert made.get("tool_choice") == messages
    assert "parallel_tool_calls" not in made


def test_tools_of_the_endpoint_are_sent_unchanged():
    own = {"type": "web_search_20250305", "name": "web_search"}
    bare = {"type": "function", "function": {"name": "now"}}
    assert write("responses", tools=(own,))["tools"] == [own]
    assert write("messages", tools=(own, bare))["tools"] == [
        own,
        {"name": "now", "input_schema": {"type": "object", "properties": {}}},
    ]


def test_a_parameter_that_the_api_lacks_is_dropped_and_reported():
    for api in ("responses", "messages"):
        asked = model(api, parameters={"seed": 1})
        request, adapted = Spelling(dialect_of(asked), asked).spell(compose_request(asked, ASKED, (), {}))
        assert (adapted, "seed" in request) == (("seed dropped",), False)
    kept = model("messages", parameters={"seed": 1}, dialect_overrides=Dialect(ignored=()))
    assert write("messages", entry=kept)["seed"] == 1


def test_calls_of_another_model_are_translated():
    calls = [
        {"id": f"call_{at}", "type": "function", "function": {"name": "add", "arguments": arguments}}
        for at, arguments in enumerate(('{"a": 2}', "[1]", "{half", ""))
    ]
    said = {"role": "assistant", "content": "I add.", "tool_calls": calls}
    results = [{"role": "tool", "tool_call_id": f"call_{at}", "content": str(at)} for at in range(4)]
    last = {"role": "user", "content": "And?"}
    made = write("messages", said, *results, last)["messages"][1:]
    assert [each["role"] for each in made] == ["assistant", "user", "user"]
    assert made[0]["content"][0] == {"type": "text", "text": "I add."}
    assert [block["input"] for block in made[0]["content"][1:]] == [{"a": 2}, {}, {}, {}]
    assert made[1]["content"] == [
        {"type": "tool_result", "tool_use_id": f"call_{at}", "content": str(at)} for at in range(4)
    ]
    assert made[2] == last
    made = write("responses", said, *results)["input"][2:]
    assert made[0] == {"type": "message", "role": "assistant", "content": "I add."}
    assert made[1] == {"type": "function_call", "call_id": "call_0", "name": "add", "arguments": '{"a": 2}'}
    assert made[5:] == [{"type": "function_call_output", "call_id": f"call_{at}", "output": str(at)} for at in range(4)]
    again = {"role": "assistant", "content": None, "tool_calls": calls[:1]}
    first, second = write("messages", said, results[0], again, results[1])["messages"][2::2]
    assert (first["content"][0]["content"], second["content"][0]["content"]) == ("0", "1")


def test_an_empty_message_is_not_sent():
    blank = {"role": "assistant", "content": None}
    assert len(write("messages", blank)["messages"]) == 1
    assert len(write("responses", blank)["input"]) == 2
    assert write("messages", {"role": "assistant", "content": "4"})["messages"][1] == {
        "role": "assistant",
        "content": "4",
    }


def test_images_and_documents_are_translated():
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,BBBB"}},
    ]
    asked = {"role": "user", "content": parts}
    assert write("messages", asked)["messages"][1]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "BBBB"},
            "title": "a.pdf",
        },
    ]
    assert write("responses", asked)["input"][2]["content"] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "detail": "low", "image_url": "data:image/png;base64,AAAA"},
        {"type": "input_image", "detail": "auto", "image_url": "https://example.org/a.png"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,BBBB"},
    ]


@pytest.mark.parametrize("url", ["https://example.org/a;base64,b", "data:text/plain,hi"])
def test_only_base64_data_urls_are_sent_as_data(url):
    asked = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    [part] = write("messages", asked)["messages"][1]["content"]
    assert part["source"] == {"type": "url", "url": url}


def test_a_conversation_that_cannot_be_translated_is_refused():
    with pytest.raises(ProviderError, match="cannot be written for `api: messages`") as caught:
        write("messages", {"role": "tool", "content": "no call"})
    assert (caught.value.code, caught.value.reason) == ("bad_request", "rejected")


def make_request(asked: Model, key: str = "sk-1", **headers: str):
    async def main():
        connection = HttpConnection(asked, key, headers, dialect_of(asked).auth_header)
        try:
            return await connection.make_request(b"{}", {})
        finally:
            await connection.close()

    return asyncio.run(main())


def test_a_request_has_the_address_and_the_headers_of_its_api():
    sent = make_request(model("messages"))
    assert (sent.method, str(sent.url)) == ("POST", f"{URL}/messages")
    # What passes through without a version has the first; which one our own requests have, their fields say
    assert (sent.headers["x-api-key"], sent.headers["anthropic-version"]) == ("sk-1", "2023-06-01")
    assert "authorization" not in sent.headers
    assert make_request(model("messages"), **{"anthropic-version": "2099-01-01"}).headers["anthropic-version"] == (
        "2099-01-01"
    )
    through = model("messages", dialect_overrides=Dialect(auth_header="Authorization"))
    assert make_request(through).headers["authorization"] == "Bearer sk-1"
    sent = make_request(model("responses"))
    assert (str(sent.url), sent.headers["authorization"]) == (f"{URL}/responses", "Bearer sk-1")
    azure = model("responses", dialect="azure")
    assert make_request(azure).headers["api-key"] == "sk-1"


def test_messages_keep_their_tools_for_the_final_answer():
    assert dialect_of(model("messages")).final_without_tools is False
    assert dialect_of(model("responses", dialect="deepseek")).json_schema is True


def test_scripted_models_are_asked_in_chat_completions():
    assert find_endpoint_api(model("messages", scripted=True)) is ENDPOINT_APIS["chat"]
    assert find_endpoint_api(model("messages")) is ENDPOINT_APIS["messages"]


def test_each_api_asks_for_a_stream_with_its_own_fields():
    asked = {api: json.loads(ask_for_stream(b'{"model":"m"}', ENDPOINT_APIS[api].stream)) for api in ENDPOINT_APIS}
    assert asked == {
        "chat": {"model": "m", "stream": True, "stream_options": {"include_usage": True}},
        "responses": {"model": "m", "stream": True},
        "messages": {"model": "m", "stream": True},
        "gemini": {"model": "m"},
    }


def test_cached_content_is_marked_in_its_place() -> None:
    entry = model("messages", prompt_cache=PromptCache())
    asked = {"messages": [{"role": "system", "content": ""}, *ASKED]}
    system, [question] = (write_message(ask_for_cache(asked, entry, Dialect()))[key] for key in ("system", "messages"))
    assert system == [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    assert question["content"] == [{"type": "text", "text": "What is 2 + 2?", "cache_control": {"type": "ephemeral"}}]
    both = [{"role": "system", "content": "Be kind."}, {"role": "system", "content": system}]
    assert write_message({"messages": both})["system"] == [{"type": "text", "text": "Be kind."}, *system]
    assert write_message({"messages": [{"role": "system", "content": "Be kind."}, *ASKED]})["system"] == (
        "Be kind.\n\nBe brief."
    )
