"""Streamed replies: joined into what would have come whole, given up where they stall, asked again where they break."""

from __future__ import annotations

import asyncio
import json

import pytest
from support.fault_endpoint import FaultEndpoint, always, in_order

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.apis.streams import open_reader
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.failures import Backoff, RequestFailed
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.streaming import StreamReader
from pytest_agentbench.records.case import Model

CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.txt"}'}},
        {"id": "c2", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "ü.txt"}'}},
    ],
}
THOUGHTS = {"role": "assistant", "content": "It is  4.\n", "reasoning_content": "two and two", "refusal": None}


def ask(endpoint: FaultEndpoint, *, retries: int = 0, timeout: float = 20, **options) -> ChatReply:
    async def main() -> ChatReply:
        endpoints = Endpoints(backoff=Backoff(first=0.001))
        try:
            client = endpoints.client(Model(model_id="m", requested_model="m", base_url=endpoint.base_url))
            messages = [{"role": "user", "content": "hello"}]
            return await client.complete(messages, retries=retries, timeout=timeout, **options)
        finally:
            await endpoints.close()

    return asyncio.run(main())


def join(*chunks: object, ends: tuple[bytes, ...] = (b"data: [DONE]\n\n",), size: int = 1 << 20) -> dict:
    """What becomes of a stream of these chunks that comes in parts of `size` bytes."""
    events = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]
    body, reader = b"".join([*events, *ends]), StreamReader()
    for at in range(0, len(body), size):
        reader.feed(body[at : at + size])
    return json.loads(reader.finish(200, {}).content)


def delta(*, finish: str | None = None, **fields: object) -> dict:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


@pytest.mark.parametrize("message", [CALLS, THOUGHTS], ids=["calls", "thoughts"])
def test_a_streamed_reply_is_the_same_as_a_whole_one(message):
    with FaultEndpoint(answer=lambda body: message) as endpoint:
        whole, streamed = ask(endpoint), ask(endpoint, stream=True)
        assert endpoint.requests[1].body["stream_options"] == {"include_usage": True}
        assert {**endpoint.requests[1].body, "stream": 0, "stream_options": 0} == {
            **endpoint.requests[0].body,
            "stream": 0,
            "stream_options": 0,
        }
    assert whole.times is None
    for name in ("content", "tool_calls", "finish_reason", "usage", "model", "response_id", "message", "reasoning"):
        assert getattr(streamed, name) == getattr(whole, name), name
    assert json.dumps(streamed.message) == json.dumps(whole.message)


def test_times_are_measured_from_the_request_on():
    with FaultEndpoint(answer=lambda body: THOUGHTS, latency=0.05) as endpoint:
        reply = ask(endpoint, stream=True)
    measured = reply.times.measure(reply.usage)
    assert 0.05 <= measured["ttft_seconds"] <= measured["first_text_seconds"] <= reply.seconds
    assert measured["output_tokens_per_second"] == 5 / (reply.times.last - reply.times.first)


def test_a_stream_of_calls_alone_has_a_first_token_and_no_first_text():
    with FaultEndpoint(answer=lambda body: CALLS) as endpoint:
        reply = ask(endpoint, stream=True)
    assert reply.times.first is not None
    assert reply.times.first_text is None


@pytest.mark.parametrize("fault", ["cut-stream", "ended-stream", "done-stream", "error-chunk", "garbage-chunk"])
def test_an_interrupted_stream_is_requested_again(fault):
    with FaultEndpoint(in_order(fault)) as endpoint:
        reply = ask(endpoint, stream=True, retries=1)
    assert (reply.content, reply.attempts) == ("answer to hello", 2)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("ended-stream", "the server stopped generating: its stream ended without a finish_reason"),
        ("done-stream", "the server stopped generating: its stream ended without a finish_reason"),
        ("error-chunk", "Provider disconnected"),
        ("garbage-chunk", "{half"),
        ("429", "Rate limit reached"),
    ],
)
def test_an_error_says_what_broke(fault, said):
    with FaultEndpoint(always(fault)) as endpoint, pytest.raises(ProviderError) as caught:
        ask(endpoint, stream=True)
    assert said in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["stall", "stall-comments"])
def test_a_stalled_stream_is_given_up_despite_keep_alives(fault):
    with FaultEndpoint(in_order(fault)) as endpoint:
        reply = ask(endpoint, stream=True, stall_seconds=0.2, retries=1)
        assert len(endpoint.requests) == 2
    assert reply.content == "answer to hello"


@pytest.mark.slow
def test_the_time_limit_bounds_a_stream_that_does_not_stall():
    with FaultEndpoint(always("stall-comments")) as endpoint, pytest.raises(ProviderError) as caught:
        ask(endpoint, stream=True, stall_seconds=60, timeout=0.2)
    assert "no complete reply within 0.2 s" in str(caught.value)


def test_a_stream_is_read_no_further_than_any_reply():
    with FaultEndpoint(always("endless")) as endpoint, pytest.raises(ProviderError) as caught:
        ask(endpoint, stream=True)
    assert "longer than 32 MiB" in str(caught.value)


def test_connections_of_streams_are_used_again():
    with FaultEndpoint() as endpoint:
        model = Model(model_id="m", requested_model="m", base_url=endpoint.base_url, stream=True)

        async def main() -> None:
            endpoints = Endpoints()
            for turn in range(5):
                await endpoints.client(model).complete([{"role": "user", "content": str(turn)}])
            await endpoints.close()

        asyncio.run(main())
    assert (len(endpoint.requests), endpoint.connections) == (5, 1)


@pytest.mark.parametrize(
    ("model", "call", "streamed"),
    [
        ({}, {"timeout": 300}, False),
        ({}, {"stall_seconds": 5.0}, False),
        ({"stream": True}, {}, True),
        ({"stream": True}, {"stream": False}, False),
        ({"stream": "auto"}, {"timeout": 60}, False),
        ({"stream": "auto"}, {"timeout": 61}, True),
        ({"stream": "auto"}, {"stall_seconds": 5.0}, True),
        ({"stream": "auto", "stall_seconds": 5.0}, {}, True),
    ],
)
def test_a_stream_is_asked_for_where_entry_or_run_says_so(model, call, streamed):
    with FaultEndpoint() as endpoint:
        entry = Model(model_id="m", requested_model="m", base_url=endpoint.base_url, **model)

        async def main() -> None:
            endpoints = Endpoints()
            await endpoints.client(entry).complete([{"role": "user", "content": "hello"}], **call)
            await endpoints.close()

        asyncio.run(main())
    assert ("stream" in endpoint.requests[0].body) is streamed


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_parts_may_end_anywhere(size):
    said = [delta(role="assistant", content=""), delta(content="Zwölf "), delta(content="🦊"), delta(finish="stop")]
    made = join(*said, size=size)
    assert made["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "Zwölf 🦊"},
        "finish_reason": "stop",
    }


def test_lines_may_end_with_carriage_returns_and_the_last_with_nothing():
    event = b'data: {"choices": [{"delta": {"content": "4"}, "finish_reason": "stop"}]}'
    assert join(ends=(b": hi\r\n\r\nevent: x\r\n", event))["choices"][0]["message"]["content"] == "4"


def test_calls_are_joined_by_index_and_keys_that_come_late_are_kept():
    made = join(
        delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]),
        delta(tool_calls=[{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}]),
        delta(tool_calls=[{"index": 0, "id": "", "function": {"name": None, "arguments": '{"x"'}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}, "extra_content": {"google": {"s": "SIG="}}}]),
        delta(finish="tool_calls"),
    )
    assert made["choices"][0]["message"]["tool_calls"] == [
        {"id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}, "extra_content": {"google": {"s": "SIG="}}},
        {"id": "b", "function": {"name": "g", "arguments": "{}"}},
    ]


@pytest.mark.parametrize("index", [{"index": 0}, {}], ids=["one index for all", "no index"])
def test_calls_that_come_whole_under_one_index_or_none_are_several(index):
    calls = [{"id": name, "function": {"name": name, "arguments": "{}"}} for name in ("f", "g")]
    made = join(*(delta(tool_calls=[{**index, **call}]) for call in calls), delta(finish="tool_calls"))
    assert made["choices"][0]["message"]["tool_calls"] == calls


def test_reasoning_in_parts_is_joined_part_by_part():
    made = join(
        delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "two "}]),
        delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "and two"}]),
        delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "", "signature": "SIG"}]),
        delta(reasoning_details=[{"type": "reasoning.encrypted", "index": 1, "data": "X"}]),
        delta(content="4", finish="stop"),
    )
    assert made["choices"][0]["message"]["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "two and two", "signature": "SIG"},
        {"type": "reasoning.encrypted", "index": 1, "data": "X"},
    ]


def test_thoughts_as_content_parts_come_before_the_text():
    made = join(
        delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "two "}]}]),
        delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "and two"}]}]),
        delta(content="It is "),
        delta(content="4", finish="stop"),
    )
    assert made["choices"][0]["message"]["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "two and two"}]},
        {"type": "text", "text": "It is 4"},
    ]


def test_of_unknown_keys_the_last_that_says_something_stays():
    made = join(
        {**delta(content="4", annotations=[{"u": 1}]), "citations": ["a"], "system_fingerprint": "f1"},
        {**delta(annotations=[], finish="stop"), "citations": ["a", "b"], "system_fingerprint": None},
        {"choices": [], "usage": {"prompt_tokens": 1}},
    )
    assert made["choices"][0]["message"]["annotations"] == [{"u": 1}]
    assert (made["citations"], made["system_fingerprint"]) == (["a", "b"], "f1")
    assert made["usage"] == {"prompt_tokens": 1}


def test_usage_may_be_in_groq_s_own_place():
    made = join(delta(content="4", finish="stop"), {"choices": [], "x_groq": {"usage": {"prompt_tokens": 3}}})
    assert made["usage"] == {"prompt_tokens": 3}


@pytest.mark.parametrize(
    "error", [b'data: {"object": "error", "message": "no"}', b'event: error\ndata: {"message": "no"}']
)
def test_errors_without_a_name_are_errors(error):
    assert join(delta(content="pa"), ends=(error, b"\n\n"))["error"]["message"] == "no"


@pytest.mark.parametrize(
    "event",
    [
        {"choices": {"a": 1}},
        {"choices": [None, {"delta": None, "finish_reason": "stop"}]},
        {"choices": [{"delta": {"tool_calls": ["x", {"index": []}, {"index": {}, "function": 3}]}}]},
        {"choices": [{"delta": {"content": {"a": [1]}, "role": []}}]},
    ],
)
def test_malformed_events_are_ignored(event):
    assert join(event, event, delta(finish="stop")).keys() >= {"choices"}


DONE = b"data: [DONE]\n\n"
COUNTED = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}


@pytest.mark.parametrize("counts", [{}, {"usage": {"prompt_tokens": 10, "completion_tokens": 1}}], ids=["no", "each"])
@pytest.mark.parametrize("ends", [(), (DONE,)], ids=["cut", "done"])
def test_a_stream_without_a_finish_reason_was_cut_off(counts, ends):
    with pytest.raises(RequestFailed) as caught:
        join({**delta(content="Par"), **counts}, ends=ends)
    assert (caught.value.code, caught.value.reason, caught.value.retryable) == ("broken_off", "aborted", True)


def test_a_stream_that_has_counted_all_tokens_and_says_that_it_is_done_is_whole():
    assert join(delta(content="Paris"), COUNTED)["choices"][0]["finish_reason"] is None
    with pytest.raises(RequestFailed):
        join(delta(content="Paris"), COUNTED, ends=())


RESPONSE = {"id": "r", "object": "response", "output": [], "status": "completed"}
STOPPED = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
USED = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 5}}
STARTED = {"type": "message_start", "message": {"role": "assistant", "content": []}}


@pytest.mark.parametrize(
    ("api", "events", "whole"),
    [
        ("responses", [{"type": "response.created", "response": RESPONSE}], False),
        ("responses", [{"type": "response.completed", "response": RESPONSE}], True),
        ("messages", [STARTED, {"type": "message_stop"}], False),
        ("messages", [STARTED, STOPPED], True),
        ("messages", [STARTED, USED, {"type": "message_stop"}], True),
        ("gemini", [{"candidates": [{"content": {"parts": [{"text": "Par"}]}}]}], False),
        ("gemini", [{"candidates": [{"content": {"parts": [{"text": "Paris"}]}, "finishReason": "STOP"}]}], True),
    ],
)
def test_a_stream_of_any_protocol_is_whole_once_it_says_why_it_ended(api, events, whole):
    reader = open_reader(api)
    for event in events:
        reader.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    reader.feed(DONE)
    if whole:
        reader.finish(200, {})
        return
    with pytest.raises(RequestFailed) as caught:
        reader.finish(200, {})
    assert caught.value.reason == "aborted"


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_events_that_nest_too_deep_are_no_reply(opening):
    body = b'data: {"choices": [], "x": ' + opening * 100_000 + b"\n\ndata: [DONE]\n\n"
    reader = StreamReader()
    reader.feed(body)
    assert not reader.finish(200, {}).content.startswith(b'{"object"')
