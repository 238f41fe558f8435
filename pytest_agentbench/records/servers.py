"""How an MCP server is declared: in a case, a dataset, a run profile, `servers.yaml` or a fixture."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from pytest_agentbench.records.base import AtLeastOne, Record, Seconds, VariableName
from pytest_agentbench.records.check_specs import Text

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""How a header names a variable."""

SandboxType = Literal["auto", "docker", "bubblewrap", "local"]


class SandboxSettings(Record):
    """Where the agent's commands run, and what they may take."""

    type: SandboxType = "auto"
    """auto: docker where a daemon runs and an image is named, else bubblewrap; local isolates nothing."""
    image: Text | None = None
    """Image of the containers, pinned by tag or digest; a case may name its own."""
    network: Literal["deny", "allow"] = "deny"
    """Network for commands."""
    build_network: Literal["deny", "allow"] = "deny"
    """Network while images of cases are built."""
    cpus: Annotated[float, Field(strict=True, gt=0)] = 2.0
    """Processors of a container."""
    memory_mb: AtLeastOne = 2048
    """Memory of all processes of a run."""
    processes: AtLeastOne = 512
    """Processes and threads of a run."""
    workspace_mb: AtLeastOne = 512
    """What a run's workspace may hold."""


def _form(sandbox: Any) -> str:
    return "settings" if isinstance(sandbox, dict | SandboxSettings) else "type"


SandboxChoice = Annotated[
    Annotated[SandboxType, Tag("type")] | Annotated[SandboxSettings, Tag("settings")], Discriminator(_form)
]
"""A type of sandbox, or its settings."""


# Values are not shown: they may be keys.
def _environment(env: dict[str, str]) -> dict[str, str]:
    if any(not name or "=" in name or "\0" in name + value for name, value in env.items()):
        raise ValueError("expected names that are not empty and have no '=', and no NUL in names and values")
    return env


def _headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not re.fullmatch(r"[\t -~]*", value):
            raise ValueError(f"found a header {name!r} that HTTP does not allow, expected one line of ASCII")
    return headers


def _address(url: str) -> str:
    if not re.match(r"https?://[^/?#]", url, re.IGNORECASE):
        raise ValueError(f"found {url!r}, expected an address that begins with http:// or https://")
    return url


def _argument(text: str) -> str:
    if "\0" in text:
        raise ValueError("found a NUL character, which no program can be given")
    return text


class McpServer(Record):
    """An MCP server: a program (`command`) that speaks over its stdin and stdout, or an address (`url`).

    With both, the program is started and then spoken to at the address; such a server is shared by all runs.
    """

    command: Annotated[Text, AfterValidator(_argument)] | None = None
    """The program to start: its name on PATH, or its path where that is installed or below the session's root."""
    args: tuple[Annotated[str, AfterValidator(_argument)], ...] = ()
    """Its arguments."""
    env: Annotated[dict[str, str], AfterValidator(_environment)] = Field(default_factory=dict)
    """Its environment; it gets nothing else but what `env_from` names, and AGENTBENCH_WORKSPACE."""
    env_from: tuple[VariableName, ...] = ()
    """Names of variables that it gets from this process; what a case declares gets those that keys.yaml grants."""
    cwd: str | None = None
    """The folder it starts in, which it can read; relative to the file that declares it. Default: the workspace."""
    url: Annotated[Text, AfterValidator(_address)] | None = None
    """Address of a server that speaks streamable HTTP."""
    headers: Annotated[dict[str, str], AfterValidator(_headers)] = Field(default_factory=dict)
    """Headers of requests to `url`; `${NAME}` in a value is that variable of this process, as in `env_from`."""
    scope: Literal["run", "session"] = "run"
    """A process for each run, so that state never leaks, or one for all."""
    timeout_seconds: Seconds | None = None
    """Limit of one call; default: 60."""
    sandbox: SandboxChoice | None = None
    """Where its program runs, in servers.yaml and run profiles only; default: the run profile's sandbox."""
    category: Text | None = None
    """What it is about: a tag of the MCP tasks that it serves."""

    @property
    def header_variables(self) -> list[str]:
        """The names of this process's variables that its headers hold."""
        return [name for value in self.headers.values() for name in VARIABLE.findall(value)]

    @model_validator(mode="after")
    def _some_way(self) -> Self:
        if self.command is None and self.url is None:
            raise ValueError("a server has a 'command', or a 'url', or both")
        if self.command is not None and self.url is not None and self.scope != "session":
            raise ValueError("a server with both 'command' and 'url' has one address for all runs: set scope: session")
        return self
