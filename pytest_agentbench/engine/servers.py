"""MCP servers of runs, their part of the run's identity, and the servers that a session shares."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from pytest_agentbench.bounded.digests import digest_file
from pytest_agentbench.config.base import suggest
from pytest_agentbench.config.profiles import RunProfile, pinning_problem
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.sections import ServerName
from pytest_agentbench.engine.job import SERVERS_FIXTURE, Job
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import Case, McpServer, SandboxSettings
from pytest_agentbench.tools.mcp.catalogue import Catalogues, SessionServers, list_argument_files
from pytest_agentbench.tools.mcp.launching import ServerSandboxes, Turns, choose_sandbox, server_refusal
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_MAX_HASHED_BYTES = 16 * 2**20
_HOW = "declare it in a servers.yaml beside or above the case, in the run profile, or in the fixture " + SERVERS_FIXTURE


class SharedServers:
    """MCP servers that runs share. `catalogues` are the tools that servers list; their programs start in `turns`."""

    def __init__(self, catalogues: Catalogues, sandboxes: Sandboxes) -> None:
        self.catalogues = catalogues
        self.turns = Turns()
        workspace = cache(partial(sandboxes.workspace, None, "mcp-servers"))
        self.running = SessionServers(ServerSandboxes(sandboxes, workspace))
        self._declared: dict[int, tuple[Any, Mapping[str, McpServer]]] = {}

    def of_fixture(self, value: Any) -> Mapping[str, McpServer]:
        """Return the servers that the fixture gives; its value is looked at once. Raises ConfigError."""
        known = self._declared.get(id(value))
        # By id, as a dict cannot be hashed; the pair keeps the value alive, so that no other takes its id
        if known is None or known[0] is not value:
            known = self._declared[id(value)] = (value, fixture_servers(value))
        return known[1]


def fixture_servers(value: object) -> Mapping[str, McpServer]:
    """Return the servers that the fixture `agentbench_mcp_servers` gives, by name. Raises ConfigError for a wrong
    value.
    """
    try:
        servers = _adapter().validate_python(value)
    except ValidationError as error:
        problems = (
            f"{SERVERS_FIXTURE}: {'.'.join(map(str, item['loc'])) or 'its value'}: {item['msg']}"
            for item in error.errors(include_url=False)
        )
        raise ConfigError("\n".join(dict.fromkeys(problems))) from None
    for name, server in servers.items():
        if server.cwd is not None and not os.path.isabs(server.cwd):
            raise ConfigError(f"{SERVERS_FIXTURE}: {name}.cwd: found {server.cwd!r}, expected an absolute path")
    return servers


@cache
def _adapter() -> TypeAdapter[dict[str, McpServer]]:
    return TypeAdapter(dict[ServerName, McpServer])


def servers_of(job: Job, case: Case, given: Mapping[str, McpServer]) -> dict[str, McpServer]:
    """Return the run's servers by name, with the fixture's servers `given`. Raises ConfigError as `list_servers`
    does.
    """
    if job.plan.predictions is not None:
        return {}
    return list_servers(job.plan.root, job.plan.run_profile, case, given)


def list_servers(
    root: ConfigRoot, profile: RunProfile, case: Case, given: Mapping[str, McpServer] = MappingProxyType({})
) -> dict[str, McpServer]:
    """Return the servers of a case by name, with the fixture's servers `given`.

    The order of precedence is: the fixture, the case, the run profile, the nearest file. If a part of the case offers
    servers, the run has these and its case's, sorted by name, so that their order does not show which ones distract.
    Any other run has the servers of its case, the run profile and the fixture. Raises ConfigError for an undeclared
    server, and for a server's image that is not pinned.
    """
    if not (case.mcp_servers or case.case_parts or profile.mcp_servers or given):
        return {}
    # None: the case only names the server, and a file in a folder above declares it
    own = {name: server for name, server in case.mcp_servers.items() if server is not None}
    known = {**root.mcp_servers(case.path), **profile.mcp_servers, **own, **given}
    offered = {name for part in case.case_parts for name in part.offered_servers(case.case_id, profile, known)}
    if offered:
        # Sorted, not in the order of declaration: which ones distract is not to be guessed from their places
        names = sorted({*case.mcp_servers, *offered})
    else:
        names = [*dict.fromkeys([*case.mcp_servers, *profile.mcp_servers, *given])]
    for name in profile.exclude_tools:
        if name not in known:
            where = f"run profile {profile.run_profile_id!r}: exclude_tools: {name}"
            raise ConfigError(f"{where}: no MCP server of that name is declared{suggest(name, known)}; {_HOW}")
    for name in names:
        if name not in known:
            raise ConfigError(
                f"{case.path}:{case.line}:1: no MCP server {name!r} is declared{suggest(name, known)}; {_HOW}"
            )
        if problem := _floating_image(known[name], profile):
            raise ConfigError(f"{case.path}:{case.line}:1: MCP server {name!r}: sandbox.image: {problem}")
        if name not in given and (problem := server_refusal(name, known[name], root, profile)):
            raise ConfigError(f"{case.path}:{case.line}:1: MCP server {name!r}: {problem}")
    excluded = {name: tools for part in case.case_parts for name, tools in part.excluded_tools(profile).items()}
    excluded |= profile.exclude_tools
    return {name: _exclude(known[name], excluded.get(name, ())) for name in names}


def _exclude(server: McpServer, tools: tuple[str, ...]) -> McpServer:
    """Return the server without the tools that the run profile or a part of the case excludes."""
    if tools:
        return server.model_copy(update={"exclude_tools": (*server.exclude_tools, *tools)})
    return server


def list_optional_servers(job: Job, case: Case, servers: Mapping[str, McpServer]) -> frozenset[str]:
    """Return the names of the run's `servers` that it goes on without if they cannot be had."""
    profile = job.plan.run_profile
    named = (name for part in case.case_parts for name in part.optional_servers(case.case_id, profile, servers))
    return frozenset(named) & servers.keys()


def _floating_image(server: McpServer, profile: RunProfile) -> str | None:
    """Return the problem of an image that a server names for its own sandbox, if its content may change."""
    sandbox = server.sandbox
    if not isinstance(sandbox, SandboxSettings) or sandbox.image is None or profile.allow_floating_image:
        return None
    return pinning_problem(sandbox.image)


def servers_identity(job: Job, servers: Mapping[str, McpServer], given: Mapping[str, McpServer]) -> dict[str, Any]:
    """Return a part of the run's fingerprint: the properties of its servers that can change a run.

    Values that may be secret and files that a server is started from are hashes. Paths below the config root are
    relative, so that the identity is the same on other machines. The port of a fixture's local server is left out.
    """
    return {name: _identity(job, server, free_port=name in given) for name, server in servers.items()}


def _identity(job: Job, server: McpServer, *, free_port: bool) -> dict[str, Any]:
    root = job.plan.root.real
    secret = {"env": server.env, "headers": server.headers}
    found: dict[str, Any] = {
        "command": server.command,
        # Relative below the root, so that another checkout finds the stored run
        "args": [_below(root, argument) for argument in server.args],
        "env_from": server.env_from,
        "cwd": server.cwd and _below(root, server.cwd),
        "url": server.url and (_without_port(server.url) if free_port else server.url),
        "scope": server.scope,
        "timeout_seconds": server.timeout_seconds,
        "exclude_tools": sorted(set(server.exclude_tools)),
        **{field: {name: _sha256(text.encode()) for name, text in values.items()} for field, values in secret.items()},
    }
    if server.command is not None:
        found["files"] = _files(root, server)
        found["sandbox"] = choose_sandbox(server, job.plan.run_profile.sandbox_settings).model_dump(
            exclude={"build_network"}
        )
    return {name: value for name, value in found.items() if value}


def _files(root: str, server: McpServer) -> dict[str, str]:
    """Return the SHA-256 of the files among its arguments, and of a program of the config root's, by their paths."""
    paths = list_argument_files(server)
    if server.command is not None and os.path.dirname(server.command):
        program = os.path.join(server.cwd or "", server.command)
        if program.startswith(f"{root}/"):
            paths.append(program)
    digests = {}
    for path in paths:
        with suppress(OSError):  # it is unreadable or too large: its content is not compared
            digests[_below(root, path)] = digest_file(path, _MAX_HASHED_BYTES)
    return digests


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _below(root: str, path: str) -> str:
    """Return the path relative to the config root if it is below the root; any other text unchanged."""
    if path.startswith(f"{root}/"):
        return os.path.relpath(path, root)
    return path


def _without_port(url: str) -> str:
    parts = urlsplit(url)
    # The fixture took a free port: it is another one in each session
    if parts.hostname in _LOOPBACK:
        return parts._replace(netloc=parts.hostname or "").geturl()
    return url
