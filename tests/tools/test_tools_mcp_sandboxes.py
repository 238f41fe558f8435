"""The sandboxes of servers that share a workspace."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from support.docker_here import IMAGE, needs_docker

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.records.case import SandboxSettings
from pytest_agentbench.tools.mcp.launching import ServerSandboxes
from pytest_agentbench.workspaces.sandboxes.base import Mount
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces


@needs_docker
@pytest.mark.slow
def test_a_sandbox_that_could_not_be_started_is_tried_anew(tmp_path: Path) -> None:
    folder = tmp_path / "server"

    async def main(sandboxes: Sandboxes) -> None:
        spec = sandboxes.spec(SandboxSettings(type="docker", image=IMAGE))
        spec = replace(spec, mounts=(Mount(folder, "/opt/server"),))
        workspace = sandboxes.workspace(None, "case")
        servers = ServerSandboxes(sandboxes, lambda: workspace)
        with pytest.raises(SandboxError):
            await servers.get(spec)
        folder.mkdir()
        sandbox = await servers.get(spec)
        assert (await sandbox.exec(["ls", "-d", "/opt/server"], seconds=20)).exit_code == 0
        assert await servers.get(spec) is sandbox
        await servers.stop()
        await sandboxes.close()

    workspaces = Workspaces()
    try:
        asyncio.run(main(Sandboxes(workspaces)))
    finally:
        workspaces.close()
