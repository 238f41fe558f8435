"""Sections that several kinds of files have: the settings of a runner, and MCP servers with `servers.yaml`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StrictInt,
    Tag,
    ValidationError,
    ValidationInfo,
)

from pytest_agentbench.config.base import ConfigFile, Problems, complain, resolve_folder, scope_of
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.records.base import AtLeastOne, Seconds
from pytest_agentbench.records.case import McpServer
from pytest_agentbench.records.check_specs import Fraction


class RunnerSettings(BaseModel):
    """The merged settings of one run as `llm_probe` reads them; other fields are request parameters as they are."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    temperature: Annotated[float, Field(strict=True, ge=0, le=2)] | None = None
    """Sampling temperature."""
    top_p: Fraction | None = None
    """Nucleus sampling."""
    max_tokens: AtLeastOne | None = None
    """Most tokens to generate."""
    seed: StrictInt | None = None
    """Reproducibility seed."""
    timeout_seconds: Seconds = 30
    """Wall-clock limit of one request."""
    retries: Annotated[StrictInt, Field(ge=0)] = 5
    """Retries of a request after a transient failure."""
    max_turns: AtLeastOne = 8
    """Most requests before a final answer is forced."""

    @property
    def extras(self) -> dict[str, Any]:
        """Return the fields that `llm_probe` does not know and hands on to the endpoint."""
        return dict(self.model_extra or {})

    @property
    def request_parameters(self) -> dict[str, Any]:
        """Return what goes into every request: the sampling fields that are given, and the extras.

        A None stands for a parameter of the model's own that the request is to leave out.
        """
        sampling = ("temperature", "top_p", "max_tokens", "seed")
        return {name: getattr(self, name) for name in sampling if name in self.model_fields_set} | self.extras


def find_settings_problems(layer: Mapping[str, Any]) -> list[tuple[Loc, str]]:
    """Return what is wrong with one layer of settings. A null is fine: it removes the key."""
    known = {name: layer[name] for name in RunnerSettings.model_fields if layer.get(name) is not None}
    if not known:
        return []
    try:
        RunnerSettings.model_validate(known)
    except ValidationError as error:
        return [
            (tuple(item["loc"]), f"found {item['input']!r}, expected {item['msg'].removeprefix('Input should be ')}")
            for item in error.errors(include_url=False)
        ]
    return []


def _check_settings(layer: dict[str, Any]) -> dict[str, Any]:
    complain(find_settings_problems(layer))
    return layer


SettingsLayer = Annotated[dict[str, Any], AfterValidator(_check_settings)]


_ILLEGAL = re.compile("[:\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def _check_server_name(name: str) -> str:
    if not name.strip() or _ILLEGAL.search(name):
        raise ValueError(
            f"found {name!r}, expected the name of a server: no blank text, without ':' (a tool's id is server:tool) "
            "and control characters"
        )
    return name


ServerName = Annotated[str, AfterValidator(_check_server_name)]
"""What a server is called: the part of its tools' ids before the colon."""


def _place_server(server: McpServer, info: ValidationInfo) -> McpServer:
    scope = scope_of(info)
    if server.cwd is None or scope is None:
        return server
    cwd = os.path.normpath(os.path.join(scope.folder, os.path.expanduser(server.cwd)))
    return server.model_copy(update={"cwd": cwd})


PlacedServers = dict[ServerName, Annotated[McpServer, AfterValidator(_place_server)]]
"""Declared servers by name; where a file says so, with an absolute `cwd`."""


class ServersFile(ConfigFile):
    """MCP servers for the cases of its folder and of those below."""

    servers: PlacedServers = Field(default_factory=dict)
    """Servers by name."""


def _check_case_server(server: McpServer, info: ValidationInfo) -> McpServer:
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


def _tag_form(given: Any) -> str:
    return "names" if isinstance(given, list | tuple) else "declared"


CaseServers = Annotated[
    Annotated[dict[ServerName, Annotated[McpServer, AfterValidator(_check_case_server)]], Tag("declared")]
    | Annotated[tuple[ServerName, ...], Tag("names")],
    Discriminator(_tag_form),
]
"""Servers of a case: declared by name, or a list of names that are declared elsewhere."""


def map_servers(given: Mapping[str, McpServer] | Sequence[str]) -> dict[str, McpServer | None]:
    """Return what a file says of a case's servers by name; None for one that is declared elsewhere."""
    return dict(given) if isinstance(given, Mapping) else dict.fromkeys(given)
