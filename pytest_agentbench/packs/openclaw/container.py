"""Contents of an OpenClaw container: agent, openclaw.json, control folder, the workspace's standard files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.json_values import as_object
from pytest_agentbench.packs.openclaw.config import AgentFile, OpenClawRunProfile
from pytest_agentbench.records.case import Model
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.sandboxes.base import Mount
from pytest_agentbench.workspaces.workspace import WORKSPACE, Workspace


@dataclass(frozen=True, slots=True)
class OpenClawAgent:
    """The agent of a run: agent.yaml as `file`, its `path`, its `workspace`, and the run profile's block."""

    file: AgentFile
    path: Path
    workspace: Path
    profile: OpenClawRunProfile

    @property
    def openclaw_id(self) -> str:
        """Return OpenClaw's own id of the agent: `openclaw.agent.id`, else the id of the folder."""
        return str(self.file.openclaw.agent.get("id") or self.file.agent_id)

    @property
    def prompt(self) -> str | None:
        """Return the agent's prompt, `openclaw.agent.prompt`, or None."""
        prompt = self.file.openclaw.agent.get("prompt")
        if prompt is None:
            return None
        return str(prompt)


RELAY_PORT = 18790
"""Loopback port in the container on which its relay to the model listens."""

BASE_URL = f"http://127.0.0.1:{RELAY_PORT}/v1"
"""Endpoint of the model in OpenClaw's configuration."""

PROMPT_KEY = "systemPromptOverride"
"""The agent's field for its prompt, which versions since 2026.9 refuse."""

# No key enters the container: the relay asks for none, and the run's own client has it.
_NO_KEY = "none"
_PRIMARY_PARAMS = "primary_params"


def merge_model_parameters(agent: OpenClawAgent, model: Model, settings: RunnerSettings) -> dict[str, Any]:
    """Return the request parameters of the run's model.

    Precedence, lowest first: the agent's `model_defaults.primary_params`, the model's own, the settings'. None removes
    one.
    """
    merged = {
        **as_object((agent.file.openclaw.model_defaults.model_extra or {}).get(_PRIMARY_PARAMS)),
        **model.parameters,
        **settings.request_parameters,
    }
    return {name: value for name, value in merged.items() if value is not None}


def adapt_parameters(parameters: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """Return the parameters in the form of the model's endpoint."""
    effort = as_object(parameters.get("reasoning")).get("effort")
    # OpenRouter has `reasoning: {effort}`, the API of OpenAI `reasoning_effort`.
    if effort is None or _is_openrouter(model):
        return dict(parameters)
    others = {name: value for name, value in parameters.items() if name != "reasoning"}
    return {"reasoning_effort": effort, **others}


def model_ref(model: Model) -> str:
    """Return OpenClaw's name of the model: `<provider>/<requested_model>`."""
    return f"{_name_provider(model)}/{model.requested_model}"


def make_openclaw_config(
    agent: OpenClawAgent, model: Model, parameters: Mapping[str, Any], *, prompt_override: bool
) -> dict[str, Any]:
    """Return the whole of openclaw.json. It contains no key: the model is reached through the run's relay.

    The agent's fragments are merged in; the workspace and the single model are the run's. The agent's prompt is written
    if `prompt_override`. An `agents_defaults.sandbox` that is a text, as in the reference, is left out: no version
    accepts it, and the container is the sandbox. `identity` is never written.
    """
    fragments, ref = agent.file.openclaw, model_ref(model)
    defaults = dict(fragments.agents_defaults)
    if isinstance(defaults.get("sandbox"), str):
        del defaults["sandbox"]
    return {
        "agents": {
            "defaults": {
                # Otherwise OpenClaw writes its own files into the workspace, which would be in every run's
                # diff.
                "skipBootstrap": True,
                **defaults,
                # After the agent's defaults, so that these cannot replace the run's values.
                "workspace": WORKSPACE,
                "model": {"primary": ref},
                "models": {ref: _make_model_entry(agent, parameters)},
            },
            "list": [_make_agent_entry(agent, ref, prompt_override)],
        },
        "models": {
            "providers": {
                _name_provider(model): {
                    "baseUrl": BASE_URL,
                    "apiKey": _NO_KEY,
                    "api": "openai-completions",
                    "models": [{"id": model.requested_model, "name": model.requested_model}],
                }
            }
        },
    }


def _make_model_entry(agent: OpenClawAgent, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model's entry. It has only the first alias, because OpenClaw accepts one per model."""
    defaults = agent.file.openclaw.model_defaults
    entry = {name: value for name, value in (defaults.model_extra or {}).items() if name != _PRIMARY_PARAMS}
    if defaults.aliases:
        entry["alias"] = next(iter(defaults.aliases.values()))
    if parameters:
        entry["params"] = dict(parameters)
    return entry


def _make_agent_entry(agent: OpenClawAgent, ref: str, prompt_override: bool) -> dict[str, Any]:
    own = {name: value for name, value in agent.file.openclaw.agent.items() if name != "prompt"}
    entry = {**own, "id": agent.openclaw_id, "model": ref}
    if prompt_override and agent.prompt is not None:
        entry[PROMPT_KEY] = agent.prompt
    return entry


def _name_provider(model: Model) -> str:
    if _is_openrouter(model):
        return "openrouter"
    return "agentbench"


def _is_openrouter(model: Model) -> bool:
    from pytest_agentbench.models.routes import OPENROUTER_URL

    return model.base_url is not None and model.base_url.rstrip("/") == OPENROUTER_URL


CONTROL = "/run/agentbench"
"""Path of the control folder in the container."""

CONFIG_NAME = "openclaw.json"
# In the container's private /tmp: sessions of two runs never meet.
STATE, HOME = "/tmp/openclaw", "/tmp/home"  # noqa: S108 - the container's, which is the run's private one

ENVIRONMENT = MappingProxyType(
    {
        "HOME": HOME,
        "OPENCLAW_STATE_DIR": STATE,
        "OPENCLAW_CONFIG_PATH": f"{CONTROL}/{CONFIG_NAME}",
        "NO_COLOR": "1",
    }
)
"""Environment variables of OpenClaw in addition to the container's."""


def make_mount(folder: Path) -> Mount:
    """Return the mount of the control folder."""
    return Mount(folder, CONTROL)


PROMPT_FILE = "AGENTS.md"
"""The file that OpenClaw reads at the start of every session."""

_NAMES = (PROMPT_FILE, "IDENTITY.md", "SOUL.md", "TOOLS.md", "USER.md")

STANDARD_FILES: Mapping[str, str] = MappingProxyType(
    {name: f"# {name.removesuffix('.md')}\n\n(This agent has no {name}.)\n" for name in _NAMES}
)
"""Content for each missing standard file: equal in every run, so that OpenClaw does not write its own."""


def complete_workspace(workspace: Workspace, agent: OpenClawAgent, prompt_file: bool) -> None:
    """Add the missing standard files; with `prompt_file` write the agent's prompt to the head of AGENTS.md.

    Raises ConfigError if AGENTS.md cannot be written, OSError if the disk is full.
    """
    # Before the first snapshot of the workspace: added files do not count as the agent's changes.
    for name, text in STANDARD_FILES.items():
        if workspace.kind(name) is None:
            workspace.write_text(name, text)
    if prompt_file and agent.prompt is not None:
        _prepend_prompt(workspace, agent, f"{agent.prompt.rstrip()}\n\n".encode("utf-8", "replace"))


def _prepend_prompt(workspace: Workspace, agent: OpenClawAgent, head: bytes) -> None:
    try:
        workspace.write_bytes(PROMPT_FILE, head + workspace.read_bytes(PROMPT_FILE))
    except (PathRefusedError, IsADirectoryError, PermissionError) as error:
        raise ConfigError(
            f"{agent.workspace / PROMPT_FILE}: the agent's prompt must be written to the head of this file, because "
            f"this version of OpenClaw reads it only there: {error}; make it a plain, writable file"
        ) from error
