"""How requests are spelled for their endpoint, and which endpoint speaks which dialect."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.config.dialects import DIALECTS, resolve_dialect
from pytest_agentbench.config.model_entries import ModelEntry
from pytest_agentbench.identity.fingerprints import endpoint_input
from pytest_agentbench.models.routes import missing_key
from pytest_agentbench.models.spelling import Spelling, compose_request, dialect_of, write_request
from pytest_agentbench.records.case import Dialect, DialectName, Model

ASKED = [{"role": "user", "content": "2 + 2?"}]


def spelled(dialect: str, *messages: dict, tools=(), overrides: Dialect | None = None, **parameters) -> dict:
    model = Model(model_id="m", requested_model="m", dialect=dialect, dialect_overrides=overrides)
    return Spelling(dialect_of(model), model).spell(compose_request(model, [*ASKED, *messages], tools, parameters))[0]


def test_every_dialect_that_a_file_may_name_is_described():
    assert list(DIALECTS) == list(get_args(DialectName))


@pytest.mark.parametrize(
    ("address", "dialect"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://my-resource.openai.azure.com/openai/v1", "azure"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://api.anthropic.com/v1/", "anthropic"),
        ("https://generativelanguage.googleapis.com/v1beta/openai/", "gemini"),
        ("https://europe-west4-aiplatform.googleapis.com/v1", "vertex"),
        ("https://api.deepseek.com", "deepseek"),
        ("https://api.moonshot.cn/v1", "moonshot"),
        ("https://api.mistral.ai/v1", "mistral"),
        ("https://api.groq.com/openai/v1", "groq"),
        ("https://api.x.ai/v1", "xai"),
        ("https://api.together.xyz/v1", "together"),
        ("https://api.fireworks.ai/inference/v1", "fireworks"),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1", "bedrock"),
        ("http://localhost:11434/v1", "local"),
        ("http://[::1]:8000/v1", "local"),
        ("https://api.openai.com.example.org/v1", "other"),
        ("http://gpu-3:8000/v1", "other"),
    ],
)
def test_the_host_says_the_dialect(address, dialect):
    assert resolve_dialect("auto", address) is DIALECTS[dialect][1]


@pytest.mark.parametrize("said", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(("dialect", "sent"), [("openai", "max_completion_tokens"), ("deepseek", "max_tokens")])
def test_the_limit_goes_under_the_endpoints_name(dialect, said, sent):
    body = spelled(dialect, **{said: 64})
    assert body[sent] == 64
    assert ("max_tokens" in body) + ("max_completion_tokens" in body) == 1


def test_a_profile_takes_precedence_over_the_entry_under_any_name_of_the_limit():
    model = Model(model_id="m", requested_model="m", parameters={"max_completion_tokens": 9})
    assert "max_completion_tokens" not in compose_request(model, ASKED, (), {"max_tokens": 5})
    assert compose_request(model, ASKED, (), {"max_tokens": None}) == {"model": "m", "messages": ASKED}


def test_seed_and_reasoning_have_their_own_names():
    assert spelled("mistral", seed=1)["random_seed"] == 1
    assert spelled("openai", reasoning={"effort": "low"})["reasoning_effort"] == "low"
    assert spelled("openrouter", reasoning={"effort": "low"})["reasoning"] == {"effort": "low"}


def test_unknown_keys_go_back_unchanged_and_empty_ones_do_not():
    call = {
        "id": "c1",
        "type": "function",
        "index": 0,
        "function": {"name": "add", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "SIG"}},
    }
    message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [call],
        "refusal": None,
        "annotations": [{"url": "x"}],
        "audio": {},
        "reasoning_details": [{"data": "ENC", "index": 0, "summary": None}],
    }
    assert spelled("openrouter", message)["messages"][1] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{name: value for name, value in call.items() if name != "index"}],
        "reasoning_details": [{"data": "ENC", "index": 0, "summary": None}],
    }


def test_strict_endpoints_get_known_keys_alone():
    message = {"role": "assistant", "content": "4", "reasoning": "2 and 2", "reasoning_content": "x", "prefix": False}
    assert spelled("mistral", message)["messages"][1] == {"role": "assistant", "content": "4"}
    assert spelled("groq", message)["messages"][1] == {"role": "assistant", "content": "4", "reasoning": "2 and 2"}


def test_reasoning_that_one_message_had_is_in_all_of_them():
    first = {"role": "assistant", "content": "a", "reasoning_content": "hm"}
    later = {"role": "assistant", "content": "b"}
    assert [m.get("reasoning_content") for m in spelled("deepseek", first, later)["messages"]] == [None, "hm", ""]
    assert "reasoning_content" not in spelled("deepseek", later)["messages"][1]
    assert later == {"role": "assistant", "content": "b"}


def test_single_settings_of_a_dialect_are_overridden():
    overrides = Dialect(limit="max_tokens", never_back=("reasoning",))
    message = {"role": "assistant", "content": "4", "reasoning": "x", "annotations": [1]}
    body = spelled("openai", message, overrides=overrides, max_tokens=8)
    assert body["max_tokens"] == 8
    assert body["messages"][1] == {"role": "assistant", "content": "4", "annotations": [1]}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"headers": {"api-key": "sk-live-0123456789"}}, "keys must not be in files"),
        ({"headers": {"X-Team": "env:not a name"}}, "expected env:VARIABLE"),
        ({"headers": {"bad name": "x"}}, "HTTP does not allow"),
        ({"dialect": "opnai"}, "'openai'"),
        ({"dialect_overrides": {"limits": "max_tokens"}}, "limits"),
        ({"dialect": "anthropic", "parameters": {"temperature": 1.5}}, "found 1.5, expected at most 1"),
        ({"base_url": "https://api.anthropic.com/v1", "parameters": {"temperature": 1.5}}, "expected at most 1"),
    ],
)
def test_an_entry_that_cannot_be_is_refused(entry, said):
    with pytest.raises(ValueError, match=said):
        ModelEntry.model_validate({"model_id": "m", **entry})


def test_only_names_that_can_change_the_model_count():
    model = Model(
        model_id="m",
        requested_model="m",
        headers={"api-key": "env:K", "HTTP-Referer": "https://example.org", "Anthropic-Beta": "x"},
        query={"api-version": "2024-10-21", "trace": "1"},
    )
    assert endpoint_input(model) == {"headers": ["anthropic-beta"], "query": ["api-version"]}
    assert endpoint_input(Model(model_id="m", requested_model="m")) == {}
    claude = Model(model_id="m", requested_model="m", api="messages")
    assert endpoint_input(claude) == {"api": "messages"}
    assert endpoint_input(Model(model_id="m", requested_model="m", wires={"messages": claude})) == {
        "wires": {"messages": None}
    }


def test_a_variable_of_a_header_has_to_be_set():
    model = Model(model_id="m", requested_model="m", api_key_env=None, headers={"api-key": "env:AZURE_KEY"})
    assert "AZURE_KEY is not set" in (missing_key(model, {}) or "")
    assert missing_key(model, {"AZURE_KEY": "k"}) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_a_request_is_read_as_it_was_meant(request_body: dict) -> None:
    assert json.loads(write_request(request_body)) == request_body


def test_half_characters_and_deep_values_are_written_too():
    deep: list = []
    for _ in range(400):
        deep = [deep]
    assert (
        write_request({"\ud800": "é\udfff", "deep": deep})
        == b'{"?":"\xc3\xa9?","deep":' + b"[" * 401 + b"]" * 401 + b"}"
    )
