"""Read a registry file of ACP agents, and write adapters for its entries. Nothing is downloaded or started."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_agentbench.bounded.json_files import BadItem, read_items
from pytest_agentbench.config.base import explain_error, suggest
from pytest_agentbench.errors import ConfigError

_INSIDE = "agents"


class _Member(BaseModel):
    """A part of a registry. Its other members do not matter here."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Package(_Member):
    """A package of npm or PyPI, and how it is started."""

    package: str = Field(min_length=1)
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = Field(default_factory=dict)


class Distribution(_Member):
    """The ways in which an agent is distributed. `binary` are archives by operating system."""

    npx: Package | None = None
    uvx: Package | None = None
    binary: Mapping[str, Any] | None = None


class RegistryAgent(_Member):
    """An agent of a registry."""

    id: str = Field(min_length=1)
    name: str
    version: str
    license: str = "unknown"
    distribution: Distribution

    @property
    def kinds(self) -> str:
        """Return the ways in which it is distributed."""
        return " ".join(self.distribution.model_dump(exclude_none=True)) or "-"


def read_registry(path: Path) -> list[RegistryAgent]:
    """Return the agents of a registry file. Raises ConfigError, with file and line, for a file of another form."""
    agents = []
    for item in read_items(path, _INSIDE):
        if isinstance(item, BadItem):
            raise ConfigError(f"{path}:{item.line}:{item.column}: {item.reason}")
        try:
            agents.append(RegistryAgent.model_validate(item.value))
        except ValidationError as error:
            loc, text, _ = next(iter(explain_error(error, item.value, RegistryAgent)))
            raise ConfigError(f"{path}:{item.line}:{item.column}: {'.'.join(map(str, loc))}: {text}") from None
    return agents


def find_agent(agents: list[RegistryAgent], name: str, path: Path) -> RegistryAgent:
    """Return the agent with that id; `_` stands for `-`, because adapters have no `-` in their names.

    Raises ConfigError if there is none, or if it is distributed as archives only.
    """
    found = next((agent for agent in agents if re.sub(r"\W", "_", agent.id) == name), None)
    if found is None:
        known = [re.sub(r"\W", "_", agent.id) for agent in agents]
        raise ConfigError(f"{path}: there is no agent {name!r}{suggest(name, known)}")
    if found.distribution.npx is None and found.distribution.uvx is None:
        raise ConfigError(
            f"{path}: {found.id} is distributed as {found.kinds}: install it yourself, then name it in "
            "`runner: {type: acp, command: [...]}`"
        )
    return found


def write_adapter(agent: RegistryAgent, name: str) -> str:
    """Return the text of an adapter's agent.yaml. JSON values are YAML, so that no text can break out of its line."""
    npx = agent.distribution.npx
    package = npx or agent.distribution.uvx
    assert package is not None
    install = {"npm": _pin(package.package, agent.version, "@")}
    if npx is None:
        install = {"pypi": _pin(package.package, agent.version, "==")}
    program = re.split(r"[@=<>~]", package.package.removeprefix("@").rpartition("/")[2])[0]
    lines = {
        "schema_version": 1,
        "name": name,
        "title": agent.name,
        "licence": agent.license,
        "install": install,
        "dialects": ["chat"],
        "env": dict(package.env),
        "acp": {"argv": [program, *package.args]},
    }
    comments = {
        "dialects": "  # of chat, responses, messages, gemini: how it asks its model",
        "env": "  # and the variables that give it the gateway, if OPENAI_BASE_URL and the like do not",
        "acp": "  # the program's name is that of its package: correct it if it has another",
    }
    text = (f"{key}: {json.dumps(value, ensure_ascii=False)}{comments.get(key, '')}\n" for key, value in lines.items())
    return "".join(text)


def _pin(package: str, version: str, mark: str) -> str:
    name, found, pinned = package.rpartition(mark)
    if found and name:
        return f"{name}{mark}{pinned}"
    return f"{package}{mark}{version}"
