"""openclaw.json: one agent, one model, no key; and the request parameters of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openclaw_support import make_agent

from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.packs.openclaw.container import (
    adapt_parameters,
    make_openclaw_config,
    merge_model_parameters,
    model_ref,
)
from pytest_agentbench.records.case import Model

OPENROUTER = "https://openrouter.ai/api/v1"


def a_model(base_url: str | None = "http://127.0.0.1:1/v1", **fields: Any) -> Model:
    return Model(model_id="m", requested_model="openai/gpt-4o-mini", base_url=base_url, **fields)


def test_the_reference_agent_on_openrouter_comes_to_this_configuration(tmp_path: Path) -> None:
    agent = make_agent(
        tmp_path,
        identity={"name": "Support Agent"},
        agents_defaults={"sandbox": "workspace-write", "timeFormat": "24"},
        agent={"id": "support-agent", "prompt": "You are a benchmark example agent."},
        model_defaults={"aliases": {"default": "benchmark-primary"}, "primary_params": {"max_tokens": 8192}},
    )
    model = a_model(OPENROUTER, parameters={"reasoning": {"effort": "medium"}})
    parameters = merge_model_parameters(agent, model, RunnerSettings())

    assert make_openclaw_config(agent, model, parameters, prompt_override=True) == {
        "agents": {
            "defaults": {
                "skipBootstrap": True,
                "timeFormat": "24",
                "workspace": "/workspace",
                "model": {"primary": "openrouter/openai/gpt-4o-mini"},
                "models": {
                    "openrouter/openai/gpt-4o-mini": {
                        "alias": "benchmark-primary",
                        "params": {"max_tokens": 8192, "reasoning": {"effort": "medium"}},
                    }
                },
            },
            "list": [
                {
                    "id": "support-agent",
                    "model": "openrouter/openai/gpt-4o-mini",
                    "systemPromptOverride": "You are a benchmark example agent.",
                }
            ],
        },
        "models": {
            "providers": {
                "openrouter": {
                    "baseUrl": "http://127.0.0.1:18790/v1",
                    "apiKey": "none",
                    "api": "openai-completions",
                    "models": [{"id": "openai/gpt-4o-mini", "name": "openai/gpt-4o-mini"}],
                }
            }
        },
    }


def test_the_models_label_is_for_people_only(tmp_path: Path) -> None:
    """It is no part of a run's fingerprint, so the agent must not see it."""
    labelled = a_model().model_copy(update={"label": "Our favourite"})
    config = make_openclaw_config(make_agent(tmp_path), labelled, {}, prompt_override=True)
    assert config == make_openclaw_config(make_agent(tmp_path), a_model(), {}, prompt_override=True)


def test_a_prompt_that_is_not_to_be_written_is_not(tmp_path: Path) -> None:
    agent = make_agent(tmp_path, agent={"prompt": "Secret of the trade."})
    config = make_openclaw_config(agent, a_model(), {}, prompt_override=False)
    assert "Secret of the trade." not in json.dumps(config)
    assert config["agents"]["list"] == [{"id": "helper", "model": "agentbench/openai/gpt-4o-mini"}]


def test_the_agents_other_fields_are_merged_in_and_cannot_move_its_workspace(tmp_path: Path) -> None:
    sandbox = {"mode": "off"}
    agent = make_agent(
        tmp_path,
        agents_defaults={"sandbox": sandbox, "skipBootstrap": False},
        agent={"tools": {"deny": ["exec"]}},
        model_defaults={"streaming": False},
    )
    agents = make_openclaw_config(agent, a_model(), {}, prompt_override=True)["agents"]
    assert agents["defaults"]["sandbox"] == sandbox
    assert agents["defaults"]["skipBootstrap"] is False
    assert agents["defaults"]["models"] == {"agentbench/openai/gpt-4o-mini": {"streaming": False}}
    assert agents["list"][0]["tools"] == {"deny": ["exec"]}


@pytest.mark.parametrize("base_url", [None, "https://api.openai.com/v1", "http://127.0.0.1:1/v1"])
def test_other_endpoints_than_openrouter_are_one_provider(base_url: str | None) -> None:
    assert model_ref(a_model(base_url)) == "agentbench/openai/gpt-4o-mini"


def test_openrouters_address_may_end_with_a_slash() -> None:
    assert model_ref(a_model(f"{OPENROUTER}/")) == "openrouter/openai/gpt-4o-mini"


def test_parameters_of_the_nearer_place_win(tmp_path: Path) -> None:
    agent = make_agent(
        tmp_path, model_defaults={"primary_params": {"max_tokens": 1, "top_k": 1, "seed": 1, "temperature": 0.1}}
    )
    model = a_model(parameters={"top_k": 2, "seed": 3, "temperature": 0.2})
    settings = RunnerSettings(temperature=0.4, min_p=0.4)
    assert merge_model_parameters(agent, model, settings) == {
        "max_tokens": 1,
        "top_k": 2,
        "seed": 3,
        "temperature": 0.4,
        "min_p": 0.4,
    }


def test_a_null_in_the_settings_removes_a_parameter(tmp_path: Path) -> None:
    settings = RunnerSettings.model_validate({"seed": None})
    assert merge_model_parameters(make_agent(tmp_path), a_model(parameters={"seed": 3}), settings) == {}


@pytest.mark.parametrize(
    ("base_url", "sent"),
    [(OPENROUTER, {"reasoning": {"effort": "high"}}), ("http://127.0.0.1:1/v1", {"reasoning_effort": "high"})],
)
def test_reasoning_effort_has_the_endpoints_own_name(base_url: str, sent: dict[str, Any]) -> None:
    parameters = {"reasoning": {"effort": "high"}, "max_tokens": 9}
    assert adapt_parameters(parameters, a_model(base_url)) == {**sent, "max_tokens": 9}


def test_reasoning_without_an_effort_stays_as_it_is() -> None:
    parameters = {"reasoning": {"max_tokens": 100}}
    assert adapt_parameters(parameters, a_model()) == parameters
