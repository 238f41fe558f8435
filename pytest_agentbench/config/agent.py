"""`agents/<id>/agent.yaml` beside `workspace/`: an OpenClaw agent."""

from __future__ import annotations

import os
from typing import Any

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from pytest_agentbench.config.base import ConfigFile, complain, scope_of
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.records import Record, Slug, Tags, Text


class ModelDefaults(Record):
    """How the agent's model appears in openclaw.json. Other fields pass through."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    aliases: dict[str, str] = Field(default_factory=dict)
    """Aliases of the primary model."""


class OpenClawFragments(Record):
    """Parts of the generated openclaw.json."""

    identity: dict[str, Any] = Field(default_factory=dict)
    """Never written; keep the persona in workspace files."""
    agents_defaults: dict[str, Any] = Field(default_factory=dict)
    """Merged into `agents.defaults`."""
    agent: dict[str, Any] = Field(default_factory=dict)
    """`agents.list[0]`: id, and prompt as `systemPromptOverride`."""
    model_defaults: ModelDefaults = Field(default_factory=ModelDefaults)
    """The model's aliases and parameters; the suite says which model it is."""


class AgentFile(ConfigFile):
    """An OpenClaw agent: fragments of its configuration, with a workspace beside."""

    agent_id: Slug
    """The name of its folder."""
    title: Text
    """For people."""
    description: str | None = None
    """What it is for."""
    tags: Tags = ()
    """Free tags."""
    openclaw: OpenClawFragments = Field(default_factory=OpenClawFragments)
    """Parts of openclaw.json."""

    @field_validator("agent_id")
    @classmethod
    def _has_its_folder(cls, agent_id: str, info: ValidationInfo) -> str:
        scope = scope_of(info)
        if scope is not None:
            folder = os.path.basename(os.path.realpath(scope.folder))
            if agent_id != folder:
                raise ValueError(f"found {agent_id!r}, which must match directory name {folder!r}")
            if not os.path.isdir(os.path.join(scope.folder, "workspace")):
                raise ValueError("missing workspace directory beside agent.yaml; create workspace/")
        return agent_id

    @field_validator("openclaw")
    @classmethod
    def _one_model(cls, value: OpenClawFragments) -> OpenClawFragments:
        complain(
            [
                *_model_problems(value.model_defaults.model_extra or {}, ("model_defaults",)),
                *_model_problems(value.agents_defaults, ("agents_defaults",)),
                *_model_problems(value.agent, ("agent",)),
            ]
        )
        return value


def _model_problems(fragment: dict[str, Any], loc: Loc) -> list[tuple[Loc, str]]:
    """A run executes against exactly one model, which the suite or --model names."""
    found: list[tuple[Loc, str]] = []
    if "fallbacks" in fragment:
        found.append(((*loc, "fallbacks"), "fallbacks is not supported: a run executes against exactly one model"))
    model = fragment.get("model")
    if isinstance(model, dict) and "fallbacks" in model:
        found.append(((*loc, "model", "fallbacks"), "fallbacks is not supported: a run executes against one model"))
    elif model is not None:
        found.append(((*loc, "model"), "an agent cannot set the model; the suite or --model does"))
    return found
