"""Sandbox provider: `sandbox: {type: crate, engine: podman, image: "debian:12"}` runs commands in a container.

The workspace is mounted, so that SharedFolder has its files and sockets. It bounds memory, processors, processes, CPU
time and the size of files; what a workspace holds in all is not bounded.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from typing import Literal

from agentbench_sample.crate_sandbox import OUTPUTS, CrateSandbox, Engine
from pytest_agentbench import (
    SandboxError,
    SandboxNeeds,
    SandboxProvider,
    SandboxRequest,
    SandboxSession,
    SandboxSettings,
    SandboxSpec,
    SandboxUsed,
    UnavailableError,
    Workspace,
)

STAY = "while :; do sleep 1000 & wait $!; done"
"""The first process of a container: it ends at no signal, and collects processes that have lost their parent."""


class CrateSettings(SandboxSettings):
    """Fields of `sandbox:` in a run profile, in addition to those of every sandbox."""

    engine: Literal["docker", "podman"] = "docker"
    """The command that runs the containers."""


class CrateSession(SandboxSession):
    """The containers of one session."""

    def __init__(self) -> None:
        self._sandboxes: list[CrateSandbox] = []

    async def prepare(self, spec: SandboxSpec) -> None:
        """Pull a missing image. Raises UnavailableError, so that its cases are skipped, if that fails."""
        try:
            await self.describe(spec)
        except SandboxError:
            try:
                await _engine(spec).call("pull", "--quiet", spec.image or "")
            except SandboxError as error:
                raise UnavailableError(f"no image for the sandbox crate: {error}") from error

    async def start(self, request: SandboxRequest) -> CrateSandbox:
        """Start a container in the request's workspace."""
        spec, workspace, engine = request.spec, request.workspace, _engine(request.spec)
        outputs = tempfile.mkdtemp()
        os.chmod(outputs, 0o711)
        folders = [f"{workspace.path}:/workspace", f"{workspace.private_tmp()}:/tmp", f"{outputs}:{OUTPUTS}"]
        folders += [f"{mount.source}:{mount.target}:ro" for mount in spec.mounts]
        limits = spec.limits
        container = await engine.call(
            *("run", "--detach", "--workdir=/workspace", f"--user={_find_user(engine, workspace)}", "--entrypoint=sh"),
            *("--cap-drop=ALL", "--security-opt=no-new-privileges"),
            *(f"--volume={folder}" for folder in folders),
            *(() if spec.network else ("--network=none",)),
            *(f"--memory={limits.memory_bytes}", f"--cpus={limits.cpus}", f"--pids-limit={limits.processes}"),
            *(f"--ulimit=fsize={limits.file_bytes}", f"--ulimit=cpu={limits.cpu_seconds}"),
            *(spec.image or "", "-c", STAY),
        )
        sandbox = CrateSandbox(engine, container, workspace, outputs)
        self._sandboxes.append(sandbox)
        return sandbox

    async def describe(self, spec: SandboxSpec) -> SandboxUsed:
        """Return the image, whose id reports show."""
        image_id = await _engine(spec).call("image", "inspect", "--format={{.Id}}", spec.image or "")
        return SandboxUsed(kind=spec.kind, image=spec.image, image_id=image_id)

    async def close(self) -> None:
        """Remove the containers that are left."""
        await asyncio.gather(*(sandbox.stop() for sandbox in self._sandboxes))


class CrateProvider(SandboxProvider):
    """The kind of sandbox: by its isolation the workspace is at /workspace, and programs are the image's."""

    isolation = "container"
    settings = CrateSettings
    takes = frozenset({"image"})

    def problem(self) -> str | None:
        """Return why there is none here."""
        if shutil.which("docker") or shutil.which("podman"):
            return None
        return "neither docker nor podman is installed; install one of them"

    def problem_for(self, settings: SandboxSettings, needs: SandboxNeeds) -> str | None:
        """Return why there is none for a run profile and a case."""
        engine = settings.engine if isinstance(settings, CrateSettings) else "docker"
        if shutil.which(engine) is None:
            return f"{engine} is not installed; install it, or write another `engine:`"
        if settings.image is None and needs.image is None:
            return "no image is named; write `image:` in the `sandbox` of the case or of the run profile"
        return None

    def open(self) -> CrateSession:
        """Return the state of a session."""
        return CrateSession()


def _engine(spec: SandboxSpec) -> Engine:
    return Engine(spec.settings.engine if isinstance(spec.settings, CrateSettings) else "docker")


def _find_user(engine: Engine, workspace: Workspace) -> str:
    """Return the user of a container, who owns the files of its workspace."""
    if workspace.owner is not None:
        return f"{workspace.owner}:{workspace.owner}"
    if engine.program == "podman":  # of a user other than root: in the container root is that user
        return "0:0"
    return f"{os.getuid()}:{os.getgid()}"


CRATE = CrateProvider()
