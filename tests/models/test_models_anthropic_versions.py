"""The versions of Anthropic's API: which one a request has, where its key goes, and what it changes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from support.fault_endpoint import FaultEndpoint, always

from pytest_agentbench.config.base import load
from pytest_agentbench.config.profiles import ModelsFile
from pytest_agentbench.errors import ConfigError, ProviderError
from pytest_agentbench.identity.fingerprints import endpoint_input
from pytest_agentbench.models.apis.base import Route
from pytest_agentbench.models.apis.choice import AGENT_APIS
from pytest_agentbench.models.apis.messages import choose_auth_header
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.failures import Backoff
from pytest_agentbench.models.learning import find_change
from pytest_agentbench.models.passing import rewrite_headers, rewrite_request
from pytest_agentbench.models.routes import resolve_model
from pytest_agentbench.records.case import Dialect, Model

OLD, NEW = "2023-06-01", "2026-10-21"


def model_at(endpoint: FaultEndpoint, **fields) -> Model:
    defaults = {"model_id": "m", "requested_model": "m-1", "api": "messages", "api_key_env": "TEST_KEY"}
    return Model(**defaults | {"base_url": endpoint.base_url} | fields)


def sent_headers(asked: dict | None = None, /, *, key: str = "sk-1", **fields) -> dict[str, str]:
    """The headers of a request with these parameters, at a model with these fields."""

    async def main(endpoint: FaultEndpoint) -> None:
        endpoints = Endpoints(backoff=Backoff(first=0.001), environ={"TEST_KEY": key})
        try:
            client = endpoints.client(model_at(endpoint, **fields))
            await client.complete([{"role": "user", "content": "?"}], parameters=asked or {}, retries=0)
        finally:
            await endpoints.close()

    with FaultEndpoint(always("400")) as endpoint:
        with pytest.raises(ProviderError):
            asyncio.run(main(endpoint))
        return endpoint.requests[0].headers


@pytest.mark.parametrize(
    ("parameters", "fields", "version"),
    [
        ({}, {}, NEW),
        ({"max_tokens": 5, "stop": ["x"], "reasoning_effort": "low"}, {}, NEW),
        ({"temperature": 0}, {}, OLD),
        ({"top_p": 0.5}, {}, OLD),
        ({"top_k": 3}, {}, OLD),
        ({}, {"parameters": {"temperature": 1}}, OLD),
        ({"temperature": None}, {"parameters": {"temperature": 1}}, NEW),
        ({}, {"anthropic_version": OLD}, OLD),
        ({"temperature": 0}, {"anthropic_version": NEW}, NEW),
        ({}, {"anthropic_version": "2027-02-03"}, "2027-02-03"),
        ({"temperature": 0}, {"headers": {"Anthropic-Version": "2027-02-03"}}, "2027-02-03"),
        ({}, {"headers": {"anthropic-version": OLD}}, OLD),
    ],
)
def test_a_request_has_the_newest_version_that_takes_it_unless_one_is_set(parameters, fields, version):
    headers = sent_headers(parameters, **fields)
    assert headers["anthropic-version"] == version
    if version == OLD:
        assert (headers.get("x-api-key"), headers.get("authorization")) == ("sk-1", None)
    else:
        assert (headers.get("x-api-key"), headers.get("authorization")) == (None, "Bearer sk-1")


@pytest.mark.parametrize("parameters", [{}, {"temperature": 0}])
@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "x-gateway-key"])
def test_an_entry_may_name_the_header_of_the_key(parameters, name):
    headers = sent_headers(parameters, dialect_overrides=Dialect(auth_header=name))
    value = "Bearer sk-1" if name == "Authorization" else "sk-1"
    assert {each for each in headers if each in ("authorization", "x-api-key", "x-gateway-key")} == {name.lower()}
    assert headers[name.lower()] == value


@pytest.mark.parametrize("parameters", [{}, {"temperature": 0}])
def test_without_a_key_none_is_sent(parameters):
    headers = sent_headers(parameters, key="")
    assert not {"authorization", "x-api-key"} & headers.keys()


def test_other_protocols_have_no_version():
    for api in ("chat", "responses", "gemini"):
        assert "anthropic-version" not in sent_headers(api=api)


def test_the_key_is_in_a_bearer_header_from_the_new_version_on():
    names = {version: choose_auth_header(version) for version in (OLD, "2026-10-20", NEW, "2027-01-01")}
    assert [*names.values()] == ["x-api-key", "x-api-key", "Authorization", "Authorization"]


def test_only_a_version_that_is_set_by_hand_is_part_of_the_fingerprint():
    plain = Model(model_id="m", requested_model="m-1", api="messages")
    assert endpoint_input(plain) == {"api": "messages"}
    by_hand = plain.model_copy(update={"anthropic_version": NEW})
    assert endpoint_input(by_hand) == {"api": "messages", "anthropic_version": NEW}


def test_a_refused_sampling_parameter_is_learned():
    said = {"type": "error", "error": {"type": "invalid_request_error"}}
    said["error"]["message"] = "temperature: Extra inputs are not permitted"
    body = json.dumps(said).encode()
    assert str(find_change(400, body, {"messages": [], "temperature": 0}, ())) == "temperature dropped"
    assert find_change(400, body, {"messages": [], "temperature": 0}, ("temperature",)) is None
    assert find_change(400, body, {"messages": []}, ()) is None
    top_k = body.replace(b"temperature", b"top_k")
    assert str(find_change(400, top_k, {"messages": [], "top_k": 3}, ())) == "top_k dropped"
    other = body.replace(b"temperature", b"messages.0.content.0.citations")
    assert find_change(400, other, {"messages": [], "temperature": 0}, ()) is None


ASKED = {"model": "m-1", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}]}


@pytest.mark.parametrize(
    ("agents", "more", "run", "by_hand", "version"),
    [
        (NEW, {}, {}, None, NEW),
        (OLD, {}, {}, None, OLD),
        ("2030-01-01", {}, {}, None, "2030-01-01"),
        (None, {}, {}, None, NEW),
        (None, {"temperature": 1}, {}, None, OLD),
        (NEW, {"temperature": 1}, {}, None, NEW),  # its endpoint says what it thinks of that
        (NEW, {}, {"temperature": 0}, None, OLD),
        (NEW, {"temperature": 1}, {"temperature": 0}, None, OLD),
        (NEW, {"temperature": 0}, {"temperature": 0}, None, NEW),
        (OLD, {}, {"temperature": 0}, None, OLD),
        (NEW, {}, {"max_tokens": 5}, None, NEW),
        (OLD, {}, {}, NEW, NEW),
        (NEW, {}, {}, OLD, OLD),
        (None, {}, {"temperature": 0}, NEW, NEW),
    ],
)
def test_an_agents_version_passes_unless_the_run_adds_what_it_refuses(agents, more, run, by_hand, version):
    model = Model(model_id="m", requested_model="m-1", api="messages", anthropic_version=by_hand)
    given = ASKED | more
    asked = AGENT_APIS["messages"].read(given, Route("messages", "ask"))
    body = rewrite_request("messages", json.dumps(given).encode(), given, asked, model, run)
    headers = {"anthropic-beta": "x"} | ({"anthropic-version": agents} if agents else {})
    assert rewrite_headers("messages", headers, body, given, model) == {
        "anthropic-beta": "x",
        "anthropic-version": version,
    }
    assert rewrite_headers("chat", headers, body, given, model) is headers


def test_fields_without_a_translation_are_named():
    more = {
        "speed": "fast",
        "inference_geo": "eu",
        "diagnostics": {"a": 1},
        "workspace_id": "w",
        "output_config": {"effort": "low", "task_budget": {"total": 9}},
        "messages": [{"role": "user", "content": [{"type": "text", "text": "?", "citations": [{"type": "x"}]}]}],
    }
    asked = AGENT_APIS["messages"].read(ASKED | more, Route("messages", "ask"))
    assert asked.ignored == ("diagnostics", "inference_geo", "speed", "workspace_id")
    assert set(asked.lost) == {"output_config.task_budget", "citations"}


def write_models(folder: Path, entry: str) -> Path:
    path = folder / "models.yaml"
    path.write_text(f"schema_version: 1\nmodels:\n  - {{model_id: m, {entry}}}\n")
    return path


@pytest.mark.parametrize("written", [NEW, f'"{NEW}"'])
@pytest.mark.parametrize("how", ["api: messages", "wires: [messages]", "batch: anthropic"])
def test_an_entry_sets_the_version(tmp_path, written, how):
    loaded = load(write_models(tmp_path, f"{how}, anthropic_version: {written}, api_key_env: none"), ModelsFile)
    assert resolve_model("m", models=loaded, environ={}).anthropic_version == NEW


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("anthropic_version: 2026-10-21", "found '2026-10-21', which only `api: messages` has"),
        ("api: responses, anthropic_version: 2026-10-21", "found '2026-10-21', which only `api: messages` has"),
        ("api: messages, anthropic_version: newest", "anthropic_version"),
    ],
)
def test_a_version_that_says_nothing_is_refused(tmp_path, entry, said):
    with pytest.raises(ConfigError, match=r"models\.yaml:3:") as caught:
        load(write_models(tmp_path, entry), ModelsFile)
    assert said in str(caught.value)
