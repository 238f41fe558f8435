"""`servers.yaml`: the MCP servers that cases and MCP tasks name; and what other files say of servers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationInfo

from pytest_agentbench.config.base import ConfigFile, Problems, resolve_folder, scope_of
from pytest_agentbench.records import McpServer

_ILLEGAL = re.compile("[:\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def _server_name(name: str) -> str:
    if not name.strip() or _ILLEGAL.search(name):
        raise ValueError(
            f"found {name!r}, expected the name of a server: no blank text, without ':' (a tool's id is server:tool) "
            "and control characters"
        )
    return name


ServerName = Annotated[str, AfterValidator(_server_name)]
"""What a server is called: the part of its tools' ids before the colon."""


def _placed(server: McpServer, info: ValidationInfo) -> McpServer:
    scope = scope_of(info)
    if server.cwd is None or scope is None:
        return server
    cwd = os.path.normpath(os.path.join(scope.folder, os.path.expanduser(server.cwd)))
    return server.model_copy(update={"cwd": cwd})


PlacedServers = dict[ServerName, Annotated[McpServer, AfterValidator(_placed)]]
"""Declared servers by name; where a file says so, with an absolute `cwd`."""


class ServersFile(ConfigFile):
    """MCP servers for the cases of its folder and of those below."""

    servers: PlacedServers = Field(default_factory=dict)
    """Servers by name."""


def _of_case(server: McpServer, info: ValidationInfo) -> McpServer:
    scope = scope_of(info)
    if scope is not None:
        scope.refuse_program(f"the server {server.command or server.url!r}")
    if server.sandbox is not None:
        message = (
            "a case does not choose where its servers run; declare the server in servers.yaml or the run profile, and "
            "name it here"
        )
        raise Problems([(("sandbox",), message)])
    if server.cwd is None or scope is None:
        return server
    try:
        return server.model_copy(update={"cwd": str(resolve_folder(server.cwd, scope))})
    except ValueError as error:
        raise Problems([(("cwd",), str(error))]) from error


def _form(given: Any) -> str:
    return "names" if isinstance(given, list | tuple) else "declared"


CaseServers = Annotated[
    Annotated[dict[ServerName, Annotated[McpServer, AfterValidator(_of_case)]], Tag("declared")]
    | Annotated[tuple[ServerName, ...], Tag("names")],
    Discriminator(_form),
]
"""Servers of a case: declared by name, or a list of names that are declared elsewhere."""


def named_servers(given: Mapping[str, McpServer] | Sequence[str]) -> dict[str, McpServer | None]:
    """What a file says of a case's servers; None for one that is declared elsewhere."""
    return dict(given) if isinstance(given, Mapping) else dict.fromkeys(given)
