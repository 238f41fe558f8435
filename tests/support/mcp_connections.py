"""Connect to the test server, with a workspace and a sandbox for each connection."""

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
    """Return the declaration of the test server as in a user's file."""
    given: dict[str, Any] = {"command": "python3", "args": ("-I", SERVER.name, *options), "cwd": str(SERVER.parent)}
    return McpServer(**{**given, **declared})


def sandbox_for(
    server: McpServer, kind: SandboxKind = "local", **settings: Any
) -> AbstractAsyncContextManager[Sandbox]:
    """Return a sandbox with the requirements of the server."""
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
    """Yield a connection to the server, and close it at the end."""
    async with sandbox_for(server, kind, **settings) as sandbox:

        async def launch() -> Process:
            return await launch_server(server, sandbox, environ, offline=offline)

        connection = Connection("Test", server, launch, environ=environ, offline=offline)
        try:
            yield connection
        finally:
            await connection.close()


async def failure(connection: Connection, tool: str, seconds: float | None = None, **arguments: Any) -> str:
    """Return the text that the agent gets for a call that fails."""
    try:
        result = await connection.call(tool, arguments, seconds)
    except McpCallError as error:
        return str(error)
    raise AssertionError(f"it did not fail: {result}")


async def logged(log: Path, line: str, seconds: float = 20) -> None:
    """Return when the server's log has a line that begins with the text."""
    async with asyncio.timeout(seconds):
        while not any(found.startswith(line) for found in lines_of(log)):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def lines_of(log: Path) -> list[str]:
    """Return the lines of the server's log."""
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []
