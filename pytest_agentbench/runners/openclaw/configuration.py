"""openclaw.json: one agent, one model, and the way to it (seed 002, "openclaw fragments")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_agentbench.config import RunnerSettings
from pytest_agentbench.models import OPENROUTER_URL
from pytest_agentbench.records import Model
from pytest_agentbench.runners.openclaw.agent import OpenClawAgent
from pytest_agentbench.workspaces import WORKSPACE

RELAY_PORT = 18790
"""Where the container's own end of the way to the model listens, on its loopback."""

BASE_URL = f"http://127.0.0.1:{RELAY_PORT}/v1"
"""What OpenClaw knows of the model's endpoint."""

PROMPT_KEY = "systemPromptOverride"
"""The agent's field for its prompt, which versions since 2026.9 do not know."""

_NO_KEY = "none"
_PRIMARY_PARAMS = "primary_params"


def model_parameters(agent: OpenClawAgent, model: Model, settings: RunnerSettings) -> dict[str, Any]:
    """The request parameters of the run's model.

    The agent's `model_defaults.primary_params` < the suite's `primary_params` < the model's own < the settings', where
    a None removes one.
    """
    merged = {
        **_mapping((agent.file.openclaw.model_defaults.model_extra or {}).get(_PRIMARY_PARAMS)),
        **_mapping(model.options.get(_PRIMARY_PARAMS)),
        **model.parameters,
        **settings.request_parameters,
    }
    return {name: value for name, value in merged.items() if value is not None}


def wire_parameters(parameters: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """The same as the model's endpoint takes them: `reasoning.effort` is `reasoning_effort` but on OpenRouter."""
    effort = _mapping(parameters.get("reasoning")).get("effort")
    if effort is None or _is_openrouter(model):
        return dict(parameters)
    others = {name: value for name, value in parameters.items() if name != "reasoning"}
    return {"reasoning_effort": effort, **others}


def model_ref(model: Model) -> str:
    """What OpenClaw calls the model: `<provider>/<requested_model>`."""
    return f"{_provider(model)}/{model.requested_model}"


def openclaw_config(
    agent: OpenClawAgent, model: Model, parameters: Mapping[str, Any], *, prompt_override: bool
) -> dict[str, Any]:
    """The whole of openclaw.json. It holds no key: the model is reached through the run's relay.

    The agent's fragments are merged in; the workspace and the one model are the run's own. `prompt_override` says
    whether the agent's prompt is written. An `agents_defaults.sandbox` that is a text, as the reference has it, is left
    out: no version takes it, and the container is the sandbox. `identity` is never written.
    """
    fragments, ref = agent.file.openclaw, model_ref(model)
    defaults = {name: value for name, value in fragments.agents_defaults.items() if not _is_old_sandbox(name, value)}
    return {
        "agents": {
            "defaults": {
                "skipBootstrap": True,
                **defaults,
                "workspace": WORKSPACE,
                "model": {"primary": ref},
                "models": {ref: _model_entry(agent, parameters)},
            },
            "list": [_agent_entry(agent, ref, prompt_override)],
        },
        "models": {
            "providers": {
                _provider(model): {
                    "baseUrl": BASE_URL,
                    "apiKey": _NO_KEY,
                    "api": "openai-completions",
                    "models": [{"id": model.requested_model, "name": model.requested_model}],
                }
            }
        },
    }


def _model_entry(agent: OpenClawAgent, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """How the model appears: OpenClaw knows one alias of a model, so the first counts."""
    defaults = agent.file.openclaw.model_defaults
    entry = {name: value for name, value in (defaults.model_extra or {}).items() if name != _PRIMARY_PARAMS}
    if defaults.aliases:
        entry["alias"] = next(iter(defaults.aliases.values()))
    if parameters:
        entry["params"] = dict(parameters)
    return entry


def _agent_entry(agent: OpenClawAgent, ref: str, prompt_override: bool) -> dict[str, Any]:
    own = {name: value for name, value in agent.file.openclaw.agent.items() if name != "prompt"}
    entry = {**own, "id": agent.openclaw_id, "model": ref}
    if prompt_override and agent.prompt is not None:
        entry[PROMPT_KEY] = agent.prompt
    return entry


def _provider(model: Model) -> str:
    return "openrouter" if _is_openrouter(model) else "agentbench"


def _is_openrouter(model: Model) -> bool:
    return model.base_url is not None and model.base_url.rstrip("/") == OPENROUTER_URL


def _is_old_sandbox(name: str, value: object) -> bool:
    return name == "sandbox" and isinstance(value, str)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
