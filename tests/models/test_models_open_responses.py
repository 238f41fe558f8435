"""Open Responses, asked by our own client: requests and replies of each kind of its conformance cases."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from support.open_responses import PIXEL, REQUEST, RESPONSE, WEATHER, list_problems

from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.records.case import Model

USER = {"role": "user", "content": "The weather?"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
TOOL = {"type": "function", "function": {name: WEATHER[name] for name in ("name", "description", "parameters")}}
CONVERSATIONS = {
    "basic text": [USER],
    "system prompt": [{"role": "system", "content": "Be brief."}, USER],
    "developer prompt": [{"role": "developer", "content": "Be brief."}, USER],
    "image input": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": PIXEL}}],
        }
    ],
    "multi-turn": [USER, {"role": "assistant", "content": "Sunny."}, {"role": "user", "content": "And now?"}],
    "tool result": [
        USER,
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ],
}
TEXT = {
    "type": "message",
    "id": "msg_1",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Sunny.", "annotations": []}],
}
CALLED = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_9",
    "name": "get_weather",
    "arguments": '{"place": "Paris"}',
    "status": "completed",
}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look at the sky."}]}
RESOURCE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1764967971,
    "completed_at": 1764967972,
    "status": "completed",
    "incomplete_details": None,
    "model": "m-1",
    "previous_response_id": None,
    "instructions": None,
    "output": [],
    "error": None,
    "tools": [],
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}},
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "top_logprobs": 0,
    "temperature": 1,
    "reasoning": {"effort": None, "summary": None},
    "usage": {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens_details": {"reasoning_tokens": 1},
    },
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": False,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
}


def list_events(response: dict) -> Iterator[dict]:
    """The events of a response whose items come whole, and one that nobody knows."""
    begun = {**response, "status": "in_progress", "output": [], "usage": None, "completed_at": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    yield {"type": "acme:telemetry.ping", "load": 1}
    for index, item in enumerate(response["output"]):
        at = {"output_index": index}
        yield {"type": "response.output_item.added", **at, "item": {**item, "status": "in_progress"}}
        if item is TEXT:
            piece = {"type": "response.output_text.delta", **at, "content_index": 0, "item_id": "msg_1"}
            yield from ({**piece, "delta": text} for text in ("Sun", "ny."))
        yield {"type": "response.output_item.done", **at, "item": item}
    yield {"type": f"response.{response['status']}", "response": response}


@contextmanager
def answering(response: dict) -> Iterator[tuple[str, list[dict]]]:
    """A server that gives this response, in events if asked to; its address, and the requests that it has got."""
    requests: list[dict] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/responses"
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            kind, body = "application/json", json.dumps(response).encode()
            if requests[-1].get("stream"):
                events = [{**event, "sequence_number": number} for number, event in enumerate(list_events(response))]
                told = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
                kind, body = "text/event-stream", f"{told}data: [DONE]\n\n".encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1", requests
        finally:
            server.shutdown()
            thread.join()


def ask(url: str, messages: list[dict], **options) -> ChatReply:
    async def main() -> ChatReply:
        endpoints = Endpoints(environ={})
        model = Model(model_id="m", requested_model="m-1", base_url=url, api="responses", api_key_env=None)
        try:
            return await endpoints.client(model).complete(messages, retries=0, **options)
        finally:
            await endpoints.close()

    return asyncio.run(main())


def test_the_responses_of_these_tests_are_of_the_specification():
    for output in ([TEXT], [CALLED], [THOUGHT, TEXT]):
        assert list_problems({**RESOURCE, "output": output}, RESPONSE) == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_is_asked_and_answered(name, stream):
    with answering({**RESOURCE, "output": [THOUGHT, TEXT]}) as (url, requests):
        parameters = {"temperature": 0.5, "max_tokens": 64, "reasoning_effort": "low", "response_format": None}
        reply = ask(url, CONVERSATIONS[name], tools=[TOOL], parameters=parameters, stream=stream)
    assert list_problems(requests[0], REQUEST) == []
    assert (reply.content, reply.thoughts, reply.end) == ("Sunny.", "Look at the sky.", "answered")
    usage = reply.usage
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.reasoning_tokens) == (10, 2, 5, 1)


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_result_goes_back(stream):
    with answering({**RESOURCE, "output": [THOUGHT, CALLED]}) as (url, requests):
        reply = ask(url, [USER], tools=[TOOL], parameters={"tool_choice": "required"}, stream=stream)
        result = {"role": "tool", "tool_call_id": reply.tool_calls[0].id, "content": "sunny"}
        ask(url, [USER, reply.message, result], tools=[TOOL], stream=stream)
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("call_9", "get_weather", {"place": "Paris"})
    ]
    assert (requests[0]["tool_choice"], requests[0]["tools"][0]["name"]) == ("required", "get_weather")
    assert requests[1]["input"][1:] == [
        THOUGHT,
        CALLED,
        {"type": "function_call_output", "call_id": "call_9", "output": "sunny"},
    ]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("changed", "end"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "filtered"),
    ],
)
def test_an_incomplete_response_has_its_reason(stream, changed, end):
    with answering({**RESOURCE, "output": [TEXT], **changed}) as (url, _):
        assert ask(url, [USER], stream=stream).end == end
