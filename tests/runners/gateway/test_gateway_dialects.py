"""A gateway in each dialect: what is asked, refused and told, over its real socket."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runners.gateway.gateway_support import CHAT, GEMINI, GO, HISTORY, MESSAGES, SPOKEN, Served, Spoken, served
from runners.runners_support import assistant, told
from support.fault_endpoint import FaultEndpoint, always

from pytest_agentbench.models.script_trees import ScriptTree
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import ToolCallEvent, ToolResultEvent
from pytest_agentbench.runners.gateway import gateway as gateway_module
from pytest_agentbench.runners.gateway.gateway import NO_ANSWER
from pytest_agentbench.runners.gateway.policy import GatewayPolicy, Helper

DEMO = Model(model_id="demo", requested_model="demo", scripted=True)
USAGE = "usage: {input_tokens: 11, cached_tokens: 2, output_tokens: 3, reasoning_tokens: 1}"

spoken = pytest.mark.parametrize("spoken", SPOKEN, ids=lambda each: each.dialect)


def scripts(folder: Path) -> ScriptTree:
    (folder / "test.yaml").write_text(
        "schema_version: 1\ncase_id: a_case\ntitle: A\nrunner: {type: llm_probe}\n"
        "input: {messages: [{role: user, content: Go.}]}\n"
        "deterministic_checks: [{check_id: x, declarative: {kind: final_response_present}}]\n"
    )
    (folder / "demo.yaml").write_text(
        "schema_version: 1\nreplies:\n- when: Go.\n  steps:\n"
        f"  - {{tool_calls: [{{name: write, arguments: {{path: a.md}}}}], {USAGE}}}\n"
        f"  - {{content: Done it., {USAGE}}}\n"
    )
    return ScriptTree(folder)


async def post(it: Served, spoken: Spoken, body: dict[str, Any], *, stream: bool = False) -> httpx2.Response:
    return await it.http.post(spoken.at(it.model.requested_model, stream=stream), json=body)


@spoken
def test_a_tool_loop_is_answered_by_one_script_and_traced_alike(tmp_path: Path, spoken: Spoken) -> None:
    async def run() -> None:
        async with served(DEMO, tmp_path, scripts=scripts(tmp_path)) as it:
            body = spoken.ask("Please: Go.", tools=[spoken.tool])
            first = (await post(it, spoken, body)).json()
            body[HISTORY[spoken.dialect]] += spoken.called(first, "no room")
            last = (await post(it, spoken, body)).json()
            assert spoken.text(last) == "Done it."
            assert spoken.usage(last) == (11, 2, 3)
            usage = it.trace.usage
            assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.reasoning_tokens) == (
                22,
                4,
                6,
                2,
            )
            [call], [result] = it.events(ToolCallEvent), it.events(ToolResultEvent)
            assert (call.name, call.arguments) == ("write", {"path": "a.md"})
            assert (result.content, result.is_error) == ("no room", spoken is MESSAGES)
            assert result.duration_seconds > 0
            mode = "relay" if spoken is CHAT else "translate"
            assert it.trace.provider["usage_source"] == "gateway"
            told = it.trace.provider["gateway"]
            assert told["dialects"] == [{"dialect": spoken.dialect, "wire": "chat", "mode": mode}]
            assert (told["conversations"], told["main"]) == (1, 1)
            assert [(note["dialect"], note["mode"]) for note in it.notes("request")] == [(spoken.dialect, mode)] * 2

    asyncio.run(run())


@spoken
def test_a_stream_tells_the_same_in_events(tmp_path: Path, spoken: Spoken) -> None:
    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            body = spoken.ask("Go.", "told-v1", **({} if spoken is GEMINI else {"stream": True}))
            response = await post(it, spoken, body, stream=True)
            assert response.headers["content-type"] == "text/event-stream"
            assert "".join(re.findall(r'"(?:text|content|delta)":"([^"]*)"', response.text)).count("Hello there.") >= 1

    with told(assistant("Hello there.")) as (model, _):
        asyncio.run(run(model))


def refused(it: Served, spoken: Spoken, response: httpx2.Response, status: int, code: str) -> None:
    assert (response.status_code, spoken.code(response.json())) == (status, code), response.text
    assert it.notes("request") == []


@pytest.mark.slow
@spoken
def test_unsupported_requests_are_refused_in_the_format_of_the_api(tmp_path: Path, spoken: Spoken) -> None:
    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            path, good = spoken.at("told-v1"), spoken.ask("Go.", "told-v1")
            for response, status, code in (
                (await it.http.post(path, content=b"{"), 400, "invalid_json"),
                (await it.http.post(path, json={**good, "container": "c_1"}), 400, "unsupported_parameter"),
                (await it.http.post(path, json={**good, HISTORY[spoken.dialect]: []}), 400, "invalid_request"),
                (await it.http.post(path, json={**good, "tools": [spoken.server_tool]}), 400, "server_tool"),
                (await it.http.post(path, content=b" " * (33 * 2**20)), 413, "too_large"),
                (
                    await it.http.post(path, json=good, headers={"content-encoding": "gzip"}),
                    415,
                    "unsupported_encoding",
                ),
                (await it.http.post(spoken.at("other"), json=spoken.ask("Go.", "other")), 404, "model_not_found"),
            ):
                refused(it, spoken, response, status, code)
            assert it.gateway.refused == "other"
            end = it.gateway.find_end(answered=True)
            assert end is not None
            assert end.error is not None
            assert end.error.code == "server_tool"

    with told() as (model, requests):
        asyncio.run(run(model))
    assert requests == []


@spoken
def test_one_request_more_than_may_be_is_refused(
    tmp_path: Path, spoken: Spoken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "_MOST_REQUESTS", 1)

    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            assert (await post(it, spoken, spoken.ask("Go.", "told-v1"))).status_code == 200
            response = await post(it, spoken, spoken.ask("Go.", "told-v1"))
            assert (response.status_code, spoken.code(response.json())) == (400, "limit")

    with told(assistant("One.")) as (model, _):
        asyncio.run(run(model))


@pytest.mark.slow
@spoken
def test_an_outage_has_the_status_that_the_agent_does_not_ask_again_after(tmp_path: Path, spoken: Spoken) -> None:
    async def run(endpoint: FaultEndpoint) -> None:
        model = Model(model_id="m", requested_model="told-v1", base_url=endpoint.base_url, api_key_env=None)
        async with served(model, tmp_path, policy=GatewayPolicy(outage_status=401)) as it:
            for _ in range(3):
                response = await post(it, spoken, spoken.ask("Go.", "told-v1"))
                assert (response.status_code, spoken.code(response.json())) == (401, "no_answer")
                assert NO_ANSWER in response.text
            assert len(endpoint.requests) == 1
            assert it.gateway.outage is not None

    with FaultEndpoint(always("401")) as endpoint:
        asyncio.run(run(endpoint))


@spoken
def test_silence_is_filled_until_a_failure_comes_in_an_event(
    tmp_path: Path, spoken: Spoken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "_PATIENCE_SECONDS", 0.02)

    async def run(endpoint: FaultEndpoint) -> None:
        model = Model(model_id="m", requested_model="told-v1", base_url=endpoint.base_url, api_key_env=None)
        async with served(model, tmp_path, timeout_seconds=0.1) as it:
            body = spoken.ask("Go.", "told-v1", **({} if spoken is GEMINI else {"stream": True}))
            response = await post(it, spoken, body, stream=True)
            assert response.status_code == 200
            alive = {"chat": '"choices":[]', "responses": ": keep-alive", "messages": "ping", "gemini": "data: {}"}
            assert response.text.count(alive[spoken.dialect]) >= 2
            assert NO_ANSWER in response.text.rpartition(alive[spoken.dialect])[2]

    with FaultEndpoint(always("hang")) as endpoint:
        asyncio.run(run(endpoint))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "headers", "found"),
    [
        ("/v1/models", {}, lambda body: [each["id"] for each in body["data"]]),
        ("/models", {}, lambda body: [each["id"] for each in body["data"]]),
        ("/v1/models", {"anthropic-version": "2023-06-01"}, lambda body: [each["id"] for each in body["data"]]),
        ("/v1beta/models", {}, lambda body: [each["name"].removeprefix("models/") for each in body["models"]]),
        ("/any/prefix/v1/models/demo", {}, lambda body: [body["id"]]),
    ],
)
def test_the_list_of_models_is_the_runs_own(tmp_path: Path, path: str, headers: dict[str, str], found: Any) -> None:
    async def run() -> None:
        async with served(DEMO, tmp_path) as it:
            assert found((await it.http.get(path, headers=headers)).json()) == ["demo"]
            assert (await it.http.head("/")).status_code == 200
            assert (await it.http.get("/v1/models/other")).status_code == 404

    asyncio.run(run())


def test_requests_to_other_endpoints_are_in_the_trace_and_the_run_continues(tmp_path: Path) -> None:
    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            response = await it.http.post("/r/a-token/v1/embeddings", json={})
            refused(it, CHAT, response, 404, "unknown_route")
            assert it.notes("refused_endpoint") == [{"method": "POST", "path": "/v1/embeddings"}]
            assert (await it.message())["content"] == "Hello."

    with told(assistant("Hello.")) as (model, _):
        asyncio.run(run(model))


@pytest.mark.slow
def test_tokens_are_counted_ten_times_a_second_and_change_no_number(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(DEMO, tmp_path, scripts=scripts(tmp_path)) as it:
            body, begun = MESSAGES.ask("x" * 400), asyncio.get_running_loop().time()
            counting = [it.http.post("/v1/messages/count_tokens", json=body) for _ in range(11)]
            assert {response.text for response in await asyncio.gather(*counting)} == {'{"input_tokens": 100}'}
            assert asyncio.get_running_loop().time() - begun >= 0.99
            counted = await it.http.post("/v1beta/models/demo:countTokens", json=GEMINI.ask("x" * 401))
            assert counted.json() == {"totalTokens": 101}
            assert it.trace.usage.input_tokens is None
            assert it.notes("request") == []

    asyncio.run(run())


@spoken
def test_names_are_rewritten_and_tools_left_out_where_the_agent_cannot_help_it(tmp_path: Path, spoken: Spoken) -> None:
    async def run(model: Model) -> None:
        async with served(model, tmp_path, policy=GatewayPolicy(pin="rewrite", server_tools="remove")) as it:
            body = spoken.ask("Go.", "flash-lite", tools=[spoken.tool, spoken.server_tool])
            assert (await it.http.post(spoken.at("flash-lite"), json=body)).status_code == 200
            told = it.trace.provider["gateway"]
            assert told["rewritten_models"] == ["flash-lite"]
            assert len(told["removed_tools"]) == 1
            assert it.gateway.find_end(answered=False) is None

    with told(assistant("Hello.")) as (model, requests):
        asyncio.run(run(model))
    assert requests[0]["model"] == "told-v1"
    assert [tool["function"]["name"] for tool in requests[0]["tools"]] == ["write"]


def test_thoughts_go_back_to_the_model_that_a_dialect_has_no_room_for(tmp_path: Path) -> None:
    first = assistant(None, ("write", {"path": "a"}))
    details = [{"type": "reasoning.encrypted", "data": "sealed"}]
    first["choices"][0]["message"] |= {"reasoning_details": details, "reasoning_content": "Let me see."}
    first["choices"][0]["message"]["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "signed"}}

    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            for spoken in SPOKEN[1:]:
                body = spoken.ask("Go.", "told-v1", tools=[spoken.tool])
                reply = (await post(it, spoken, body)).json()
                assert "sealed" not in json.dumps(reply)
                body[HISTORY[spoken.dialect]] += spoken.called(reply, "ok")
                await post(it, spoken, body)

    with told(*[first, assistant("Done.")] * 3) as (model, requests):
        asyncio.run(run(model))
    for request in requests[1::2]:
        [own] = [message for message in request["messages"] if message["role"] == "assistant"]
        assert own["reasoning_details"] == details
        assert own["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "signed"}}


def test_side_conversations_are_numbered_and_helpers_use_up_no_step(tmp_path: Path) -> None:
    policy = GatewayPolicy(helpers=(Helper(re.compile("write a title"), "A title"),))

    async def run() -> None:
        async with served(DEMO, tmp_path, scripts=scripts(tmp_path), policy=policy) as it:
            title = [{"role": "system", "content": "You write a title."}, {"role": "user", "content": "Go."}]
            assert (await it.message(title))["content"] == "A title"
            assert it.trace.usage.input_tokens is None
            history = [{"role": "system", "content": "You work."}, {"role": "user", "content": "Go."}]
            first = await it.message(history, tools=[CHAT.tool])
            history += [first, {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "ok"}]
            assert (await it.message(history, tools=[CHAT.tool]))["content"] == "Done it."
            # A sub-agent begins anew, with the same words in another system text
            other = [{"role": "system", "content": "You search."}, {"role": "user", "content": "Go."}]
            await it.message(other, tools=[CHAT.tool])
            assert [note["conversation"] for note in it.notes("request")] == [2, 2, 3]
            assert [note["conversation"] for note in it.notes("side_call")] == [3]
            described = it.trace.provider["gateway"]
            assert (described["conversations"], described["main"]) == (3, 2)

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_each_refusal_is_the_error_that_openais_client_has_for_it(tmp_path: Path, dialect: str) -> None:
    async def run(model: Model) -> None:
        async with served(model, tmp_path) as it:
            sdk = openai.AsyncOpenAI(api_key="none", base_url="http://gateway/v1", http_client=it.http, max_retries=0)

            async def ask(name: str = "told-v1", **fields: Any) -> Any:
                if dialect == "responses":
                    return await sdk.responses.create(model=name, input="Go.", **fields)
                return await sdk.chat.completions.create(model=name, messages=GO, **fields)

            with pytest.raises(openai.NotFoundError, match="no other"):
                await ask("other")
            with pytest.raises(openai.BadRequestError, match="web_search"):
                await ask(tools=[{"type": "web_search"}])
            with pytest.raises(openai.NotFoundError, match="not served"):
                await sdk.embeddings.create(model="told-v1", input="Go.")
            await ask()
            with pytest.raises(openai.BadRequestError, match="maximum context length"):
                await ask()
        async with served(model, tmp_path, text=None) as it:
            sdk = openai.AsyncOpenAI(api_key="none", base_url="http://gateway/v1", http_client=it.http, max_retries=0)
            with pytest.raises(openai.ConflictError, match="turn is over"):
                await ask()

    with told(assistant("Hello."), "This model's maximum context length is 8192 tokens.") as (model, _):
        asyncio.run(run(model))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    "type",
    "role",
    "content",
    "text",
    "id",
    "call_id",
    "name",
    "arguments",
    "input",
    "output",
    "source",
    "parts",
    "functionCall",
    "functionResponse",
    "inlineData",
    "tool_calls",
    "function",
    "tool_use_id",
    "response",
    "args",
]
WORDS = [
    "user",
    "assistant",
    "model",
    "tool",
    "message",
    "function_call",
    "function_call_output",
    "reasoning",
    "text",
    "tool_use",
    "tool_result",
    "thinking",
    "image",
    "image_url",
    "input_image",
    "custom_tool_call",
    "function",
]
FIELDS = [
    "tools",
    "system",
    "instructions",
    "systemInstruction",
    "generationConfig",
    "tool_choice",
    "toolConfig",
    "stream",
    "text",
    "thinking",
    "reasoning",
    "output_config",
    "response_format",
    "metadata",
    "stop_sequences",
    "include",
]
SAID = JSON | st.sampled_from(WORDS)
OBJECT = st.dictionaries(st.sampled_from(KEYS), SAID, max_size=5)
NESTED = st.dictionaries(st.sampled_from(KEYS), SAID | st.lists(OBJECT, max_size=2), max_size=5)


@pytest.mark.slow
@pytest.mark.parametrize("spoken", SPOKEN[1:], ids=lambda each: each.dialect)
def test_no_request_breaks_a_dialect(tmp_path: Path, caplog: pytest.LogCaptureFixture, spoken: Spoken) -> None:
    """Whatever is in it, it is refused or asked."""

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(NESTED | JSON, max_size=4),
        st.dictionaries(st.sampled_from(FIELDS), JSON | OBJECT | st.lists(NESTED, max_size=2), max_size=4),
    )
    def refused_or_asked(history: list[Any], fields: dict[str, Any]) -> None:
        async def run() -> None:
            async with served(model, tmp_path) as it:
                body = json.dumps({**spoken.ask("Go.", "m-1"), **fields, HISTORY[spoken.dialect]: history})
                response = await it.http.post(spoken.at("m-1"), content=body.encode("utf-8", "replace"))
                assert response.status_code in (200, 400), response.text

        asyncio.run(run())

    with FaultEndpoint() as endpoint:
        model = Model(model_id="m", requested_model="m-1", base_url=endpoint.base_url, api_key_env=None)
        refused_or_asked()
    assert caplog.records == []


@spoken
@pytest.mark.parametrize("finish", ["abort", "cancelled"])
def test_a_generation_that_the_server_gave_up_is_an_outage_to_an_agent(
    tmp_path: Path, spoken: Spoken, finish: str
) -> None:
    async def run() -> None:
        async with served(model, tmp_path) as it:
            answered = await post(it, spoken, spoken.ask("Go.", "told-v1"))
            assert (answered.status_code, "Par" in answered.text) == (400, False)
            assert NO_ANSWER in answered.text
            assert it.gateway.outage is not None
            assert it.gateway.outage.reason == "aborted"  # type: ignore[attr-defined]

    with told(assistant("Par", finish=finish)) as (model, _):
        asyncio.run(run())
