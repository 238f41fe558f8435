"""Sandboxes of a session that ends with the test, and what the daemon has of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import docker
from support.docker_here import IMAGE

from pytest_agentbench.records.case import SandboxNeeds, SandboxSettings
from pytest_agentbench.workspaces.sandboxes.base import Sandbox, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

T = TypeVar("T")


def in_session(base: Path, act: Callable[[Sandboxes], Awaitable[T]]) -> T:
    """What `act` returns, given the sandboxes of a session that ends with it."""
    workspaces = Workspaces(base)

    async def session() -> T:
        sandboxes = Sandboxes(workspaces)
        try:
            return await act(sandboxes)
        finally:
            await sandboxes.close()

    try:
        return asyncio.run(session())
    finally:
        workspaces.close()


def in_container(base: Path, act: Callable[[Sandbox], Awaitable[T]], **settings: Any) -> T:
    """What `act` returns, given a fresh container; settings as in a run profile."""

    async def with_sandbox(sandboxes: Sandboxes) -> T:
        spec = docker_spec(sandboxes, **settings)
        sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
        try:
            return await act(sandbox)
        finally:
            await sandbox.stop()

    return in_session(base, with_sandbox)


def docker_spec(sandboxes: Sandboxes, needs: SandboxNeeds | None = None, **settings: Any) -> SandboxSpec:
    return sandboxes.spec(SandboxSettings(**{"type": "docker", "image": IMAGE, **settings}), needs)


def containers_of(session: str) -> list[dict[str, Any]]:
    """What the daemon says of the containers of the sessions whose folders lie below a path."""
    with docker_client() as client:
        found = client.api.containers(all=True, filters={"label": "pytest-agentbench.session"})
        return [each for each in found if each["Labels"]["pytest-agentbench.session"].startswith(session)]


class docker_client:
    """The SDK's client, closed at the end."""

    def __enter__(self) -> docker.DockerClient:
        self._client = docker.from_env()
        return self._client

    def __exit__(self, *error: object) -> None:
        self._client.close()


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Waits for it."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
