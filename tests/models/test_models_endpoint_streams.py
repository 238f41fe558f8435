"""Streams of endpoints in Responses and Messages, joined into complete replies."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.endpoint_apis import (
    BLOCKS,
    FEW,
    REASONED,
    THOUGHT,
    USED,
    message,
    read,
    response,
    text_item,
)

from pytest_agentbench.models.apis.streams import open_reader
from pytest_agentbench.models.failures import RequestFailed


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
def test_a_streamed_message_equals_a_whole_one(blocks, size):
    body = message(*blocks, stop_reason="tool_use")
    assert join("messages", *stream(body), size=size) == body


def test_a_streamed_response_is_in_its_last_event():
    whole = response(REASONED, text_item("4"))
    for kind in ("completed", "incomplete", "failed"):
        events = [{"type": "response.created", "response": response()}, {"type": "response.output_text.delta"}]
        assert join("responses", *events, {"type": f"response.{kind}", "response": whole}) == whole


def test_pieces_of_a_stream_are_timed():
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


def test_a_broken_or_failed_stream_is_refused():
    for api, unfinished in (("responses", "response.completed"), ("messages", "message_stop")):
        with pytest.raises(RequestFailed, match=unfinished):
            join(api, {"type": "ping"})
    said = {"type": "overloaded_error", "message": "x"}
    with pytest.raises(RequestFailed, match="HTTP 529: x"):
        read("messages", join("messages", *stream(message(THOUGHT))[:4], {"type": "error", "error": said}))
    with pytest.raises(RequestFailed, match="HTTP 429: x"):
        read("responses", join("responses", {"type": "error", "code": "rate_limit_exceeded", "message": "x"}))


def test_malformed_events_are_ignored():
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


def test_cut_off_arguments_of_a_streamed_call_are_dropped():
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
