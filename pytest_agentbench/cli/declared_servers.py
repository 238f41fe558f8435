"""The MCP servers that commands are given: a name that is declared, or a whole file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_agentbench.cli.places import existing, root_around
from pytest_agentbench.config import (
    COMMANDS_FILE,
    ConfigRoot,
    RunProfile,
    ServersFile,
    load,
    read_commands,
    suggest,
)
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import McpServer, SandboxSettings

_FILES = ("servers.yaml", "servers.yml", COMMANDS_FILE)
_BELOW = ("*/", "*/*/")


@dataclass(frozen=True, slots=True)
class DeclaredServers:
    """Servers by name, and the sandbox of those that name none of their own."""

    servers: Mapping[str, McpServer]
    sandbox: SandboxSettings
    root: ConfigRoot
    profile: RunProfile

    def named(self, name: str) -> McpServer:
        """The server of this name. Raises ConfigError where none is declared."""
        if name not in self.servers:
            raise ConfigError(
                f"found {name!r}, expected a server that is declared in a servers.yaml or commands.json, or in the run "
                f"profile that --profile names{suggest(name, self.servers)}"
            )
        return self.servers[name]


def is_servers_file(given: str) -> bool:
    """Whether this is a file of servers, not the name of one."""
    return given.endswith((".yaml", ".yml", ".json"))


def servers_of_file(path: Path, profile: str | None) -> DeclaredServers:
    """All servers of a servers.yaml or commands.json. Raises ConfigError where it cannot be read or has none."""
    (path,) = existing([path])
    servers = read_commands(path) if path.suffix == ".json" else load(path, ServersFile).servers
    if not servers:
        raise ConfigError(f"{path}:1:1: found no servers, expected a servers.yaml or the commands.json of MCP-Bench")
    root = root_around(path)
    if root.guest is not None:
        raise ConfigError(f"{path}:1:1: found servers of a folder that is not trusted; {root.guest.plea}")
    return _declared(servers, root, _profile(root, profile))


def declared_servers(profile: str | None) -> DeclaredServers:
    """What can be named in the current folder: servers of its files and of those above it, and of a run profile.

    Where there are none, those of the one config root just below it.

    :raises ConfigError: one of the files is wrong, or there are several roots.
    """
    here = Path.cwd()
    root = root_around(here)
    servers = root.mcp_servers(here / "any")
    if not servers:
        root, servers = _below(here, root)
    settings = _profile(root, profile)
    return _declared({**servers, **settings.mcp_servers}, root, settings)


def _declared(servers: Mapping[str, McpServer], root: ConfigRoot, profile: RunProfile) -> DeclaredServers:
    return DeclaredServers(servers, profile.sandbox_settings, root, profile)


def _below(here: Path, around: ConfigRoot) -> tuple[ConfigRoot, Mapping[str, McpServer]]:
    files = [file for depth in _BELOW for name in _FILES for file in sorted(here.glob(f"{depth}{name}"))]
    found: dict[ConfigRoot, dict[str, McpServer]] = {}
    for file in files:
        root = root_around(file)
        if servers := root.mcp_servers(file):
            found.setdefault(root, {}).update(servers)
    if len(found) > 1:
        places = " and ".join(str(root.path) for root in found)
        raise ConfigError(f"servers are declared in {places}: run this in one of these folders, or name a file")
    return next(iter(found.items()), (around, {}))


def _profile(root: ConfigRoot, name: str | None) -> RunProfile:
    return RunProfile.default() if name is None else root.run_profile(name)
