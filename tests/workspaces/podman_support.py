"""Sandboxes of podman, in a session that ends with the test."""

from __future__ import annotations

import subprocess
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from docker_support import in_session
from support.docker_here import IMAGE

from pytest_agentbench.records.case import SandboxSettings
from pytest_agentbench.workspaces.sandboxes.base import Mount, Sandbox, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes

T = TypeVar("T")


def podman_spec(sandboxes: Sandboxes, engine: str, image: str = IMAGE, **settings: Any) -> SandboxSpec:
    return sandboxes.container(image, SandboxSettings(**settings), engine)


def in_podman(
    base: Path, engine: str, act: Callable[[Sandbox], Awaitable[T]], *, mounts: Sequence[Mount] = (), **settings: Any
) -> T:
    """What `act` returns, given a fresh container; settings as in a run profile."""

    async def with_sandbox(sandboxes: Sandboxes) -> T:
        spec = replace(podman_spec(sandboxes, engine, **settings), mounts=tuple(mounts))
        await sandboxes.prepare(spec)
        sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
        try:
            return await act(sandbox)
        finally:
            await sandbox.stop()

    return in_session(base, with_sandbox)


def containers_at(engine: str, base: Path) -> list[str]:
    """The ids of the engine's containers of sessions whose folders lie below a path."""
    label = "pytest-agentbench.session"
    ids = called(engine, "ps", "--all", "--quiet", "--no-trunc").split()
    sessions = {
        each: called(engine, "inspect", "--format", f'{{{{index .Config.Labels "{label}"}}}}', each) for each in ids
    }
    return [each for each, session in sessions.items() if session.startswith(str(base))]


def called(engine: str, *arguments: str) -> str:
    """What the engine says."""
    return subprocess.run([engine, *arguments], capture_output=True, text=True, check=True).stdout.strip()
