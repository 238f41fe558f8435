"""MCP servers as clients declare them: `mcpServers` of Claude Desktop, Claude Code and Cursor, `servers` of VS Code."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError

from pytest_agentbench.config.base import Scope, validate
from pytest_agentbench.config.documents import Document, Loc, parse_yaml
from pytest_agentbench.config.sections import ServerName
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.base import Record, Text
from pytest_agentbench.records.case import McpServer

_KEYS = ("mcpServers", "servers")
_HTTP = frozenset({"http", "streamable-http", "streamableHttp", "streamable_http"})
_MOST_SERVERS = 1000
_MOST_NOTES = 100
"""Settings of a file that are named as left out."""
_HIDDEN = (".vscode", ".cursor")
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)")
_HINTS = {
    "timeout": "clients count it in seconds or in milliseconds; write timeout_seconds in a servers.yaml",
    "inputs": "inputs are not supported; write ${env:NAME} for a variable",
    "autoApprove": "calls need no confirmation",
    "alwaysAllow": "calls need no confirmation",
    "trust": "calls need no confirmation",
}


@dataclass(frozen=True)
class ServerDeclarations:
    """Servers of a file by name.

    `refused` are the servers that cannot run here, by name with the reason. `notes` name the settings of servers that
    are left out. Reasons and notes begin with their place, `file:line:column: `.
    """

    servers: Mapping[str, McpServer]
    refused: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def require_all(self) -> Mapping[str, McpServer]:
        """Return the servers. Raises ConfigError if one is refused."""
        if self.refused:
            raise ConfigError("\n".join(self.refused.values()))
        return self.servers


class _ClientServer(Record):
    """A server as clients declare it. Further fields are named, and left out."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    command: Text | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    env_file: Annotated[str | None, Field(alias="envFile")] = None
    cwd: str | None = None
    url: Text | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    type: str | None = None
    disabled: bool = False


class _ClientFile(Record):
    """A file of a client; its further keys are settings of the client."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    mcp_servers: Annotated[dict[ServerName, _ClientServer], Field(alias="mcpServers")] = Field(default_factory=dict)
    servers: dict[ServerName, _ClientServer] = Field(default_factory=dict)


class _RefusedError(Exception):
    """Reason why a server cannot run here; `loc` leads to the field below the server."""

    def __init__(self, message: str, *loc: str | int) -> None:
        super().__init__(message)
        self.loc = loc


def read_client_servers(document: Document) -> ServerDeclarations | None:
    """Return the servers of a client's file, each with an absolute `cwd`; None if the file is no client's.

    :raises ConfigError: with all fields of a wrong type.
    """
    data = document.data
    declaring = {key: data[key] for key in _KEYS if _declares_servers(data, key)}
    if not declaring:
        return None
    folder = document.path.absolute().parent
    file = validate(replace(document, data=declaring), _ClientFile, Scope(str(folder)))
    if len(file.servers) + len(file.mcp_servers) > _MOST_SERVERS:
        raise ConfigError(f"{document.path}:1:1: found more than {_MOST_SERVERS:,} servers")
    document = _compose(document)
    servers: dict[str, McpServer] = {}
    refused: dict[str, str] = {}
    notes = [_name_left_out(document, ("inputs",))] if data.get("inputs") else []
    for key, declared in (("servers", file.servers), ("mcpServers", file.mcp_servers)):
        for name, server in declared.items():
            if server.disabled:
                notes.append(_locate(document, (key, name, "disabled"), "found true, so the server is left out"))
                continue
            try:
                servers[name] = _make_server(server, folder)
            except _RefusedError as error:
                refused[name] = _locate(document, (key, name, *error.loc), str(error))
            # Each is looked for in the file.
            unread = islice(_list_unread(data[key][name]), max(0, _MOST_NOTES - len(notes)))
            notes += [_name_left_out(document, (key, name, field)) for field in unread]
    return ServerDeclarations(servers, refused, tuple(notes))


def _declares_servers(data: Any, key: str) -> bool:
    entries = data.get(key) if isinstance(data, dict) else None
    if not isinstance(entries, dict):
        return False
    # Other tools have a key `servers`, too.
    ways = {"command", "url"}
    return key != "servers" or any(isinstance(entry, dict) and ways & entry.keys() for entry in entries.values())


def _compose(document: Document) -> Document:
    """Return the document with the places of its values, for which a JSON file is read as YAML, which most are."""
    if document.place is not None:
        return document
    try:
        return parse_yaml(document.text, document.path)
    except ConfigError:
        return replace(document, place=lambda loc: (1, 1))


def _name_left_out(document: Document, loc: Loc) -> str:
    return _locate(document, loc, f"left out; {_HINTS.get(str(loc[-1]), 'it has no counterpart')}")


def _locate(document: Document, loc: Loc, text: str) -> str:
    return str(document.error([document.problem(loc, text)]))


def _list_unread(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields of a server that are not read and not empty."""
    read = {info.alias or name for name, info in _ClientServer.model_fields.items()}
    for name, value in entry.items():
        if name not in read and value not in (None, "", [], {}, False):
            yield name


def _make_server(given: _ClientServer, folder: Path) -> McpServer:
    """Return the server. Raises _RefusedError if it cannot run as it is declared."""
    _check_way(given)
    env, env_from = _read_environment(given.env)
    try:
        return McpServer(
            command=_expand(given.command, folder, "command"),
            args=tuple(_expand_argument(text, at, given, folder) for at, text in enumerate(given.args)),
            env={name: _expand_places(value, folder) for name, value in env.items()},
            env_from=env_from,
            cwd=_resolve(given.cwd, folder),
            url=_expand(given.url, folder, "url"),
            headers={name: _read_header(name, value) for name, value in given.headers.items()},
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _RefusedError(str(first["msg"]).removeprefix("Value error, "), *first["loc"]) from error


def _check_way(given: _ClientServer) -> None:
    if given.type == "sse":
        raise _RefusedError("found 'sse', expected stdio or http; give the address for streamable HTTP", "type")
    if given.type is not None and given.type != "stdio" and given.type not in _HTTP:
        raise _RefusedError(f"found {given.type!r:.40}, expected stdio or http", "type")
    if given.command is not None and given.url is not None:
        raise _RefusedError("found 'command' and 'url', expected one of them; declare it in a servers.yaml")
    missing = {"stdio": "command", None: None}.get(given.type, "url")
    if missing is not None and getattr(given, missing) is None:
        raise _RefusedError(f"found no {missing!r}, which type {given.type} needs")
    if given.env_file is not None:
        raise _RefusedError("found a file of variables, which is not read; set them in env, as ${env:NAME}", "envFile")


def _read_environment(given: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the values of variables, and the names of those that come from this process."""
    env, names = {}, []
    for name, value in given.items():
        references = [text for text in _REFERENCE.findall(value) if text not in _PLACES]
        if not references:
            env[name] = value
        elif value == f"${{{references[0]}}}" and _variable_of(references[0], "env", name) == name:
            names.append(name)
        else:
            found = _variable_of(references[0], "env", name)
            message = f"found ${{{found}}}, expected ${{env:{name}}}: a server gets variables under their own names"
            raise _RefusedError(message, "env", name)
    return env, tuple(names)


def _variable_of(reference: str, *loc: str) -> str:
    """Return the name of a reference's variable. Raises _RefusedError if the reference has none."""
    if reference.startswith("input:"):
        raise _RefusedError(f"found ${{{reference}}}: inputs are not supported; write ${{env:NAME}}", *loc)
    match = _VARIABLE.fullmatch(reference)
    if match is None or reference in _PLACES:
        raise _RefusedError(f"found ${{{reference[:40]}}}, expected a variable as in ${{env:NAME}}", *loc)
    return match[1]


def _read_header(name: str, value: str) -> str:
    """Return a header with its variables as `${NAME}`."""
    return _REFERENCE.sub(lambda found: f"${{{_variable_of(found[1], 'headers', name)}}}", value)


_PLACES = {
    "workspaceFolder": lambda folder: str(_find_workspace(folder)),
    "workspaceFolderBasename": lambda folder: _find_workspace(folder).name,
    "CLAUDE_PLUGIN_ROOT": lambda folder: str(folder),
    "userHome": lambda folder: os.path.expanduser("~"),
    "pathSeparator": lambda folder: os.sep,
    "/": lambda folder: os.sep,
}
"""References that clients put in without asking anybody."""


def _find_workspace(folder: Path) -> Path:
    if folder.name in _HIDDEN:
        return folder.parent
    return folder


def _expand_places(text: str, folder: Path) -> str:
    return _REFERENCE.sub(lambda match: _PLACES[match[1]](folder) if match[1] in _PLACES else match[0], text)


def _expand(text: str | None, folder: Path, *loc: str | int) -> str | None:
    """Return a text with its places put in. Raises _RefusedError for variables: command lines are seen by everybody."""
    if text is None:
        return None
    expanded = _expand_places(text, folder)
    if (reference := _REFERENCE.search(expanded)) is not None:
        message = f"found {reference[0][:60]}, expected none here: variables go into env and headers"
        raise _RefusedError(message, *loc)
    return expanded


def _expand_argument(text: str, at: int, given: _ClientServer, folder: Path) -> str:
    # Programs such as mcp-remote replace variables from their own environment.
    if all(name in given.env for name in _REFERENCE.findall(text)):
        return text
    return _expand(text, folder, "args", at) or ""


def _resolve(cwd: str | None, folder: Path) -> str | None:
    expanded = _expand(cwd, folder, "cwd")
    if expanded is None:
        return None
    return os.path.normpath(os.path.join(_find_workspace(folder), os.path.expanduser(expanded)))
