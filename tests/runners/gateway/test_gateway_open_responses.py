"""Open Responses: each kind of its conformance cases, asked of a gateway and of the scripted endpoint."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from runners.gateway.gateway_support import served
from runners.runners_support import assistant, told
from support.open_responses import CASES, RESPONSE, WEATHER, list_event_problems, list_problems
from support.script_server import served as script_server

from pytest_agentbench.models.script_trees import ScriptTree

CALL = ("get_weather", {"place": "Paris"})
AT = "/v1/responses"


def read_events(body: str) -> list[dict[str, Any]]:
    found = []
    for event in body.split("\n\n")[:-1]:
        name, data = event.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def ask(folder: Path, answer: dict[str, Any], body: dict[str, Any]) -> tuple[httpx2.Response, list[dict[str, Any]]]:
    """What a gateway says to a request whose model, asked in Chat Completions, answers so; and what that was asked."""

    async def run() -> httpx2.Response:
        async with served(model, folder) as it:
            return await it.http.post(AT, json=body)

    with told(answer) as (model, requests):
        response = asyncio.run(run())
    return response, requests


def answer_to(name: str) -> dict[str, Any]:
    return assistant(None, CALL) if name == "tool call" else assistant("Hello there.")


def list_kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


@pytest.mark.parametrize("name", CASES)
def test_a_response_has_all_that_the_specification_demands(tmp_path: Path, name: str) -> None:
    body = {"model": "told-v1", **CASES[name]}
    answered, requests = ask(tmp_path, answer_to(name), body)
    response = answered.json()
    assert answered.status_code == 200, response
    assert list_problems(response, RESPONSE) == []
    assert (response["status"], response["completed_at"], response["usage"]["total_tokens"]) == ("completed", 0, 15)
    assert list_kinds(response) == ["function_call" if name == "tool call" else "message"]
    assert len(requests) == 1


@pytest.mark.parametrize("name", CASES)
def test_a_stream_has_its_events_in_order(tmp_path: Path, name: str) -> None:
    answered, _ = ask(tmp_path, answer_to(name), {"model": "told-v1", "stream": True, **CASES[name]})
    assert answered.headers["content-type"] == "text/event-stream"
    events = read_events(answered.text)
    assert list(list_event_problems(events)) == []
    assert events[-1]["response"]["usage"]["total_tokens"] == 15


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("message", "finish", "status", "kinds"),
    [
        ({"content": "Four.", "reasoning_content": "2 + 2"}, "stop", "completed", ["reasoning", "message"]),
        ({"content": "half"}, "length", "incomplete", ["message"]),
        ({"content": "x"}, "content_filter", "incomplete", ["message"]),
        ({"content": ""}, "stop", "completed", []),
    ],
)
def test_other_ends_keep_the_form(
    tmp_path: Path, stream: bool, message: dict[str, Any], finish: str, status: str, kinds: list[str]
) -> None:
    answer = assistant(finish=finish)
    answer["choices"][0]["message"] |= message
    answered, _ = ask(tmp_path, answer, {"model": "told-v1", "stream": stream, **CASES["basic text"]})
    assert answered.status_code == 200, answered.text
    if stream:
        events = read_events(answered.text)
        assert list(list_event_problems(events)) == []
    response = events[-1]["response"] if stream else answered.json()
    assert list_problems(response, RESPONSE) == []
    assert (response["status"], list_kinds(response)) == (status, kinds)


def test_a_response_repeats_what_was_asked(tmp_path: Path) -> None:
    body = {"model": "told-v1", "store": True, "instructions": "Be brief.", **CASES["settings"], "tools": [WEATHER]}
    answered, _ = ask(tmp_path, answer_to("settings"), body)
    response = answered.json()
    same = ("instructions", "temperature", "top_p", "max_output_tokens", "parallel_tool_calls", "reasoning", "text")
    same += ("truncation", "metadata", "prompt_cache_key")
    assert {name: response[name] for name in same} == {name: body[name] for name in same}
    assert response["tools"] == [{**WEATHER, "strict": None}]
    assert response["store"] is False  # nothing of a run is kept


def test_a_request_without_a_model_is_malformed(tmp_path: Path) -> None:
    answered, requests = ask(tmp_path, answer_to("basic text"), CASES["basic text"])
    assert (answered.status_code, answered.json()["error"]["code"]) == (400, "invalid_request")
    assert requests == []


@pytest.mark.slow
def test_the_scripted_endpoint_answers_alike(tmp_path: Path) -> None:
    (tmp_path / "test.yaml").write_text(
        "schema_version: 1\ncase_id: a\ntitle: A\nrunner: {type: llm_probe}\n"
        "input: {messages: [{role: user, content: x}]}\n"
        "deterministic_checks: [{check_id: x, declarative: {kind: final_response_present}}]\n"
    )
    (tmp_path / "demo.yaml").write_text(
        "schema_version: 1\nreplies:\n- {matches: '.*', steps: [{content: Hello.}, {content: Bye.}]}\n"
    )
    with script_server(ScriptTree(tmp_path)) as url, httpx2.Client(verify=False) as http:
        for body in CASES.values():
            answered = http.post(f"{url}/responses", json={"model": "m", **body})
            assert list_problems(answered.json(), RESPONSE) == []
            streamed = http.post(f"{url}/responses", json={"model": "m", "stream": True, **body})
            assert list(list_event_problems(read_events(streamed.text))) == []
        assert http.post(f"{url}/responses", json=CASES["basic text"]).status_code == 400
