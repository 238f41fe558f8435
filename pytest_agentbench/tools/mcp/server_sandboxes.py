"""Where the programs of servers run: beside the agent's commands, which must not see into them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from pytest_agentbench.config import ConfigRoot, RunProfile, program_problem, server_problem
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.records import McpServer, SandboxSettings
from pytest_agentbench.tools.mcp.launching import mounts_of
from pytest_agentbench.workspaces import Sandbox, Sandboxes, SandboxSpec, Workspace


def sandbox_of(server: McpServer, profile: SandboxSettings) -> SandboxSettings:
    """Where the server's program runs: as it says itself, else as the run profile does."""
    if server.sandbox is None:
        return profile
    return server.sandbox if isinstance(server.sandbox, SandboxSettings) else SandboxSettings(type=server.sandbox)


def server_refusal(name: str, server: McpServer, root: ConfigRoot, profile: RunProfile) -> str | None:
    """Return why a declared server may not have its program, or variables that it asks for; None where it may.

    What the session's root declares is the user's word. Of a container the program is its image's own; a relative
    path without `cwd` is the workspace's.
    """
    own = root.own
    written = own is not None and server in (root.own_servers().get(name), profile.own_servers().get(name))
    command = server.command or ""
    is_placed = server.cwd is not None or os.path.isabs(command)
    if is_placed and sandbox_of(server, profile.sandbox_settings).type != "docker":
        folder = own.real if written and own is not None else root.programs
        if problem := program_problem(command, server.cwd or root.real, folder):
            return f"command: {problem}"
    return server_problem(server, root.key_grants(), written=written) if server.env_from or server.headers else None


def server_spec(sandboxes: Sandboxes, name: str, server: McpServer, profile: SandboxSettings) -> SandboxSpec | None:
    """The sandbox of its program; None for a server that has only an address. Raises UnavailableError, ConfigError."""
    if server.command is None:
        return None
    spec = sandboxes.spec(sandbox_of(server, profile))
    if server.url is not None and spec.kind != "local" and not (spec.kind == "bubblewrap" and spec.network):
        raise ConfigError(
            f"MCP server {name!r}: it is spoken to at {server.url}, which nothing in its sandbox ({spec.kind}) can "
            "serve; set its `sandbox: {type: bubblewrap, network: allow}`, or `sandbox: local`"
        )
    return replace(spec, mounts=mounts_of(server, spec.kind))


class ServerSandboxes:
    """The sandboxes of the servers that share a workspace: one for each spec, started with the first of its servers."""

    def __init__(self, sandboxes: Sandboxes, workspace: Callable[[], Workspace]) -> None:
        """`workspace` gives the folder, made at first use."""
        self._sandboxes, self._workspace = sandboxes, workspace
        self._started: dict[SandboxSpec, asyncio.Task[Sandbox]] = {}

    async def get(self, spec: SandboxSpec) -> Sandbox:
        """The sandbox of that spec. Raises SandboxError and UnavailableError where it cannot be had."""
        started = self._started.get(spec)
        if started is None or (started.done() and started.exception() is not None):  # what failed then may work now
            starting = self._sandboxes.start(spec, self._workspace(), beside=True)
            started = self._started[spec] = asyncio.ensure_future(starting)
        return await asyncio.shield(started)

    async def stop(self) -> None:
        """Ends them with all that runs in them. Never raises; may be called twice."""
        await asyncio.gather(*map(_stopped, self._started.values()))


async def _stopped(started: asyncio.Task[Sandbox]) -> None:
    with suppress(AgentbenchError):  # it never started, which whoever asked for it was told
        await (await started).stop()
