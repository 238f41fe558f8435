"""One demo.yaml, asked over HTTP in every dialect, by our own client and by OpenAI's."""

from __future__ import annotations

import asyncio

import httpx2
import openai
import pytest
from support.script_server import served

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.apis.choice import AGENT_APIS
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.script_trees import ScriptTree
from pytest_agentbench.records.case import Model

CASE = """
schema_version: 1
case_id: two_files
title: A case
runner: {type: llm_probe}
input:
  messages:
    - {role: user, content: What do they say?}
"""
USAGE = "{input_tokens: 11, cached_tokens: 2, output_tokens: 3, reasoning_tokens: 1}"
SCRIPT = f"""
schema_version: 1
replies:
  - when: What do they say?
    steps:
      - tool_calls:
          - {{name: read_file, arguments: {{path: a.txt}}}}
          - {{name: read_file, arguments: {{path: "ü b.txt"}}}}
        usage: {USAGE}
      - {{content: "Both say 42.", usage: {USAGE}}}
  - {{when: Fail, steps: [{{error: {{status: 404, message: nothing here, code: gone}}}}]}}
"""
QUESTION = {"role": "user", "content": "What do they say?"}
TOOL = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scripts") / "two_files"
    folder.mkdir()
    (folder / "test.yaml").write_text(CASE)
    (folder / "demo.yaml").write_text(SCRIPT)
    with served(ScriptTree(folder.parent)) as url:
        yield url


def ask(address: str, api: str, *conversations: list[dict], stream: bool = False) -> list:
    """What our own client is told, as a model that is asked in this protocol."""

    async def main():
        model = Model(model_id="m", requested_model="m", base_url=address, api=api, api_key_env=None)
        endpoints = Endpoints(environ={})
        try:
            client = endpoints.client(model)
            return [
                await client.complete(messages, tools=[TOOL], stream=stream, retries=0) for messages in conversations
            ]
        finally:
            await endpoints.close()

    return asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", sorted(AGENT_APIS))
def test_a_tool_loop(address, name, stream):
    [called] = ask(address, name, [QUESTION], stream=stream)
    assert [(call.name, call.arguments) for call in called.tool_calls] == [
        ("read_file", {"path": "a.txt"}),
        ("read_file", {"path": "ü b.txt"}),
    ]
    results = [{"role": "tool", "tool_call_id": call.id, "content": "42"} for call in called.tool_calls]
    [answer] = ask(address, name, [QUESTION, called.message, *results], stream=stream)
    assert (answer.content, answer.end, answer.model) == ("Both say 42.", "answered", "m")
    for usage in (called.usage, answer.usage):
        assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (11, 2, 3)
        assert usage.reasoning_tokens == (None if name == "messages" else 1)


@pytest.mark.parametrize("name", sorted(AGENT_APIS))
def test_an_error(address, name):
    with pytest.raises(ProviderError, match="nothing here"):
        ask(address, name, [{"role": "user", "content": "Fail"}])


@pytest.mark.slow
def test_openai_s_client_asks_in_responses(address):
    with openai.OpenAI(base_url=address, api_key="none", max_retries=0) as client:
        tool = {"type": "function", **TOOL["function"]}
        asked = [QUESTION]
        first = client.responses.create(model="m", input=asked, tools=[tool])
        assert (first.status, first.usage.total_tokens) == ("completed", 14)
        asked += [item.model_dump() for item in first.output]
        asked += [{"type": "function_call_output", "call_id": each.call_id, "output": "42"} for each in first.output]
        with client.responses.stream(model="m", input=asked, tools=[tool]) as stream:
            kinds = [event.type for event in stream]
            assert stream.get_final_response().output_text == "Both say 42."
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
        with pytest.raises(openai.NotFoundError, match="nothing here"):
            client.responses.create(model="m", input="Fail")
        with pytest.raises(openai.BadRequestError, match="previous_response_id"):
            client.responses.create(model="m", input="x", previous_response_id="resp_1")
        assert [model.id for model in client.models.list()] == ["demo"]


@pytest.mark.slow
def test_models_counts_and_what_is_not_served(address):
    root = address.removesuffix("/v1")
    asked = {"messages": [QUESTION]}

    def send(method: str, path: str, body: dict | None = None, **headers: str) -> tuple[int, dict]:
        async def main():
            async with httpx2.AsyncClient() as client:
                return await client.request(method, root + path, json=body, headers=headers)

        response = asyncio.run(main())
        return response.status_code, response.json()

    anthropic = {"anthropic-version": "2023-06-01"}
    assert send("GET", "/v1/models")[1]["data"][0]["id"] == "demo"
    assert send("GET", "/v1/models", **anthropic)[1]["data"][0]["type"] == "model"
    assert send("GET", "/v1beta/models")[1]["models"][0]["name"] == "models/demo"
    assert send("GET", "/v1beta/models/other")[1]["name"] == "models/other"
    assert send("POST", "/v1/messages/count_tokens", asked) == (200, {"input_tokens": 5})
    counted = {"generateContentRequest": {"contents": [{"parts": [{"text": QUESTION["content"]}]}]}}
    assert send("POST", "/v1beta/models/m:countTokens", counted) == (200, {"totalTokens": 5})
    status, body = send("POST", "/v1/messages/batches", asked, **anthropic)
    assert (status, body["type"], body["error"]["type"]) == (404, "error", "not_found_error")
    status, body = send("POST", "/v1beta/cachedContents", {})
    assert (status, body["error"]["status"]) == (404, "NOT_FOUND")
    status, body = send("POST", "/v1/embeddings", {})
    assert (status, body["error"]["code"]) == (404, "unknown_route")
    deep: list = []
    for _ in range(200):
        deep = [deep]
    assert send("POST", "/v1/responses", {"input": deep})[0] == 400
