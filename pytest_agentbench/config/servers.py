"""How an MCP server is declared, in a case or a run profile."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from pytest_agentbench.config.base import Seconds, VariableName
from pytest_agentbench.records import Record


class McpServer(Record):
    """An MCP server: a program (`command`) or an address (`url`)."""

    command: str | None = None
    """The program to start."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: dict[str, str] = Field(default_factory=dict)
    """Its environment; it gets nothing else but what `env_from` names."""
    env_from: tuple[VariableName, ...] = ()
    """Names of variables that it gets from this process."""
    cwd: str | None = None
    """Where it starts."""
    url: str | None = None
    """Address of a running server."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers of requests to `url`."""
    scope: Literal["run", "session"] = "run"
    """A process for each run, or one for all."""
    timeout_seconds: Seconds | None = None
    """Limit of one call."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("a server has either 'command' or 'url'")
        return self
