"""Which model an id means, and where it is asked."""

from __future__ import annotations

import pytest

from pytest_agentbench.config.model_entries import ModelEntry, SuiteModel
from pytest_agentbench.config.profiles import ModelsFile, SuiteFile
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.routes import describe_route, missing_key, resolve_model
from pytest_agentbench.records.case import Limits, Prices

OPENROUTER = "https://openrouter.ai/api/v1"
ANTHROPIC = "https://api.anthropic.com/v1"


def models(*entries: dict) -> ModelsFile:
    return ModelsFile(schema_version=1, models=tuple(ModelEntry(**entry) for entry in entries))


def suite(**fields) -> SuiteFile:
    return SuiteFile(schema_version=1, suite_id="s", title="S", models=(SuiteModel(**{"model_id": "m"} | fields),))


def resolve(model_id="m", *entries: dict, of=None, **environ: str):
    return resolve_model(model_id, models=models(*entries), suite=of, environ=environ)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"requested_model": "a", "openrouter_model": "b", "provider": "p", "model_name": "c"}, "a"),
        ({"openrouter_model": "b", "provider": "p", "model_name": "c"}, "b"),
        ({"provider": "p", "model_name": "c"}, "p/c"),
        ({}, "m"),
    ],
)
def test_the_order_of_the_reference(fields, name):
    assert resolve(of=suite(**fields)).requested_model == name


def test_a_suite_model_is_completed_by_the_entry_and_wins():
    entry = {
        "model_id": "m",
        "requested_model": "entry-name",
        "api": "messages",
        "label": "Entry",
        "base_url": "http://localhost:1/v1",
        "api_key_env": "none",
        "parameters": {"temperature": 0},
        "prices": {"input_per_1m": 1, "output_per_1m": 2},
        "limits": {"rpm": 5},
    }
    own = {
        "api": "responses",
        "openrouter_model": "suite/name",
        "label": "Suite",
        "primary_params": {"reasoning": {"effort": "low"}},
    }
    own |= {"temperature": 1, "parameters": {"seed": 2, "top_p": 0.5}, "extra_body": {"mine": 1}, "top_p": 0.6}
    model = resolve("m", entry, of=suite(**own))
    assert (model.requested_model, model.label, model.base_url) == ("suite/name", "Suite", "http://localhost:1/v1")
    assert model.api_key_env is None
    merged = {"temperature": 1, "seed": 2, "top_p": 0.6, "mine": 1, "reasoning": {"effort": "low"}}
    assert model.parameters == merged
    assert model.api == "responses"
    assert model.prices == Prices(input_per_1m=1, output_per_1m=2)
    assert model.limits == Limits(rpm=5)
    assert model.options == {}


def test_an_entry_alone_and_a_literal_name():
    assert resolve("big", {"model_id": "big", "requested_model": "gpt-9"}).requested_model == "gpt-9"
    literal = resolve("gpt-4o-mini")
    assert (literal.requested_model, literal.base_url, literal.api_key_env) == ("gpt-4o-mini", None, "OPENAI_API_KEY")


@pytest.mark.parametrize(
    ("entry", "environ", "base_url", "key"),
    [
        ({}, {"OPENROUTER_API_KEY": "k"}, OPENROUTER, "OPENROUTER_API_KEY"),
        ({}, {}, None, "OPENAI_API_KEY"),
        ({}, {"OPENROUTER_API_KEY": "k", "OPENAI_BASE_URL": "https://x/v1"}, "https://x/v1", "OPENAI_API_KEY"),
        ({"base_url": "https://x/v1"}, {"OPENAI_BASE_URL": "https://x/v2"}, "https://x/v1", "OPENAI_API_KEY"),
        ({"base_url": OPENROUTER}, {}, OPENROUTER, "OPENROUTER_API_KEY"),
        ({"api_key_env": "OPENAI_API_KEY"}, {"OPENROUTER_API_KEY": "k"}, None, "OPENAI_API_KEY"),
        ({"requested_model": "no-slash"}, {"OPENROUTER_API_KEY": "k"}, None, "OPENAI_API_KEY"),
        ({"api_key_env": "none", "base_url": "http://y/v1"}, {}, "http://y/v1", None),
        ({"api": "messages"}, {"OPENAI_BASE_URL": "https://x/v1"}, ANTHROPIC, "ANTHROPIC_API_KEY"),
        ({"api": "messages"}, {"OPENROUTER_API_KEY": "k"}, ANTHROPIC, "ANTHROPIC_API_KEY"),
        ({"api": "messages", "base_url": OPENROUTER}, {}, OPENROUTER, "OPENROUTER_API_KEY"),
        ({"api": "messages", "base_url": "http://y/v1", "api_key_env": "none"}, {}, "http://y/v1", None),
        ({"api": "responses"}, {"OPENAI_BASE_URL": "https://x/v1"}, "https://x/v1", "OPENAI_API_KEY"),
    ],
)
def test_the_route(entry, environ, base_url, key):
    model = resolve("m", {"model_id": "m", "requested_model": "openai/gpt-4o"} | entry, **environ)
    assert (model.base_url, model.api_key_env) == (base_url, key)


def test_demo_is_scripted_with_or_without_an_entry():
    assert resolve("demo", of=suite(model_id="demo", api="messages")).api == "chat"
    for model in (resolve("demo", OPENAI_BASE_URL="http://x/v1"), resolve("demo", {"model_id": "demo", "label": "D"})):
        assert (model.scripted, model.base_url, model.api_key_env, model.judge) == (True, None, None, "demo")
    assert not resolve("demo", {"model_id": "demo", "base_url": "http://x/v1", "api_key_env": "none"}).scripted
    assert resolve("other", {"model_id": "other", "scripted": True, "judge": "demo"}).judge == "demo"


def test_a_missing_key_is_named_with_the_ways_out():
    sentence = missing_key(resolve("gpt-4o"), {})
    assert "OPENAI_API_KEY is not set ('gpt-4o' at https://api.openai.com/v1" in sentence
    assert "run offline with --model demo" in sentence
    assert missing_key(resolve("gpt-4o"), {"OPENAI_API_KEY": "k"}) is None
    assert missing_key(resolve("demo"), {}) is None


@pytest.mark.parametrize("key", ["sk-one\nsk-two", "sk-\N{LATIN SMALL LETTER E WITH ACUTE}", " \n"])
def test_a_key_that_no_request_can_carry_is_refused_without_showing_it(key):
    problem = missing_key(resolve("gpt-4o"), {"OPENAI_API_KEY": key})
    assert problem is not None
    assert "OPENAI_API_KEY" in problem
    assert "sk-" not in problem


def test_the_route_is_described_for_people():
    assert describe_route(resolve("demo")) == "demo is scripted: answered offline, from scripts next to the cases"
    local = resolve("m", {"model_id": "m", "base_url": "http://y/v1", "api_key_env": "none"})
    assert describe_route(local) == "'m' at http://y/v1 without a key"


def test_a_query_in_the_address_joins_the_query_of_its_requests():
    entry = {
        "model_id": "m",
        "base_url": "https://x.openai.azure.com/openai/deployments/dep?api-version=2024-10-21",
        "api_key_env": "AZURE_OPENAI_API_KEY",
        "query": {"trace": "1"},
    }
    model = resolve_model("m", models=models(entry), environ={})
    assert model.base_url == "https://x.openai.azure.com/openai/deployments/dep"
    assert model.query == {"api-version": "2024-10-21", "trace": "1"}


def test_a_header_with_a_key_variable_replaces_the_api_key():
    entry = {
        "model_id": "m",
        "base_url": "https://x.openai.azure.com/openai",
        "headers": {"api-key": "env:AZURE_OPENAI_API_KEY"},
    }
    model = resolve_model("m", models=models(entry), environ={})
    assert (model.api_key_env, model.variables) == (None, ["AZURE_OPENAI_API_KEY"])


def test_a_headers_variable_goes_only_where_keys_may_go():
    entry = {
        "model_id": "m",
        "base_url": "https://elsewhere.example.org/v1",
        "api_key_env": "none",
        "headers": {"X-Key": "env:OPENAI_API_KEY"},
    }
    with pytest.raises(ConfigError, match=r"the key in OPENAI_API_KEY would go to elsewhere\.example\.org"):
        resolve_model("m", models=models(entry), environ={})
    plain = entry | {"base_url": "http://elsewhere.example.org/v1"}
    with pytest.raises(ConfigError, match="could read the key"):
        resolve_model("m", models=models(plain), environ={})


def test_wires_are_reached_as_the_model_is_unless_they_say_otherwise():
    entry = {
        "model_id": "m",
        "base_url": "http://127.0.0.1:1/v1",
        "api_key_env": "none",
        "headers": {"X-Team": "a"},
        "wires": {"responses": {}, "messages": {"base_url": "http://127.0.0.1:2/v1"}},
    }
    model = resolve("m", entry)
    found = {name: (wire.api, wire.base_url, wire.headers) for name, wire in model.wires.items()}
    assert found == {
        "responses": ("responses", "http://127.0.0.1:1/v1", {"X-Team": "a"}),
        "messages": ("messages", "http://127.0.0.1:2/v1", {}),
    }
    assert model.find_wire("chat") is model
    assert model.find_wire("messages") is model.wires["messages"]
    assert model.find_wire("gemini") is None


def test_wires_may_be_a_list_and_those_of_other_hosts_have_their_own_keys():
    listed = resolve("m", {"model_id": "m", "wires": ["chat", "responses"]})
    assert {name: wire.api_key_env for name, wire in listed.wires.items()} == {"responses": "OPENAI_API_KEY"}
    claude = {
        "model_id": "m",
        "base_url": "https://openrouter.ai/api/v1",
        "wires": {"messages": {"base_url": ANTHROPIC}},
    }
    assert resolve("m", claude).wires["messages"].api_key_env == "ANTHROPIC_API_KEY"


def test_the_key_of_a_wire_goes_only_where_it_belongs():
    entry = {"model_id": "m", "wires": {"messages": {"base_url": "https://elsewhere.example.org/v1"}}}
    with pytest.raises(ConfigError, match=r"would go to elsewhere\.example\.org"):
        resolve("m", entry)


def test_scripts_answer_every_dialect_by_themselves():
    with pytest.raises(ValueError, match=r"found \['responses'\], expected none: scripts answer"):
        ModelEntry(model_id="m", scripted=True, wires=["responses"])
    assert resolve("demo").find_wire("chat") is None
