"""Start a sandbox for a test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.docker_here import IMAGE

from pytest_agentbench.records.case import SandboxSettings
from pytest_agentbench.workspaces.sandboxes.base import Mount, Sandbox
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces


@asynccontextmanager
async def started(
    kind: str, base: Path | None = None, *, mounts: Sequence[Mount] = (), **settings: Any
) -> AsyncIterator[Sandbox]:
    """Yield a sandbox whose workspace is below `base`; settings as in a run profile."""
    workspaces = Workspaces(base)
    sandboxes = Sandboxes(workspaces)
    image = IMAGE if kind == "docker" else None
    try:
        spec = replace(sandboxes.spec(SandboxSettings(type=kind, image=image, **settings)), mounts=tuple(mounts))
        sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
        try:
            yield sandbox
        finally:
            await sandbox.stop()
    finally:
        await sandboxes.close()
        workspaces.close()
