"""Give a program the run's tools: the run's MCP servers in the program's own configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.agent_file import Content, McpPlace, fill, find_place_problems
from pytest_agentbench.errors import ConfigError, ToolsRefusedError
from pytest_agentbench.records.case import Case
from pytest_agentbench.runners.agents.adapter import Program, add_arguments
from pytest_agentbench.runners.agents.fields import refuse_tools
from pytest_agentbench.runners.agents.places import write_readable
from pytest_agentbench.runners.base import RunContext

if TYPE_CHECKING:
    from pytest_agentbench.runners.gateway.mcp_names import ServedTools

RELAY = "agentbench-mcp"
"""Program in the control folder that is an MCP server on stdin and stdout: `agentbench-mcp URL`."""

_RELAYS = ("mcp_relay.py", "mcp_relay.mjs")
_START = """#!/bin/sh
if command -v python3 >/dev/null 2>&1; then exec python3 "${0%/*}/mcp_relay.py" "$@"; fi
exec node "${0%/*}/mcp_relay.mjs" "$@"
"""


@dataclass(frozen=True, slots=True)
class McpServerEntry:
    """An MCP server of the run as its agent sees it: `slug` is its name, `command` starts the relay to `url`."""

    slug: str
    url: str
    token: str
    command: str

    def fill(self, template: Mapping[str, Any]) -> dict[str, Any]:
        """Return an entry of a configuration. A list in a list becomes a part of it, for commands in one list."""
        values: dict[str, Any] = {"name": self.slug, "url": self.url, "token": self.token, "command": self.command}
        entry: dict[str, Any] = fill(template, {**values, "args": [self.url]})
        return {name: _join(value) for name, value in entry.items()}


def serve_tools(case: Case, context: RunContext, program: Program) -> ServedTools | None:
    """Return the run's tools by the names that the program gets them under, None without tools.

    Raises ToolsRefusedError if the program takes none.
    """
    tools, servers = context.runnable, [] if context.servers is None else context.servers.names
    if not (tools or servers):
        return None
    if program.adapter is not None and program.mcp is None:
        field = "mcp_servers" if servers else "tools"
        raise ToolsRefusedError(f"{case.path}:{case.line}:1: {refuse_tools(program.name, field)}")
    from pytest_agentbench.runners.gateway.mcp_names import ServedTools

    served = ServedTools(tools, servers, None if program.mcp is None else program.mcp.names)
    context.trace.request["mcp"] = served.describe()
    return served


def write_relay(folder: Path) -> None:
    """Write the relay into the control folder. Raises SandboxError."""
    here = files("pytest_agentbench.runners.agents")
    for name in _RELAYS:
        write_readable(folder, name, here.joinpath(name).read_bytes())
    write_readable(folder, RELAY, _START.encode())
    (folder / RELAY).chmod(0o755)


def list_entries(served: ServedTools, base: str, token: str, control: str) -> list[McpServerEntry]:
    """Return the run's servers. `base` is the gateway's address, `control` the control folder, as the agent sees
    both.
    """
    return [McpServerEntry(slug, f"{base}/mcp/{slug}", token, f"{control}/{RELAY}") for slug in served.servers]


def add_servers(program: Program, entries: Sequence[McpServerEntry]) -> Program:
    """Return the program with the servers in its files and its arguments. A program without an adapter stays as it
    is: its case names the addresses. Raises ConfigError if a file of the case has another form than the entries.
    """
    place = program.mcp
    if not isinstance(place, McpPlace):
        return program
    for loc, problem in find_place_problems(program.files, place):  # agent.yaml's own files have been checked
        raise ConfigError(f"runner.{'.'.join(map(str, loc))}: {problem}")
    content = _add_to_file(program.files.get(place.file), place, entries)
    program = replace(program, files={**program.files, place.file: content})
    return add_arguments(program, place.argv) if place.argv else program


def _add_to_file(content: Content | None, place: McpPlace, entries: Sequence[McpServerEntry]) -> Content:
    """Return a file's content with entries for the servers."""
    template = place.http if place.transport == "http" else place.stdio
    assert template is not None
    filled = [(entry.slug, entry.fill(template)) for entry in entries]
    if place.format == "toml":
        assert not isinstance(content, dict)
        heads = [f"[[{place.at}]]" if place.list_ else f"[{place.at}.{slug}]" for slug, _ in filled]
        tables = [f"{head}\n{''.join(_write_toml(entry))}" for head, (_, entry) in zip(heads, filled, strict=True)]
        return "\n".join([*([content] if content else []), *tables])
    assert not isinstance(content, str)
    values = [entry for _, entry in filled] if place.list_ else dict(filled)
    return _merge(content or {}, place.at.split("."), values)


def _merge(content: Mapping[str, Any], path: list[str], values: Any) -> dict[str, Any]:
    name, *rest = path
    inner = content.get(name)
    if rest:
        return {**content, name: _merge(inner or {}, rest, values)}
    if isinstance(values, list):
        return {**content, name: [*(inner or ()), *values]}
    return {**content, name: {**(inner or {}), **values}}


def _join(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [part for item in value for part in (item if isinstance(item, list) else [item])]


def _write_toml(entry: Mapping[str, Any]) -> Iterator[str]:
    for name, value in entry.items():
        yield f"{_quote(name)} = {_write_value(value)}\n"


def _write_value(value: Any) -> str:
    """Return a value in TOML: texts and numbers are as in JSON, a mapping is an inline table."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quote(name)} = {_write_value(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_write_value, value)) + "]"
    return _quote(value)


def _quote(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
