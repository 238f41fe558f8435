"""Connections to the test server, each with a workspace and a sandbox that end with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from support.started_sandbox import started

from pytest_agentbench.errors import McpCallError
from pytest_agentbench.records.base import SandboxKind
from pytest_agentbench.records.case import McpServer
from pytest_agentbench.tools.mcp.connection import Connection
from pytest_agentbench.tools.mcp.launching import launch_server, list_mounts
from pytest_agentbench.workspaces.sandboxes.base import Process, Sandbox

SERVER = Path(__file__).with_name("mcp_server.py")


def declared_server(*options: str, **declared: Any) -> McpServer:
    """The test server as a user would declare it."""
    given: dict[str, Any] = {"command": "python3", "args": ("-I", SERVER.name, *options), "cwd": str(SERVER.parent)}
    return McpServer(**{**given, **declared})


def sandbox_for(
    server: McpServer, kind: SandboxKind = "local", **settings: Any
) -> AbstractAsyncContextManager[Sandbox]:
    """A sandbox that has what the server needs."""
    return started(kind, mounts=list_mounts(server, kind), **settings)


@asynccontextmanager
async def connected(
    server: McpServer,
    kind: SandboxKind = "local",
    environ: Mapping[str, str] = os.environ,
    *,
    offline: bool = False,
    **settings: Any,
) -> AsyncIterator[Connection]:
    """A connection to it, closed at the end."""
    async with sandbox_for(server, kind, **settings) as sandbox:

        async def launch() -> Process:
            return await launch_server(server, sandbox, environ, offline=offline)

        connection = Connection("Test", server, launch, environ=environ, offline=offline)
        try:
            yield connection
        finally:
            await connection.close()


async def failure(connection: Connection, tool: str, seconds: float | None = None, **arguments: Any) -> str:
    """What the agent is told of a call that fails."""
    try:
        result = await connection.call(tool, arguments, seconds)
    except McpCallError as error:
        return str(error)
    raise AssertionError(f"it did not fail: {result}")


async def logged(log: Path, line: str, seconds: float = 20) -> None:
    """Returns once the server's log has a line that begins so."""
    async with asyncio.timeout(seconds):
        while not any(found.startswith(line) for found in lines_of(log)):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def lines_of(log: Path) -> list[str]:
    """What the server has logged."""
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []
