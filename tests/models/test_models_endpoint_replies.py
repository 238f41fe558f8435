"""Replies of endpoints in Responses and Messages: calls, ends, errors and tokens, and how replies are sent back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.endpoint_apis import (
    BLOCKS,
    FEW,
    JSON,
    REASONED,
    SEALED,
    THOUGHT,
    USED,
    call_item,
    message,
    model,
    read,
    response,
    text_item,
    write,
)

from pytest_agentbench.models.cassettes import TapedClient, _write_answer
from pytest_agentbench.models.failures import RequestFailed
from pytest_agentbench.models.messages import ChatReply


def test_items_of_a_response_are_sent_back_unchanged():
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


def test_blocks_of_a_message_are_sent_back_unchanged():
    body = message(THOUGHT, SEALED, {"type": "text", "text": "I add."}, USED, stop_reason="tool_use")
    reply = read("messages", body)
    [call] = reply.tool_calls
    assert (call.id, call.name, call.arguments) == ("toolu_1", "add", {"a": 2})
    assert (reply.content, reply.thoughts, reply.finish_reason) == ("I add.", "two and two", "tool_calls")
    assert write("messages", reply.message)["messages"][1] == {"role": "assistant", "content": body["content"]}
    trimmed = {**reply.message, "tool_calls": []}
    assert write("messages", trimmed)["messages"][1]["content"] == body["content"][:3]


def test_a_message_of_only_text_and_calls_keeps_no_blocks():
    reply = read("messages", message({"type": "text", "text": "I add."}, USED, stop_reason="tool_use"))
    assert reply.message.keys() == {"role", "content", "tool_calls"}


def test_calls_without_ids_get_ids():
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


def replay(api: str, reply: ChatReply) -> ChatReply:
    """The reply as a cassette keeps it and gives it out."""
    answer = _write_answer(reply)
    tape = type("Tape", (), {"path": "a.yaml"})()
    return TapedClient(model(api), tape, lambda: None)._read_answer(type(answer)(**answer.model_dump()), 0.0)


@FEW
@given(BLOCKS)
def test_random_blocks_are_sent_back_unchanged(blocks):
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
def test_random_items_are_sent_back_unchanged(items, given_arguments):
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
def test_the_status_of_a_response_decides_its_end(body, end, finish):
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
def test_the_stop_reason_of_a_message_decides_its_end(body, end, finish):
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
def test_a_reply_without_an_answer_fails_with_its_reason(api, body, reason, retryable):
    with pytest.raises(RequestFailed) as caught:
        read(api, body)
    assert (caught.value.reason, caught.value.retryable) == (reason, retryable)


def test_a_failed_response_reports_its_rate_limit():
    with pytest.raises(RequestFailed) as caught:
        read("responses", response(status="failed", error={"code": "rate_limit_exceeded", "message": "x"}))
    assert (caught.value.code, caught.value.retryable) == ("rate_limited", True)


def test_a_reply_of_another_api_is_refused():
    with pytest.raises(RequestFailed, match="no response: it has no output"):
        read("responses", {"choices": []})
    with pytest.raises(RequestFailed, match="no message of Anthropic's: it has no content"):
        read("messages", {"choices": []})


def test_tokens_are_counted_by_the_rules_of_each_api():
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
