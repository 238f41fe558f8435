"""JSON files of MCP servers, read as they are: `commands.json` (seed 004), and the files of clients."""

from __future__ import annotations

import os
import shlex
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, StrictInt, TypeAdapter

from pytest_agentbench.config.base import Scope, validate
from pytest_agentbench.config.client_servers import ServerDeclarations, read_client_servers
from pytest_agentbench.config.documents import parse_json, read_bytes
from pytest_agentbench.config.sections import ServerName
from pytest_agentbench.records.base import Record, Text, VariableName
from pytest_agentbench.records.case import McpServer


def _check_command_line(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"found {text!r}, expected a command line as a shell reads it ({error})") from error
    if not words:
        raise ValueError(f"found {text!r}, expected a command line")
    return text


class _Command(Record):
    """One server. Further fields belong to other tools."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    cmd: Annotated[Text, AfterValidator(_check_command_line)]
    env: tuple[VariableName, ...] = ()
    cwd: str | None = None
    transport: Literal["stdio", "http"] = "stdio"
    port: Annotated[StrictInt, Field(ge=1, le=65535)] = 3001
    endpoint: str = "/mcp"


def read_commands(path: Path) -> ServerDeclarations:
    """Return the servers of a JSON file, each with an absolute `cwd`; none if the file is another tool's.

    :raises ConfigError: with all problems of the file.
    """
    document = parse_json(read_bytes(path), path)
    entries = document.data.values() if isinstance(document.data, dict) else ()
    if not any(isinstance(entry, dict) and "cmd" in entry for entry in entries):
        return read_client_servers(document) or ServerDeclarations({})
    folder = str(path.parent)
    commands: dict[str, _Command] = validate(document, _make_adapter(), Scope(folder))
    return ServerDeclarations({name: _make_server(command, folder) for name, command in commands.items()})


@cache
def _make_adapter() -> TypeAdapter[Any]:
    return TypeAdapter(dict[ServerName, _Command])


def _make_server(command: _Command, folder: str) -> McpServer:
    program, *args = shlex.split(command.cmd)
    address: dict[str, Any] = {"url": None, "scope": "run"}
    if command.transport == "http":
        url = f"http://127.0.0.1:{command.port}/{command.endpoint.removeprefix('/')}"
        address = {"url": url, "scope": "session"}
    cwd = _resolve_cwd(command.cwd, folder)
    return McpServer(command=program, args=tuple(args), env_from=command.env, cwd=cwd, **address)


def _resolve_cwd(cwd: str | None, folder: str) -> str | None:
    """Return the folder of a server. `../x` means the folder x next to the file, if that exists."""
    if cwd is None:
        return None
    path = os.path.normpath(os.path.join(folder, os.path.expanduser(cwd)))
    beside = os.path.normpath(os.path.join(folder, cwd.removeprefix("../")))
    if os.path.isdir(beside):
        return beside
    return path
