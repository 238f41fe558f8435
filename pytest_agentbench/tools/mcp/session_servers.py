"""Servers that all runs of a session share."""

from __future__ import annotations

import asyncio

from pytest_agentbench.tools.mcp.catalogue import CatalogueKey
from pytest_agentbench.tools.mcp.connection import Lives
from pytest_agentbench.tools.mcp.server_sandboxes import ServerSandboxes


class SessionServers:
    """The servers of scope `session`, and the sandboxes that they run in. No run can end them."""

    def __init__(self, sandboxes: ServerSandboxes) -> None:
        self.sandboxes = sandboxes
        self._lives: dict[CatalogueKey, Lives] = {}

    def lives(self, key: CatalogueKey) -> Lives:
        """Those of the server of that name and definition."""
        return self._lives.setdefault(key, Lives())

    async def close(self) -> None:
        """Ends them all. Never raises; may be called twice."""
        await asyncio.gather(*(lives.end() for lives in self._lives.values()))
        await self.sandboxes.stop()
