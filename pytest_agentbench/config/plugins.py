"""Read plugins of agents: folders with `skills/`, MCP servers in `.mcp.json`, and parts for one program alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ConfigDict

from pytest_agentbench.config.base import Scope, resolve_file, resolve_folder, validate
from pytest_agentbench.config.client_servers import ServerDeclarations, read_client_servers
from pytest_agentbench.config.documents import Document, parse_json, read_bytes
from pytest_agentbench.config.skills import resolve_skills
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.base import Record, Text
from pytest_agentbench.records.skills import SKILL_FILE, Skill

MANIFEST = ".claude-plugin/plugin.json"
"""The file that names a plugin. Plugins may lack it."""
SERVERS_FILE = ".mcp.json"
SKILLS_FOLDER = "skills"
_LEFT_OUT = ("agents", "bin", "commands", "hooks", "monitors", "output-styles", ".lsp.json", "settings.json")
"""Files and folders of a plugin that only Claude Code can use."""
_MANIFEST_PARTS = ("agents", "commands", "hooks", "lspServers", "mcpServers", "monitors", "outputStyles", "skills")
"""Keys of the manifest that declare parts in other places."""
_MARKS = (MANIFEST, SERVERS_FILE)
"""Files by which a folder is known to be a plugin."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin: its skills and MCP servers, and the names of its parts that are left out."""

    name: str
    folder: Path
    skills: tuple[Skill, ...]
    servers: ServerDeclarations
    left_out: tuple[str, ...]


class _Manifest(Record):
    """The name in a manifest. Further keys describe the plugin for people and for Claude Code."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: Text | None = None


def resolve_plugins(paths: Sequence[str], scope: Scope) -> tuple[Plugin, ...]:
    """Return the plugins in the folders that a file names. Raises ConfigError."""
    try:
        folders = [resolve_folder(path, scope) for path in paths]
    except ValueError as error:
        raise ConfigError(f"{scope.folder}: plugins: {error}") from error
    return tuple(read_plugin(folder, scope) for folder in folders)


def find_plugin(start: Path, top: Path) -> Path | None:
    """Return the nearest plugin or skill folder that contains `start`, no higher than `top`; None without one."""
    for folder in (start, *start.parents):
        if not folder.is_relative_to(top):
            return None
        if any((folder / mark).is_file() for mark in (*_MARKS, SKILL_FILE)) or (folder / SKILLS_FOLDER).is_dir():
            return folder
    return None


def read_plugin(folder: Path, scope: Scope) -> Plugin:
    """Return the plugin of a folder, which may also be the folder of a single skill.

    `scope` is that of the file that names the plugin: links in the plugin must not leave it. Raises ConfigError.
    """
    inside = scope._replace(folder=str(folder))
    manifest = _read_manifest(inside)
    skill_folders = [SKILLS_FOLDER] if any((folder / SKILLS_FOLDER).glob(f"*/{SKILL_FILE}")) else []
    if (folder / SKILL_FILE).is_file():
        skill_folders.append(".")
    servers = _read_servers(inside)
    left_out = [name for name in _LEFT_OUT if (folder / name).exists()]
    left_out += [f"{MANIFEST}: {key}" for key in _MANIFEST_PARTS if (manifest.model_extra or {}).get(key)]
    if not (skill_folders or servers.servers or servers.refused or left_out or (folder / MANIFEST).is_file()):
        raise ConfigError(
            f"{folder}: found none of {MANIFEST}, {SKILLS_FOLDER}/*/{SKILL_FILE} and {SERVERS_FILE}, "
            "expected the folder of a plugin"
        )
    return Plugin(
        name=manifest.name or folder.name,
        folder=folder,
        skills=resolve_skills(skill_folders, inside),
        servers=servers,
        left_out=tuple(left_out),
    )


def _read_manifest(inside: Scope) -> _Manifest:
    document = _read_json(MANIFEST, inside)
    if document is None:
        return _Manifest()
    return validate(document, _Manifest, inside)


def _read_servers(inside: Scope) -> ServerDeclarations:
    """Return the servers of a plugin's `.mcp.json`, whose top-level keys may be `mcpServers` or names of servers."""
    document = _read_json(SERVERS_FILE, inside)
    if document is None:
        return ServerDeclarations({})
    declarations = read_client_servers(document) or read_client_servers(_nest(document)) or ServerDeclarations({})
    for name, server in declarations.servers.items():
        try:
            inside.refuse_program(f"the server {server.command or server.url!r}")
        except ValueError as error:
            raise document.error([document.problem((name,), str(error))]) from error
    return declarations


def _read_json(name: str, inside: Scope) -> Document | None:
    """Return an object of a plugin's file, None if there is no such file. Raises ConfigError."""
    path = Path(inside.folder, name)
    if not path.is_file():
        return None
    try:
        document = parse_json(read_bytes(resolve_file(name, inside)), path)
    except ValueError as error:  # a link that leaves the scope
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(document.data, dict):
        raise ConfigError(f"{path}:1:1: found {document.data!r:.60}, expected an object")
    return document


def _nest(document: Document) -> Document:
    """Return a document without the key `mcpServers` as one with it, whose errors keep their places."""

    def place(loc: tuple[int | str, ...]) -> tuple[int, int]:
        problem = document.problem(loc[1:], "")
        return problem.line, problem.column

    return replace(document, data={"mcpServers": document.data}, place=place)
