"""Responses and Messages: what is written of a chat, what is read as one, and what goes back as it came."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_agentbench.errors import ConfigError, ProviderError
from pytest_agentbench.models.apis.choice import ENDPOINT_APIS, find_endpoint_api
from pytest_agentbench.models.apis.messages import write_request as write_message
from pytest_agentbench.models.apis.streams import open_reader
from pytest_agentbench.models.batches.services import find_kind, open_service, require_kind
from pytest_agentbench.models.cassettes import TapedClient, _write_answer
from pytest_agentbench.models.connections import HttpConnection
from pytest_agentbench.models.failures import RequestFailed
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.prompt_cache import ask_for_cache
from pytest_agentbench.models.replies import read_reply
from pytest_agentbench.models.spelling import Spelling, compose_request, dialect_of
from pytest_agentbench.models.streaming import ask_for_stream
from pytest_agentbench.records.case import Dialect, Model, PromptCache

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 + 2?"}]
TOOL = {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}
URL = "http://127.0.0.1:1/v1"


def model(api: str, **fields) -> Model:
    return Model(model_id="m", requested_model="m", base_url=URL, api=api, **fields)


def write(api: str, *messages: dict, tools: tuple = (), entry: Model | None = None, **parameters) -> dict:
    """The body of a request."""
    asked = entry or model(api)
    spelling = Spelling(dialect_of(asked), asked)
    composed = compose_request(asked, [*ASKED, *messages], tools, parameters)
    return spelling.write(spelling.spell(composed)[0])


def read(api: str, body: dict) -> ChatReply:
    return read_reply(json.dumps(body).encode(), "application/json", model(api), attempts=1, seconds=0.1)


def response(*output: dict, **fields) -> dict:
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return {"id": "resp_1", "model": "m-1", "status": "completed", "output": [*output], "usage": usage, **fields}


def message(*content: dict, stop_reason: str = "end_turn", **fields) -> dict:
    usage = {"input_tokens": 10, "output_tokens": 5}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": [*content],
        "stop_reason": stop_reason,
        "usage": usage,
        **fields,
    }


def text_item(text: str, **fields) -> dict:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **fields}


def call_item(name: str = "add", arguments: str = "{}", **fields) -> dict:
    return {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "arguments": arguments, **fields}


REASONED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SEALED"}
THOUGHT = {"type": "thinking", "thinking": "two and two", "signature": "SIG"}
SEALED = {"type": "redacted_thinking", "data": "abc"}
USED = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2}}


def test_a_chat_as_responses_has_it():
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


def test_a_chat_as_messages_has_it():
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
def test_parameters_go_by_the_names_of_the_protocol(asked, responses, messages):
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
def test_which_tool_is_called(asked, responses, messages):
    assert write("responses", tools=(TOOL,), **asked).get("tool_choice") == responses
    made = write("messages", tools=(TOOL,), **asked)
    assert made.get("tool_choice") == messages
    assert "parallel_tool_calls" not in made


def test_tools_of_the_endpoint_s_own_go_as_they_are():
    own = {"type": "web_search_20250305", "name": "web_search"}
    bare = {"type": "function", "function": {"name": "now"}}
    assert write("responses", tools=(own,))["tools"] == [own]
    assert write("messages", tools=(own, bare))["tools"] == [
        own,
        {"name": "now", "input_schema": {"type": "object", "properties": {}}},
    ]


def test_what_a_protocol_has_no_field_for_is_left_out_and_told():
    for api in ("responses", "messages"):
        asked = model(api, parameters={"seed": 1})
        request, adapted = Spelling(dialect_of(asked), asked).spell(compose_request(asked, ASKED, (), {}))
        assert (adapted, "seed" in request) == (("seed dropped",), False)
    kept = model("messages", parameters={"seed": 1}, dialect_overrides=Dialect(ignored=()))
    assert write("messages", entry=kept)["seed"] == 1


def test_calls_of_another_model_are_written_anew():
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


def test_a_message_that_says_nothing_is_not_sent():
    blank = {"role": "assistant", "content": None}
    assert len(write("messages", blank)["messages"]) == 1
    assert len(write("responses", blank)["input"]) == 2
    assert write("messages", {"role": "assistant", "content": "4"})["messages"][1] == {
        "role": "assistant",
        "content": "4",
    }


def test_images_and_documents_go_along():
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
def test_only_what_is_written_out_is_data(url):
    asked = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    [part] = write("messages", asked)["messages"][1]["content"]
    assert part["source"] == {"type": "url", "url": url}


def test_a_conversation_that_cannot_be_written_says_so():
    with pytest.raises(ProviderError, match="cannot be written for `api: messages`") as caught:
        write("messages", {"role": "tool", "content": "no call"})
    assert (caught.value.code, caught.value.reason) == ("bad_request", "rejected")


def test_items_of_a_response_go_back_as_they_came():
    body = response(REASONED, call_item(arguments='{"a": 2}'), text_item("a moment", phase="commentary"))
    reply = read("responses", body)
    [call] = reply.tool_calls
    assert (call.id, call.name, call.arguments) == ("call_1", "add", {"a": 2})
    assert (reply.content, reply.finish_reason, reply.end) == ("a moment", "tool_calls", None)
    result = {"role": "tool", "tool_call_id": "call_1", "content": "4"}
    assert write("responses", reply.message, result)["input"][2:] == [
        *body["output"],
        {"type": "function_call_output", "call_id": "call_1", "output": "4"},
    ]
    # A call that an agent has taken out has no answer, and is not sent
    trimmed = {**reply.message, "tool_calls": []}
    assert write("responses", trimmed)["input"][2:] == [body["output"][0], body["output"][2]]


def test_blocks_of_a_message_go_back_as_they_came():
    body = message(THOUGHT, SEALED, {"type": "text", "text": "I add."}, USED, stop_reason="tool_use")
    reply = read("messages", body)
    [call] = reply.tool_calls
    assert (call.id, call.name, call.arguments) == ("toolu_1", "add", {"a": 2})
    assert (reply.content, reply.thoughts, reply.finish_reason) == ("I add.", "two and two", "tool_calls")
    assert write("messages", reply.message)["messages"][1] == {"role": "assistant", "content": body["content"]}
    trimmed = {**reply.message, "tool_calls": []}
    assert write("messages", trimmed)["messages"][1]["content"] == body["content"][:3]


def test_a_message_of_text_and_calls_alone_is_kept_once():
    reply = read("messages", message({"type": "text", "text": "I add."}, USED, stop_reason="tool_use"))
    assert reply.message.keys() == {"role", "content", "tool_calls"}


def test_calls_without_ids_get_some():
    reply = read("responses", response(call_item(call_id=None)))
    assert write("responses", reply.message)["input"][2]["call_id"] == reply.tool_calls[0].id
    reply = read("messages", message({**USED, "id": None}, THOUGHT, stop_reason="tool_use"))
    [used] = write("messages", reply.message)["messages"][1]["content"]
    assert used["id"] == reply.tool_calls[0].id


@pytest.mark.parametrize("body", [call_item(name=None), {**USED, "name": None}], ids=["responses", "messages"])
def test_a_call_without_a_name_is_malformed(body):
    api, whole = ("responses", response(body)) if "call_id" in body else ("messages", message(body))
    with pytest.raises(RequestFailed, match="its tool calls are malformed"):
        read(api, whole)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
JSON = st.dictionaries(TEXT, st.one_of(st.integers(-5, 5), TEXT, st.booleans(), st.none(), st.lists(TEXT)), max_size=3)
BLOCKS = st.lists(
    st.one_of(
        st.builds(lambda text: {"type": "text", "text": text}, TEXT),
        st.builds(lambda text, sign: {"type": "thinking", "thinking": text, "signature": sign}, TEXT, TEXT),
        st.builds(lambda data: {"type": "redacted_thinking", "data": data}, TEXT),
        st.builds(lambda name, given: {"type": "tool_use", "name": name, "input": given}, TEXT, JSON),
    ),
    min_size=1,
    max_size=5,
).map(lambda blocks: [{**b, "id": f"t{n}"} if b["type"] == "tool_use" else b for n, b in enumerate(blocks)])


def replay(api: str, reply: ChatReply) -> ChatReply:
    """The reply as a cassette keeps it and gives it out."""
    answer = _write_answer(reply)
    tape = type("Tape", (), {"path": "a.yaml"})()
    return TapedClient(model(api), tape, lambda: None)._read_answer(type(answer)(**answer.model_dump()), 0.0)


FEW = settings(max_examples=20)


@FEW
@given(BLOCKS)
def test_any_blocks_go_back_as_they_came(blocks):
    calls = [block for block in blocks if block["type"] == "tool_use"]
    reply = read("messages", message(*blocks, stop_reason="tool_use" if calls else "end_turn"))
    for each in (reply, replay("messages", reply)):
        assert [(call.id, call.name, call.arguments) for call in each.tool_calls] == [
            (call["id"], call["name"], call["input"]) for call in calls
        ]
        sent = write("messages", each.message)["messages"][1]["content"]
        assert (sent if isinstance(sent, list) else [{"type": "text", "text": sent}]) == blocks


@FEW
@given(st.lists(st.sampled_from([REASONED, text_item("4"), {"type": "web_search_call", "id": "ws"}]), max_size=4), JSON)
def test_any_items_go_back_as_they_came(items, given_arguments):
    body = response(*items, call_item(arguments=json.dumps(given_arguments)))
    reply = read("responses", body)
    for each in (reply, replay("responses", reply)):
        assert [call.arguments for call in each.tool_calls] == [given_arguments]
        assert write("responses", each.message)["input"][2:] == body["output"]


def test_thoughts_and_refusals_are_read():
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "two"}]}
    open_thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "and two"}], "summary": []}
    reply = read("responses", response(thought, open_thought, text_item("4")))
    assert (reply.content, reply.thoughts, reply.end) == ("4", "two\nand two", "answered")
    refusal = {"type": "message", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    reply = read("responses", response(refusal))
    assert (reply.content, reply.end) == ("I cannot.", "refused")
    reply = read("responses", response(text_item("Let me see."), text_item("4", phase="final_answer")))
    assert reply.content == "4"
    assert read("responses", response(text_item("a"), text_item("b"))).content == "a\nb"


@pytest.mark.parametrize(
    ("body", "end", "finish"),
    [
        (response(), "empty", "stop"),
        (response(text_item("4"), status=None), "answered", "stop"),
        (response(text_item("4"), status="in_progress"), "answered", "in_progress"),
        (response(text_item("4"), status="incomplete", incomplete_details=None), "answered", "incomplete"),
        (response(text_item("4"), incomplete_details={"reason": "content_filter"}), "answered", "stop"),
        (response(status="incomplete", incomplete_details={"reason": "max_output_tokens"}), "length", "length"),
        (
            response(call_item(status="incomplete"), status="incomplete", incomplete_details={"reason": "steered"}),
            "empty",
            "steered",
        ),
        (
            response(call_item(status="completed"), status="incomplete", incomplete_details={"reason": "max_messages"}),
            None,
            "max_messages",
        ),
        (
            response(status="incomplete", incomplete_details={"reason": "content_filter"}),
            "filtered",
            "content_filter",
        ),
    ],
)
def test_a_response_ends_by_its_status(body, end, finish):
    reply = read("responses", body)
    assert (reply.end, reply.finish_reason) == (end, finish)


@pytest.mark.parametrize(
    ("body", "end", "finish"),
    [
        (message({"type": "text", "text": "4"}), "answered", "stop"),
        (message({"type": "text", "text": "4"}, stop_reason="stop_sequence"), "answered", "stop"),
        (message({"type": "text", "text": "4"}, stop_reason="max_tokens"), "length", "length"),
        # Cut off in the middle of a call: it is none
        (message({"type": "text", "text": "4"}, USED, stop_reason="max_tokens"), "length", "length"),
        (message(USED, {"type": "text", "text": "4"}, stop_reason="max_tokens"), None, "length"),
        (message(USED, {**USED, "id": "b"}, stop_reason="max_tokens"), None, "length"),
        (message(stop_reason="refusal"), "filtered", "refusal"),
        (message(stop_reason="model_context_window_exceeded"), "context_exceeded", "model_context_window_exceeded"),
        (message(stop_reason="of_tomorrow"), "empty", "of_tomorrow"),
    ],
)
def test_a_message_ends_by_its_stop_reason(body, end, finish):
    reply = read("messages", body)
    assert (reply.end, reply.finish_reason) == (end, finish)
    assert len(reply.tool_calls) == (end is None)


def test_a_refusal_names_its_category():
    reply = read("messages", message(stop_reason="refusal", stop_details={"type": "refusal", "category": "bio"}))
    assert (reply.detail.side, reply.detail.categories) == ("output", ("bio",))
    assert read("messages", message(stop_reason="refusal", stop_details={"category": None})).detail.categories == ()


@pytest.mark.parametrize(
    ("api", "body", "reason", "retryable"),
    [
        ("messages", message(stop_reason="pause_turn"), "rejected", False),
        ("messages", {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, "provider_error", True),
        ("messages", {"error": {"type": "authentication_error", "message": "x"}}, "authentication", False),
        ("messages", {"error": {"type": "not_found_error", "message": "x"}}, "rejected", False),
        ("messages", response(), "provider_error", True),
        ("messages", message("text"), "provider_error", True),
        ("responses", message(), "provider_error", True),
        ("responses", response("text"), "provider_error", True),
        ("responses", response(status="failed"), "provider_error", True),
        (
            "responses",
            response(status="failed", error={"code": "server_error", "message": "x"}),
            "provider_error",
            True,
        ),
        ("responses", response(status="failed", error={"code": "invalid_image", "message": "x"}), "rejected", False),
        ("responses", response(status="failed", error={"code": "invalid_prompt", "message": "x"}), "filtered", False),
        ("responses", response(status="failed", error={"code": "bio_policy", "message": "x"}), "filtered", False),
        ("responses", response(status="failed", error={"code": "of_tomorrow", "message": "x"}), "provider_error", True),
    ],
)
def test_what_is_no_answer_fails_by_its_reason(api, body, reason, retryable):
    with pytest.raises(RequestFailed) as caught:
        read(api, body)
    assert (caught.value.reason, caught.value.retryable) == (reason, retryable)


def test_a_limited_rate_is_told_as_one():
    with pytest.raises(RequestFailed) as caught:
        read("responses", response(status="failed", error={"code": "rate_limit_exceeded", "message": "x"}))
    assert (caught.value.code, caught.value.retryable) == ("rate_limited", True)


def test_a_reply_of_another_protocol_is_named():
    with pytest.raises(RequestFailed, match="no response: it has no output"):
        read("responses", {"choices": []})
    with pytest.raises(RequestFailed, match="no message of Anthropic's: it has no content"):
        read("messages", {"choices": []})


def test_tokens_are_counted_as_each_protocol_has_them():
    used = read(
        "messages",
        message(
            usage={
                "input_tokens": 500,
                "output_tokens": 5,
                "cache_creation_input_tokens": 1500,
                "cache_read_input_tokens": 1000,
                "cache_creation": {"ephemeral_5m_input_tokens": 1100, "ephemeral_1h_input_tokens": 400},
            }
        ),
    ).usage
    assert (used.input_tokens, used.output_tokens, used.total_tokens) == (3000, 5, 3005)
    assert (used.cached_tokens, used.cache_write_tokens, used.cache_write_1h_tokens) == (1000, 1500, 400)
    used = read(
        "responses",
        response(
            usage={
                "input_tokens": 30,
                "input_tokens_details": {"cached_tokens": 10},
                "output_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 15},
                "total_tokens": 50,
            }
        ),
    ).usage
    assert (used.input_tokens, used.cached_tokens, used.output_tokens, used.reasoning_tokens) == (30, 10, 20, 15)


def make_request(asked: Model, key: str = "sk-1", **headers: str):
    async def main():
        connection = HttpConnection(asked, key, headers, dialect_of(asked).auth_header)
        try:
            return await connection.make_request(b"{}", {})
        finally:
            await connection.close()

    return asyncio.run(main())


def test_requests_go_where_the_protocol_has_them_with_its_headers():
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


def test_a_final_answer_keeps_its_tools_where_messages_are_asked():
    assert dialect_of(model("messages")).final_without_tools is False
    assert dialect_of(model("responses", dialect="deepseek")).json_schema is True


def test_scripted_models_speak_chat_completions():
    assert find_endpoint_api(model("messages", scripted=True)) is ENDPOINT_APIS["chat"]
    assert find_endpoint_api(model("messages")) is ENDPOINT_APIS["messages"]


def join(api: str, *events: dict, size: int = 1 << 20) -> dict:
    body, reader = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events), open_reader(api)
    for at in range(0, len(body), size):
        reader.feed(body[at : at + size])
    return json.loads(reader.finish(200, {}).content)


def cut(text: str) -> list[str]:
    return [text[:1], text[1:3], text[3:]]


def stream(body: dict) -> list[dict]:
    """The events of a message."""
    events = [{"type": "message_start", "message": {**body, "content": [], "stop_reason": None}}, {"type": "ping"}]
    empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}}
    for index, block in enumerate(body["content"]):
        kind = block["type"]
        events.append(
            {"type": "content_block_start", "index": index, "content_block": {**block, **empty.get(kind, {})}}
        )
        deltas = {
            "text": lambda b: [{"type": "text_delta", "text": piece} for piece in cut(b["text"])],
            "thinking": lambda b: [
                *({"type": "thinking_delta", "thinking": piece} for piece in cut(b["thinking"])),
                {"type": "signature_delta", "signature": b["signature"]},
            ],
            "tool_use": lambda b: [
                {"type": "input_json_delta", "partial_json": piece} for piece in cut(json.dumps(b["input"]))
            ],
        }.get(kind, lambda b: [])
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas(block)]
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": body["stop_reason"]}
    return [*events, {"type": "message_delta", "delta": ended, "usage": body["usage"]}, {"type": "message_stop"}]


@FEW
@given(BLOCKS, st.integers(1, 40))
def test_a_message_in_events_is_the_same_as_a_whole_one(blocks, size):
    body = message(*blocks, stop_reason="tool_use")
    assert join("messages", *stream(body), size=size) == body


def test_a_response_in_events_is_its_last():
    whole = response(REASONED, text_item("4"))
    for kind in ("completed", "incomplete", "failed"):
        events = [{"type": "response.created", "response": response()}, {"type": "response.output_text.delta"}]
        assert join("responses", *events, {"type": f"response.{kind}", "response": whole}) == whole


def test_pieces_of_streams_have_times():
    reader = open_reader("messages")
    for event in stream(message(THOUGHT, {"type": "text", "text": "four"}))[:-1]:
        reader.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    assert (reader.complete, reader.ended) == (True, False)
    times = reader.finish(200, {}).times
    assert 0 < times.first < times.first_text <= times.last
    reader = open_reader("responses")
    for event in ({"type": "response.reasoning_summary_text.delta"}, {"type": "response.output_text.delta"}):
        reader.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    reader.add({"type": "response.completed", "response": response()}, 9.0)
    times = reader.finish(200, {}).times
    assert 0 < times.first < times.first_text == times.last < 9


def test_a_stream_may_break_or_fail():
    for api, unfinished in (("responses", "response.completed"), ("messages", "message_stop")):
        with pytest.raises(RequestFailed, match=unfinished):
            join(api, {"type": "ping"})
    said = {"type": "overloaded_error", "message": "x"}
    with pytest.raises(RequestFailed, match="HTTP 529: x"):
        read("messages", join("messages", *stream(message(THOUGHT))[:4], {"type": "error", "error": said}))
    with pytest.raises(RequestFailed, match="HTTP 429: x"):
        read("responses", join("responses", {"type": "error", "code": "rate_limit_exceeded", "message": "x"}))


def test_events_of_any_shape_are_joined_to_something():
    odd = [
        {"type": "message_start", "message": "no"},
        {"type": "content_block_start", "index": "no", "content_block": {}},
        {"type": "content_block_start", "index": 0, "content_block": "no"},
        {"type": "content_block_delta", "index": 0, "delta": "no"},
        {"type": "content_block_delta", "index": "no", "delta": {"type": "text_delta"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "of_tomorrow"}},
        {"type": "message_delta", "delta": "no"},
        {"type": "message_delta", "delta": {}, "usage": "no"},
    ]
    whole = message({"type": "text", "text": "four"})
    assert join("messages", *odd, *stream(whole)) == whole
    late = {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "!"}}
    [_, block] = join("messages", *stream(whole)[:-1], late)["content"]
    assert block == {"text": "!"}
    assert (
        join(
            "responses",
            {"type": "response.completed", "response": "no"},
            {"type": "response.completed", "response": whole},
        )
        == whole
    )


def test_arguments_that_are_cut_off_in_a_stream_are_no_call():
    events = [
        {"type": "message_start", "message": message(stop_reason="")},
        {"type": "content_block_start", "index": 0, "content_block": {**USED, "input": {}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"a'}},
    ]
    ended = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": None}}
    reply = read("messages", join("messages", *events, ended))
    assert (reply.tool_calls, reply.end, reply.usage.output_tokens) == ((), "length", 5)
    reader = open_reader("messages")
    for event in (*events, {**ended, "delta": {"stop_reason": "tool_use"}}):
        reader.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    assert reader.finish(200, {}).content == b"events whose pieces are no JSON together"


def test_citations_are_joined_to_their_text():
    events = stream(message({"type": "text", "text": "four"}))
    cited = {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"at": 1}}}
    [block] = join("messages", *events[:4], cited, *events[4:])["content"]
    assert block == {"type": "text", "text": "four", "citations": [{"at": 1}]}


def test_each_protocol_asks_for_a_stream_in_its_own_way():
    asked = {api: json.loads(ask_for_stream(b'{"model":"m"}', ENDPOINT_APIS[api].stream)) for api in ENDPOINT_APIS}
    assert asked == {
        "chat": {"model": "m", "stream": True, "stream_options": {"include_usage": True}},
        "responses": {"model": "m", "stream": True},
        "messages": {"model": "m", "stream": True},
        "gemini": {"model": "m"},
    }


@pytest.mark.parametrize(
    ("api", "batch", "dialect", "kind"),
    [
        ("chat", "gemini", "auto", "gemini"),
        ("responses", "openai", "auto", "openai"),
        ("responses", "auto", "azure", "openai"),
        ("responses", "auto", "anthropic", None),
        ("responses", "gemini", "auto", None),
        ("messages", "anthropic", "auto", "anthropic"),
        ("messages", "openai", "auto", None),
    ],
)
def test_batches_are_of_requests_in_the_model_s_protocol(api, batch, dialect, kind):
    asked = model(api, batch=batch, dialect=dialect)
    assert find_kind(asked) == kind
    if kind is None:
        wanted = {"responses": "openai", "messages": "anthropic"}[api]
        with pytest.raises(ConfigError, match=f"say batch: {wanted} where it speaks that"):
            require_kind(asked)


def test_lines_of_batches_are_requests_as_they_are():
    body = {"model": "m", "input": []}
    line = json.loads(open_service("openai", model("responses"), "", {}).write_line("a-1", body))
    assert (line["url"], line["body"]) == ("/v1/responses", body)
    chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "seed": 1, "metadata": {"a": "b"}}
    assert json.loads(open_service("openai", model("chat"), "", {}).write_line("a-1", chat))["url"] == (
        "/v1/chat/completions"
    )
    body = {"model": "m", "messages": [], "max_tokens": 5}
    line = json.loads(open_service("anthropic", model("messages"), "", {}).write_line("a-1", body))
    assert line["params"] == body
    line = json.loads(open_service("anthropic", model("chat"), "", {}).write_line("a-1", chat))
    assert line["params"] == {"model": "m", "messages": chat["messages"], "max_tokens": 4096}


def test_a_line_of_google_s_batch_has_all_instructions_apart_from_the_conversation():
    roles = ("system", "developer", "user", "assistant", "user")
    body = {"messages": [{"role": role, "content": f"{number}"} for number, role in enumerate(roles)]}
    line = json.loads(open_service("gemini", model("chat"), "", {}).write_line("a-1", body))
    assert line["request"] == {
        "contents": [
            {"role": role, "parts": [{"text": f"{number}"}]}
            for number, role in ((2, "user"), (3, "model"), (4, "user"))
        ],
        "systemInstruction": {"parts": [{"text": "0\n\n1"}]},
    }


def test_what_is_to_be_cached_is_marked_where_it_stands() -> None:
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
