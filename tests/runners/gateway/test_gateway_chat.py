"""The gateway of a run, over its real socket: with an HTTP client, with the openai SDK, and what it traces."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runners.gateway.gateway_support import GO, served
from runners.runners_support import assistant, told
from support.fault_endpoint import FaultEndpoint, always

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.apis.chat import write_usage
from pytest_agentbench.models.script_trees import ScriptTree
from pytest_agentbench.records.case import Limits, Model
from pytest_agentbench.records.run import ToolCallEvent, ToolResultEvent, Usage
from pytest_agentbench.runners.gateway import gateway as gateway_module
from pytest_agentbench.runners.gateway.gateway import NO_ANSWER
from pytest_agentbench.runners.gateway.policy import GatewayPolicy

TOOL = {"type": "function", "function": {"name": "write", "parameters": {"type": "object"}}}
POLICY = GatewayPolicy(names=("agent/told-v1",), internal=("<<<INTERNAL",), passes=False)


def at(endpoint: FaultEndpoint) -> Model:
    return Model(model_id="m", requested_model="m-1", base_url=endpoint.base_url, api_key_env=None)


def test_a_request_is_answered_by_the_runs_client_with_the_runs_parameters(tmp_path):
    async def run(model: Model) -> None:
        async with served(model, tmp_path, parameters={"temperature": 0.3, "max_tokens": 50}) as it:
            sent = {"temperature": 1, "max_completion_tokens": 9000, "tool_choice": "auto", "store": True}
            response = await it.ask(tools=[TOOL], **sent)
            completion = response.json()
            assert completion["choices"][0] == {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello."},
                "finish_reason": "length",
            }
            assert completion["usage"] == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
            assert (completion["id"], completion["model"]) == ("chat-1", "told-v1")
            assert it.trace.usage.total_tokens == 15
            asked = {"number": 1, "messages": 1, "tools": 1, "ignored": ["store"]}
            assert it.notes("request") == [{**asked, "dialect": "chat", "mode": "relay", "conversation": 1}]
            assert [reply["finish_reason"] for reply in it.notes("reply")] == ["length"]
            assert it.trace.request["tools"] == ["write"]
            assert it.gateway.failure is None
            assert it.gateway.refused is None

    with told(assistant("Hello.", finish="length")) as (model, requests):
        asyncio.run(run(model))
    assert requests == [
        {
            "model": "told-v1",
            "messages": GO,
            "tools": [TOOL],
            "temperature": 0.3,
            "max_tokens": 50,
            "tool_choice": "auto",
        }
    ]


@pytest.mark.parametrize(
    ("own", "sent", "arrives"),
    [
        ({}, {"max_completion_tokens": 7}, {"max_tokens": 7}),
        ({"max_tokens": 5}, {"max_completion_tokens": 7}, {"max_tokens": 5}),
        ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "high"}, {"reasoning_effort": "low"}),
        ({"temperature": None}, {"temperature": 1}, {}),
    ],
)
def test_the_runs_parameters_win_also_where_the_agent_names_them_otherwise(tmp_path, own, sent, arrives):
    async def run(model: Model) -> None:
        model = model.model_copy(update={"parameters": {"max_tokens": 100}})
        async with served(model, tmp_path, parameters=own) as it:
            await it.message(**sent)

    with told(assistant("Hello.")) as (model, requests):
        asyncio.run(run(model))
    got = {name: value for name, value in requests[0].items() if name not in ("model", "messages")}
    limited = any("max" in name for name in arrives)
    assert got == ({} if limited else {"max_tokens": 100}) | arrives


def test_reasoning_and_usage_of_a_reply_reach_the_agent(tmp_path):
    completion = assistant(None, ("write", {"path": "a"}))
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    completion["choices"][0]["message"] |= {"reasoning_details": details, "reasoning_content": "Let me see."}
    completion["usage"] = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
        "cost": 0.5,
    }

    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            response = await it.ask()
            message = response.json()["choices"][0]["message"]
            assert message["reasoning_details"] == details
            assert message["reasoning_content"] == "Let me see."
            assert response.json()["usage"] == completion["usage"]
            assert it.trace.usage.cost_usd == 0.5

    with told(completion) as (model, _):
        asyncio.run(run(model))


def test_the_openai_sdk_streams_from_it(tmp_path):
    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            sdk = openai.AsyncOpenAI(api_key="none", base_url="http://gateway/v1", http_client=it.http, max_retries=0)
            assert [each.id async for each in sdk.models.list()] == ["told-v1"]
            async with sdk.chat.completions.stream(
                model="told-v1", messages=GO, tools=[TOOL], stream_options={"include_usage": True}
            ) as stream:
                completion = await stream.get_final_completion()
            message = completion.choices[0].message
            assert message.content == "I write.\nTwo files."
            calls = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]
            assert calls == [("write", {"path": "a", "content": "ä\n"}), ("write", {"path": "b"})]
            assert completion.choices[0].finish_reason == "tool_calls"
            assert completion.usage.total_tokens == 15

    reply = assistant(
        "I write.\nTwo files.", ("write", {"path": "a", "content": "ä\n"}), ("write", {"path": "b"})
    )  # fmt: skip
    with told(reply) as (model, _):
        asyncio.run(run(model))


def test_another_model_is_refused_and_remembered(tmp_path):
    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            response = await it.ask(model="openai/gpt-4o")
            assert response.status_code == 404
            assert response.json()["error"]["code"] == "model_not_found"
            assert "'told-v1'" in response.json()["error"]["message"]
            assert it.gateway.refused == "openai/gpt-4o"
            assert it.gateway.failure is None
            assert it.notes("request") == []

    with told() as (model, requests):
        asyncio.run(run(model))
    assert requests == []


def test_the_runs_model_may_be_called_by_the_agents_name_for_it(tmp_path):
    async def run(model: Model) -> None:
        async with served(model, tmp_path, policy=POLICY) as it:
            await it.message(model="agent/told-v1")
            assert it.gateway.refused is None

    with told(assistant("Hello.")) as (model, requests):
        asyncio.run(run(model))
    assert requests[0]["model"] == "told-v1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"[" * 100_000, 400, "invalid_json"),
        (b'{"messages": []}', 400, "invalid_request"),
        (b'{"model": "told-v1", "messages": ["x"]}', 400, "invalid_request"),
        (b'{"model": "told-v1", "messages": [{}], "tools": [{"type": "web_search"}]}', 400, "server_tool"),
        (b'{"model": "told-v1", "messages": [{}], "tools": "all"}', 400, "invalid_request"),
        (b" " * (33 * 2**20), 413, "too_large"),
    ],
)
def test_a_bad_request_is_refused_before_the_model_is_asked(tmp_path, content, status, code):
    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            response = await it.http.post("/v1/chat/completions", content=content)
            assert (response.status_code, response.json()["error"]["code"]) == (status, code)
            assert (await it.http.get("/v1/files")).status_code == 404

    with told() as (model, requests):
        asyncio.run(run(model))
    assert requests == []


@pytest.mark.slow
def test_an_outage_is_told_once_retries_are_over_and_ends_its_turn(tmp_path):
    async def run(model: Model) -> None:
        async with served(model, tmp_path, retries=1, text=None) as it:
            with it.gateway.turn("Go."):
                for stream in (True, False):
                    response = await it.ask(stream=stream)
                    assert response.status_code == 400
                    assert response.json()["error"]["message"] == NO_ANSWER
            assert isinstance(it.gateway.failure, ProviderError)
            assert it.gateway.failure.code == "server_error"
            assert len(it.notes("retry")) == 1
            with it.gateway.turn("Go on."):
                assert it.gateway.failure is None
                await it.message()
            assert it.gateway.failure is None

    with told(503, 503, assistant("Back.")) as (model, requests):
        asyncio.run(run(model))
    assert len(requests) == 3


@pytest.mark.slow
def test_an_answer_does_not_hide_the_outage_of_a_request_beside_it(tmp_path):
    begun, may_end = threading.Event(), threading.Event()

    def late(request: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        may_end.wait(10)
        return assistant("Late.")

    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            answered = asyncio.create_task(it.message())
            await asyncio.to_thread(begun.wait, 10)
            assert (await it.ask()).status_code == 400
            may_end.set()
            assert (await answered)["content"] == "Late."
            assert it.gateway.failure.code == "authentication"

    with told(late, 401) as (model, _):
        asyncio.run(run(model))


def test_a_refused_request_has_the_message_of_the_provider(tmp_path):
    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            response = await it.ask()
            assert response.status_code == 400
            assert "maximum context length" in response.json()["error"]["message"]
            assert it.gateway.failure.code == "context_exceeded"
            assert (await it.message())["content"] == "Shorter."
            assert it.gateway.failure is None

    with told("This model's maximum context length is 8192 tokens.", assistant("Shorter.")) as (model, _):
        asyncio.run(run(model))


@pytest.mark.slow
def test_an_agent_that_waits_long_hears_from_the_stream_and_of_a_late_failure_too(tmp_path, monkeypatch):
    monkeypatch.setattr(gateway_module, "_PATIENCE_SECONDS", 0.01)

    async def run(model: Model) -> None:
        async with served(model, tmp_path, timeout_seconds=0.2, text=None) as it:
            with it.gateway.turn("Go."):
                response = await it.ask(stream=True)
            assert response.status_code == 200
            events = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
            assert events[-1] == "[DONE]"
            told = [json.loads(event) for event in events[:-1]]
            assert told[0] == {"object": "chat.completion.chunk", "choices": []}
            assert told[-1]["error"]["message"] == NO_ANSWER
            assert it.gateway.failure.code == "timeout"
            sdk = openai.AsyncOpenAI(api_key="none", base_url="http://gateway/v1", http_client=it.http, max_retries=0)
            with it.gateway.turn("Again."), pytest.raises(openai.APIError, match="no answer"):
                [chunk async for chunk in await sdk.chat.completions.create(model="m-1", messages=GO, stream=True)]

    with FaultEndpoint(always("hang")) as endpoint:
        asyncio.run(run(at(endpoint)))


def hanging_until_second(endpoint: FaultEndpoint) -> asyncio.Event:
    """Lets the endpoint never answer `Go.`; the event tells that it was asked that."""
    asked, loop = asyncio.Event(), asyncio.get_running_loop()

    def choose(message: str, nth: int) -> str:
        loop.call_soon_threadsafe(asked.set)
        return "hang" if message == "Go." else "ok"

    endpoint.choose = choose
    return asked


def test_a_request_whose_agent_has_gone_is_read_on_for_a_while_and_then_its_usage_is_unknown(tmp_path):
    async def run(endpoint: FaultEndpoint) -> None:
        asked = hanging_until_second(endpoint)
        model = at(endpoint).model_copy(update={"limits": Limits(max_concurrency=1)})
        async with served(model, tmp_path, outage_seconds=0.05) as it:
            asking = asyncio.create_task(it.ask())
            await asked.wait()
            asking.cancel()
            assert (await it.message([{"role": "user", "content": "second"}]))["content"] == "answer to second"
            assert it.gateway.failure is None
            assert it.trace.usage.total_tokens is None

    with FaultEndpoint() as endpoint:
        asyncio.run(run(endpoint))


def test_the_end_of_the_block_cancels_requests_in_flight(tmp_path):
    async def run(endpoint: FaultEndpoint) -> None:
        asked = hanging_until_second(endpoint)
        async with asyncio.timeout(10), served(at(endpoint), tmp_path) as it:
            asking = asyncio.create_task(it.ask())
            await asked.wait()
        with pytest.raises(httpx2.HTTPError):
            await asking
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert len(it.notes("request")) == 1
        assert it.notes("reply") == []

    with FaultEndpoint() as endpoint:
        asyncio.run(run(endpoint))


@pytest.mark.slow
@pytest.mark.parametrize(("count", "latency"), [(8, 0.2), (24, 0.02)], ids=["as-many-as-may-be", "more"])
def test_requests_side_by_side_are_in_flight_together_up_to_eight(tmp_path, count, latency):
    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            texts = [f"question {n}" for n in range(count)]
            messages = await asyncio.gather(*(it.message([{"role": "user", "content": text}]) for text in texts))
            assert [message["content"] for message in messages] == [f"answer to {text}" for text in texts]

    with FaultEndpoint(latency=latency) as endpoint:
        asyncio.run(run(at(endpoint)))
        assert endpoint.peak == 8


def test_the_socket_is_open_to_every_user_and_its_path_may_be_long(tmp_path):
    folder = tmp_path / ("x" * 120)
    folder.mkdir()

    async def run(model: Model) -> None:
        async with served(model, folder) as it:
            assert stat.S_IMODE(it.socket.stat().st_mode) == 0o666
            assert stat.S_ISSOCK(it.socket.stat().st_mode)
            short = os.open(folder, os.O_PATH)
            try:
                transport = httpx2.AsyncHTTPTransport(uds=f"/proc/self/fd/{short}/model.sock")
                async with httpx2.AsyncClient(transport=transport, base_url="http://gateway") as http:
                    assert (await http.get("/v1/models")).json()["data"][0]["id"] == "told-v1"
            finally:
                os.close(short)

    with told() as (model, _):
        asyncio.run(run(model))


def test_a_script_answers_by_the_cases_own_words(tmp_path):
    (tmp_path / "test.yaml").write_text(
        "schema_version: 1\ncase_id: a_case\ntitle: A\nrunner: {type: llm_probe}\n"
        "input: {messages: [{role: user, content: Write it.}]}\n"
        "deterministic_checks: [{check_id: x, declarative: {kind: final_response_present}}]\n"
    )
    (tmp_path / "demo.yaml").write_text(
        "schema_version: 1\nreplies:\n"
        "- when: Write it.\n  steps:\n  - tool_calls: [{name: write, arguments: {path: a.md}}]\n  - content: Written.\n"
        "- when: Revise it.\n  content: Revised.\n"
    )
    scripts = ScriptTree(tmp_path)
    internal = {
        "role": "user",
        "content": [{"type": "text", "text": "<<<INTERNAL>>> Write it."}],
    }
    model = Model(model_id="demo", requested_model="demo", scripted=True)

    async def run() -> None:
        async with served(model, tmp_path, scripts=scripts, text=None, policy=POLICY) as it:
            history: list[dict[str, Any]] = [
                {"role": "system", "content": "You are an agent."},
                {"role": "user", "content": "[Sun 2026-11-22 09:15 UTC] Write it.\n\nRuntime: host=vm"},
            ]
            with it.gateway.turn("Write it."):
                first = await it.message(history, tools=[TOOL])
                history += [first, {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "ok"}]
                second = await it.message([*history, internal], tools=[TOOL])
                assert second["content"] == "Written."
            with it.gateway.turn("Revise it."):
                history += [second, {"role": "user", "content": "[Sun 2026-11-22 09:17 UTC] Revise it."}, internal]
                assert (await it.message(history, tools=[TOOL]))["content"] == "Revised."
            assert [event.name for event in it.events(ToolCallEvent)] == ["write"]
            assert [event.content for event in it.events(ToolResultEvent)] == ["ok"]

    asyncio.run(run())


@pytest.mark.slow
def test_between_turns_nothing_is_asked_and_a_turns_end_gives_up_what_is_in_flight(tmp_path):
    async def run(endpoint: FaultEndpoint) -> None:
        asked = hanging_until_second(endpoint)
        async with served(at(endpoint), tmp_path, text=None) as it:
            response = await it.ask()
            assert (response.status_code, response.json()["error"]["code"]) == (409, "no_turn")
            with it.gateway.turn("Go."):
                left_behind = asyncio.create_task(it.ask())
                await asked.wait()
            with pytest.raises(httpx2.HTTPError):
                await left_behind
            assert it.gateway.failure is None
            assert len(it.notes("request")) == 1
            assert (await it.ask()).status_code == 409

    with FaultEndpoint() as endpoint:
        asyncio.run(run(endpoint))


@pytest.mark.slow
def test_of_large_requests_there_is_one_at_a_time(tmp_path):
    texts = [f"{number}" + "x" * (17 * 2**20) for number in range(3)]

    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            await asyncio.gather(*(it.message([{"role": "user", "content": text}]) for text in texts))

    with FaultEndpoint(latency=0.02) as endpoint:
        asyncio.run(run(at(endpoint)))
        assert endpoint.peak == 1


@pytest.mark.parametrize(
    "messages",
    ["[{}" + ", {}" * 200_000 + "]", '[{"x": [' + "[]," * 400_000 + "[]]}]", '[{"x": ' + "[" * 150 + "]" * 150 + "}]"],
)
def test_a_request_that_is_much_work_to_read_is_refused(tmp_path, messages):
    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            content = f'{{"model": "told-v1", "messages": {messages}}}'.encode()
            response = await it.http.post("/v1/chat/completions", content=content)
            assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")

    with told() as (model, requests):
        asyncio.run(run(model))
    assert requests == []


def test_a_long_text_is_passed_on_quickly(tmp_path):
    text = '{"a": [1, 2, "\\"]}, ' * 100_000

    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            await it.message([{"role": "user", "content": text}])

    with told(assistant("Read.")) as (model, requests):
        asyncio.run(run(model))
    assert requests[0]["messages"][0]["content"] == text


def test_a_run_asks_its_model_only_so_often(tmp_path, monkeypatch):
    monkeypatch.setattr(gateway_module, "_MOST_REQUESTS", 2)

    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            for _ in range(2):
                await it.message()
            response = await it.ask()
            assert response.json()["error"]["message"] == "this run has asked its model 2 times, the maximum"
            assert it.gateway.failure is None

    with told(assistant("One."), assistant("Two.")) as (model, _):
        asyncio.run(run(model))


def test_a_run_over_the_sessions_budget_asks_no_more_and_is_no_failure_of_the_agent(tmp_path):
    def over(usage: Usage) -> str | None:
        return "the budget is used up" if (usage.total_tokens or 0) >= 30 else None

    async def run(model: Model) -> None:
        async with served(model, tmp_path, over_budget=over) as it:
            for _ in range(2):
                await it.message()
            assert (await it.ask()).json()["error"]["message"] == NO_ANSWER
            assert isinstance(it.gateway.failure, ProviderError)
            assert (it.gateway.failure.code, it.gateway.failure.retryable) == ("over_budget", False)

    with told(assistant("One."), assistant("Two.")) as (model, requests):
        asyncio.run(run(model))
    assert len(requests) == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
CALL = st.fixed_dictionaries({}, optional={"id": JSON, "type": JSON, "function": JSON | st.just({"name": "write"})})
FIELDS = ("tools", "stream", "stream_options", "temperature", "stop", "tool_choice", "user")
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", 7])},
    optional={"content": JSON, "tool_calls": JSON | st.lists(CALL, max_size=3), "tool_call_id": JSON},
)


@pytest.mark.slow
def test_no_request_at_all_breaks_the_gateway(tmp_path, caplog):
    """Whatever is in it, it is refused or asked."""

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(st.lists(MESSAGE, min_size=1, max_size=4), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4))
    def refused_or_asked(messages: list[dict[str, Any]], fields: dict[str, Any]) -> None:
        async def run() -> None:
            async with served(model, tmp_path) as it:
                body = json.dumps({"model": "m-1", "messages": messages, **fields})
                response = await it.http.post("/v1/chat/completions", content=body.encode("utf-8", "replace"))
                assert response.status_code in (200, 400), response.text
                assert it.gateway.failure is None or isinstance(it.gateway.failure, ProviderError)

        asyncio.run(run())

    with FaultEndpoint() as endpoint:
        model = at(endpoint)
        refused_or_asked()
    assert caplog.records == []


def test_tokens_are_told_by_the_names_of_completions():
    own = {"prompt_tokens": 1, "completion_tokens": 2, "more": 3}
    assert write_usage(Usage(input_tokens=1, output_tokens=2, raw=(own,))) == own
    told = write_usage(Usage(input_tokens=1, output_tokens=2, total_tokens=3, raw=({"input_tokens": 1},)))
    assert (told["prompt_tokens"], told["completion_tokens"]) == (1, 2)
    assert write_usage(Usage()) is None
