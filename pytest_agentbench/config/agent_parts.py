"""Skills and MCP servers that a file gives to agents, by its keys `skills` and `plugins`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_agentbench.config.base import Scope
from pytest_agentbench.config.plugins import Plugin, resolve_plugins
from pytest_agentbench.config.skills import require_different_names, resolve_skills
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import McpServer
from pytest_agentbench.records.skills import Skill


@dataclass(frozen=True, slots=True)
class AgentParts:
    """Skills, the MCP servers of plugins by name, and doubts: the parts of plugins that agents do not get."""

    skills: tuple[Skill, ...]
    servers: Mapping[str, McpServer]
    doubts: tuple[str, ...]


def resolve_parts(skills: Sequence[str], plugins: Sequence[str], scope: Scope) -> AgentParts:
    """Return the parts that the paths of a file name.

    Raises ConfigError for an invalid part, and for two skills or two servers with one name.
    """
    named = resolve_plugins(plugins, scope)
    found = [*resolve_skills(skills, scope), *(skill for plugin in named for skill in plugin.skills)]
    return AgentParts(
        skills=require_different_names(found, scope),
        servers=_merge_servers(named),
        doubts=tuple(doubt for plugin in named for doubt in _list_doubts(plugin)),
    )


def _merge_servers(plugins: Sequence[Plugin]) -> dict[str, McpServer]:
    servers: dict[str, McpServer] = {}
    origins: dict[str, Plugin] = {}
    for plugin in plugins:
        for name, server in plugin.servers.require_all().items():
            if (other := origins.setdefault(name, plugin)) is not plugin:
                raise ConfigError(
                    f"{plugin.folder}: found the MCP server {name!r}, which the plugin {other.folder} brings too; "
                    "leave one of the plugins out, or rename the server"
                )
            servers[name] = _start_in(plugin.folder, server)
    return servers


def _start_in(folder: Path, server: McpServer) -> McpServer:
    """Return a server of a plugin that starts in the plugin's folder and names the files there by relative paths.

    A sandbox shows a server only the folder that it starts in, and may show it in another place.
    """
    if server.command is None or server.cwd is not None:
        return server
    program, *arguments = (word.replace(str(folder), ".") for word in (server.command, *server.args))
    return server.model_copy(update={"command": program, "args": tuple(arguments), "cwd": str(folder)})


def _list_doubts(plugin: Plugin) -> list[str]:
    doubts = list(plugin.servers.notes)
    if plugin.left_out:
        parts = ", ".join(plugin.left_out)
        doubts.append(
            f"{plugin.folder}:1:1: the plugin {plugin.name}: left out, because only its own program uses them: {parts}"
        )
    return doubts
