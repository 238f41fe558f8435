"""Replies of generateContent: usage, calls without ids, and invalid or blocked responses."""

from __future__ import annotations

import json

import pytest
from support.agent_apis import fold_events, parse, write

from pytest_agentbench.models.failures import RequestFailed


def test_the_usage_of_a_gemini_stream_is_in_its_last_event():
    counted = {"promptTokenCount": 5, "toolUsePromptTokenCount": 2, "cachedContentTokenCount": 3}
    parts = [{"text": "a"}, {"text": "b"}]
    events = [
        {
            "candidates": [{"content": {"parts": [part]}, **({"finishReason": "STOP"} if at else {})}],
            "usageMetadata": {**counted, "candidatesTokenCount": at + 1, "thoughtsTokenCount": 4},
        }
        for at, part in enumerate(parts)
    ]
    usage = fold_events("gemini", b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)).usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (7, 6, 13)
    assert (usage.cached_tokens, usage.reasoning_tokens, usage.cache_write_tokens) == (3, 4, None)


def test_a_gemini_call_without_an_id_gets_one_and_keeps_its_signature():
    part = {"functionCall": {"name": "f", "args": {"x": 1}}, "thoughtSignature": "SIG"}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    body = json.dumps({"candidates": [candidate], "responseId": "r"}).encode()
    told = parse("gemini", body)
    [called] = told.tool_calls
    assert (called.id, called.arguments) == ("call_r_0", {"x": 1})
    result = {"role": "tool", "tool_call_id": called.id, "content": "done"}
    sent = write("gemini", [{"role": "user", "content": "?"}, told.message, result])["contents"]
    assert sent[1]["parts"] == [{**part, "functionCall": {**part["functionCall"], "id": "call_r_0"}}]
    answer = {"id": "call_r_0", "name": "f", "response": {"output": "done"}}
    assert sent[2]["parts"] == [{"functionResponse": answer}]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "it has no candidates"),
        ({"candidates": [1]}, "it has no candidates"),
        ({"candidates": [{"content": {"parts": [1]}}]}, "its parts are no objects"),
        ({"candidates": [{"content": {"parts": [{"functionCall": {"name": 1}}]}}]}, "its tool calls are malformed"),
    ],
)
def test_an_invalid_gemini_response_is_refused(body, said):
    with pytest.raises(RequestFailed, match=said):
        parse("gemini", json.dumps(body).encode())


def test_a_prompt_that_gemini_blocks_is_filtered():
    told = parse("gemini", b'{"promptFeedback": {"blockReason": "SAFETY"}}')
    assert (told.end, told.content) == ("filtered", None)
    stopped = {"candidates": [{"finishReason": "RECITATION"}]}
    assert parse("gemini", json.dumps(stopped).encode()).end == "filtered"
