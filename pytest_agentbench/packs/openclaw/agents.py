"""`agents/<id>/agent.yaml` beside `workspace/`: an OpenClaw agent."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator

from pytest_agentbench.config.base import YAML_SUFFIXES, ConfigFile, complain, is_path, scope_of
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.config.file_kinds import FileKind
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.shared_sections import find_settings_problems
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.base import Record, Slug, Tags
from pytest_agentbench.records.check_specs import Text
from pytest_agentbench.workspaces.template import template_digest

_FALLBACKS = frozenset({"fallbacks", "fallback"})
_ENDPOINTS = frozenset({"apiKey", "api_key", "baseUrl", "base_url", "providers"})
_MODEL = re.compile(r"models?|mediaModels|[a-z]\w*Model")
_OPENCLAW_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def _agent_name(name: str, info: ValidationInfo) -> str:
    """Return an id as it is, a path as that of the agent's folder."""
    if not is_path(name):
        if not _OPENCLAW_ID.fullmatch(name):
            raise ValueError(f"found {name!r}, expected a slug, the id of a folder of agents/, or the path of one")
        return name
    path = os.path.expanduser(name)
    scope = scope_of(info)
    if scope is not None:
        path = os.path.realpath(os.path.join(scope.folder, path))
    return os.path.dirname(path) if path.endswith(YAML_SUFFIXES) else path


AgentName = Annotated[Text, AfterValidator(_agent_name)]
"""A folder of `agents/`, or the path of one relative to the file that names it."""


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
            workspace = os.path.join(scope.folder, "workspace")
            if not os.path.isdir(workspace):
                raise ValueError("missing workspace directory beside agent.yaml; create workspace/")
            if os.path.islink(workspace):
                raise ValueError("found a link in place of workspace/, expected the folder itself; copy it there")
        return agent_id

    @field_validator("openclaw")
    @classmethod
    def _one_model(cls, value: OpenClawFragments) -> OpenClawFragments:
        extras = value.model_defaults.model_extra or {}
        complain(
            [
                *ways_to_models(extras, ("model_defaults",)),
                *ways_to_models(value.agents_defaults, ("agents_defaults",)),
                *ways_to_models(value.agent, ("agent",)),
                *_parameter_problems(extras.get("primary_params"), ("model_defaults", "primary_params")),
                *_agent_problems(value.agent),
                *_workspace_problems(value),
            ]
        )
        return value


def ways_to_models(fragment: object, loc: Loc) -> Iterator[tuple[Loc, str]]:
    """Yield all in a part of openclaw.json that would lead to another model than the run's, however deep it stands:
    where, and what to say.
    """
    below: Iterable[tuple[int | str, object]] = ()
    if isinstance(fragment, dict):
        below = fragment.items()
    elif isinstance(fragment, list):
        below = enumerate(fragment)
    for name, value in below:
        at = (*loc, name)
        if (problem := _way_to_a_model(str(name), value)) is not None:
            yield at, problem
        else:
            yield from ways_to_models(value, at)


def _way_to_a_model(name: str, value: object) -> str | None:
    """Return a run executes against exactly one model, which the suite or --model names."""
    if value is None:
        return None
    if name in _FALLBACKS and value != "none":
        return f"{name} is not supported: a run executes against exactly one model"
    if name in _ENDPOINTS:
        return "an agent brings no endpoint and no key: models.yaml says how the run's model is reached"
    if _MODEL.fullmatch(name) and not (isinstance(value, dict) and _FALLBACKS & value.keys()):
        return "an agent cannot set the model; the suite or --model does"
    return None


def _parameter_problems(parameters: object, loc: Loc) -> Iterator[tuple[Loc, str]]:
    if isinstance(parameters, dict):
        yield from (((*loc, *at), text) for at, text in find_settings_problems(parameters))
    elif parameters is not None:
        yield loc, f"found {parameters!r}, expected a mapping of request parameters"


def _agent_problems(agent: dict[str, Any]) -> Iterator[tuple[Loc, str]]:
    own_id, prompt = agent.get("id"), agent.get("prompt")
    if own_id is not None and not (isinstance(own_id, str) and _OPENCLAW_ID.fullmatch(own_id)):
        yield ("agent", "id"), f"found {own_id!r}, expected at most 64 lower-case letters, digits, '_' and '-'"
    if prompt is not None and not (isinstance(prompt, str) and prompt.strip()):
        yield ("agent", "prompt"), f"found {prompt!r}, expected a text"


def _workspace_problems(fragments: OpenClawFragments) -> Iterator[tuple[Loc, str]]:
    message = "an agent works in the run's own folder; put its files into workspace/ beside agent.yaml"
    for name in ("agents_defaults", "agent"):
        if "workspace" in getattr(fragments, name):
            yield (name, "workspace"), message


def agent_file(root: ConfigRoot, name: str) -> Path:
    """Return where the agent of that id or path is declared. Raises ConfigError as `ConfigRoot.run_profile`."""
    return root.find(AGENT_KIND.folder, str(root.path / name) if is_path(name) else name)


def _uncopied(path: Path) -> Iterator[tuple[Loc, str]]:
    """Yield why no run can have a copy of an agent's workspace."""
    try:
        template_digest(path.parent / "workspace")
    except ConfigError as error:
        yield (), str(error)


AGENT_KIND = FileKind("agent", "agents", "agent_id", AgentFile, stem="agent", problems=_uncopied)
