"""Records of synthesis: catalogues, combinations of servers, tasks, verdicts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from pytest_agentbench.config.base import Scope, validate
from pytest_agentbench.config.documents import parse_json, read_bytes, read_document
from pytest_agentbench.config.sections import ServerName
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.base import Record, Text
from pytest_agentbench.tools.mcp.servers import ServerTool

Stage = Literal["generation", "fuzzing", "gate"]
STAGES: tuple[Stage, ...] = ("generation", "fuzzing", "gate")
"""The requests of a draft, in order."""

Kind = Literal[
    "unparseable",
    "url",
    "local path",
    "street address",
    "absolute date",
    "unused server",
    "repetition",
    "name",
    "lost number",
    "solvability",
    "utility",
    "removed by hand",
]
"""Why a draft is rejected."""

Language = Literal["en", "zh"]


class Reason(Record):
    """Reason to reject a draft: its text names the finding and the remedy."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A server, by its name in the declarations, and its tools."""

    server: str
    tools: tuple[ServerTool, ...]


class Combination(Record):
    """The servers of a task, at least one, in order."""

    name: str
    servers: tuple[str, ...] = Field(min_length=1)
    description: str | None = None

    @property
    def type(self) -> str:
        """Return `single_server`, `two_server`, ..., in the form of MCP-Bench's files."""
        words = {1: "single", 2: "two", 3: "three", 4: "four", 5: "five"}
        count = len(self.servers)
        return f"{words.get(count, count)}_server"


class Generated(Record):
    """A detailed task. `dependencies` maps tool ids to the ids of tools that have to succeed before."""

    task_description: str
    dependency_analysis: str
    dependencies: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class Quality(Record):
    """Scores of the gate, from 1 to 10."""

    solvability: float
    utility: float
    solvability_feedback: str = ""
    utility_feedback: str = ""


class Verdict(Record):
    """The result of a draft: accepted without reasons against it. `stage` is the last stage that it reached."""

    stage: Stage
    reasons: tuple[Reason, ...] = ()
    generated: Generated | None = None
    fuzzy: str | None = None
    quality: Quality | None = None

    @property
    def accepted(self) -> bool:
        """Return whether the draft is a task."""
        return not self.reasons


_SUBJECT = re.compile(
    r"(?i)calculat|comput(?:e|ation|ing)|arithmetic|math|algebra|statistic|numeric|engineering|physics|"
    r"unit\w*[\s_-]+conver|conver(?:sion|ter)|计算|数学|换算|统计|工程"
)
_NUMBERS = ("number", "integer")
_FEWEST = 2
"""Minimum tools that require numbers: with a single one, the number may be a limit of results."""


def is_calculator(catalogue: Catalogue, category: str | None) -> bool:
    """Return whether a server calculates, by its category. Without one: by its name, or if most tools need numbers."""
    # Declarations take precedence: the guesses below are for servers without one.
    if category is not None:
        return _SUBJECT.search(category) is not None
    if _SUBJECT.search(catalogue.server):
        return True
    asking = sum(_requires_numbers(tool.input_schema) for tool in catalogue.tools)
    return asking >= _FEWEST and asking * 2 > len(catalogue.tools)


def _requires_numbers(schema: Mapping[str, Any]) -> bool:
    # Only required ones: nearly every tool has an optional number that limits its results.
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return False
    return any(_is_numeric(properties.get(name)) for name in required if isinstance(name, str))


def _is_numeric(schema: Any) -> bool:
    """Return whether a schema describes a number, or a list of numbers."""
    if not isinstance(schema, Mapping):
        return False
    return schema.get("type") in _NUMBERS or (schema.get("type") == "array" and _is_numeric(schema.get("items")))


class _Entry(Record):
    """A combination of servers in a file. Other fields are for people."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Text
    servers: Annotated[tuple[ServerName, ...], Field(min_length=1)]
    description: Text | None = None


class _File(Record):
    """Combinations of MCP-Bench, in lists by the number of servers."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    mcp_server_combinations: dict[str, tuple[_Entry, ...]]


def parse_combination(names: str) -> Combination:
    """Return the combination of a comma-separated list of servers.

    :raises ConfigError: the list is empty, or has a server twice.
    """
    servers = tuple(name.strip() for name in names.split(","))
    if not all(servers) or len(set(servers)) < len(servers):
        raise ConfigError(f"--servers: found {names!r}, expected names of servers, each once, with commas between")
    name = f"Single Server: {servers[0]}" if len(servers) == 1 else " + ".join(servers)
    return Combination(name=name, servers=servers)


def read_combinations(path: Path) -> list[Combination]:
    """Return the combinations of a file of MCP-Bench, the first of those with the same servers.

    Its form is `{"mcp_server_combinations": {"two_server_combinations": [{"name", "servers", "description"}]}}`.

    :raises ConfigError: the file cannot be read, has another form, or has no combination.
    """
    document = parse_json(read_bytes(path), path) if path.suffix == ".json" else read_document(path)
    file = validate(document, _File, Scope(folder=str(path.parent)))
    entries = [entry for group in file.mcp_server_combinations.values() for entry in group]
    if not entries:
        raise ConfigError(f"{path}:1:1: mcp_server_combinations: found no combination, expected at least one")
    combinations: dict[frozenset[str], Combination] = {}
    for entry in entries:
        servers = tuple(dict.fromkeys(entry.servers))
        # Tasks of the same servers have the same ids under any name of their combination.
        combination = Combination(name=entry.name, servers=servers, description=entry.description)
        combinations.setdefault(frozenset(servers), combination)
    return list(combinations.values())
