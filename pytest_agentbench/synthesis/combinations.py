"""Which servers tasks are made for: those of the command line, or the combinations of a file (seed 004, table 10)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field

from pytest_agentbench.config import Scope, ServerName, parse_json, read, read_bytes, validate
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Record, Text
from pytest_agentbench.synthesis.base import Combination


class _Entry(Record):
    """One combination; other fields are for people."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Text
    servers: Annotated[tuple[ServerName, ...], Field(min_length=1)]
    description: Text | None = None


class _File(Record):
    """The combinations of MCP-Bench, in lists by the number of servers."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    mcp_server_combinations: dict[str, tuple[_Entry, ...]]


def combination_of(names: str) -> Combination:
    """The combination that a comma-separated list of servers names.

    :raises ConfigError: it names none, or one twice.
    """
    servers = tuple(name.strip() for name in names.split(","))
    if not all(servers) or len(set(servers)) < len(servers):
        raise ConfigError(f"--servers: found {names!r}, expected names of servers, each once, with commas between")
    name = f"Single Server: {servers[0]}" if len(servers) == 1 else " + ".join(servers)
    return Combination(name=name, servers=servers)


def read_combinations(path: Path) -> list[Combination]:
    """The combinations of a file as MCP-Bench has it: `{"mcp_server_combinations": {"two_server_combinations":
    [{"name", "servers", "description"}]}}`. Of several with the same servers the first counts.

    :raises ConfigError: the file cannot be read, is another one, or has none.
    """
    document = parse_json(read_bytes(path), path) if path.suffix == ".json" else read(path)
    file = validate(document, _File, Scope(folder=str(path.parent)))
    entries = [entry for group in file.mcp_server_combinations.values() for entry in group]
    if not entries:
        raise ConfigError(f"{path}:1:1: mcp_server_combinations: found no combination, expected at least one")
    found: dict[frozenset[str], Combination] = {}
    for entry in entries:
        servers = tuple(dict.fromkeys(entry.servers))
        found.setdefault(
            frozenset(servers), Combination(name=entry.name, servers=servers, description=entry.description)
        )
    return list(found.values())
