"""The sandboxes of one session: which kind a run gets, and the way to it."""

from __future__ import annotations

from dataclasses import replace

from pytest_agentbench.config import SandboxSettings
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.records import SandboxNeeds
from pytest_agentbench.workspaces.sandboxes.base import ResourceLimits, Sandbox, SandboxKind, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.local import LocalSandbox
from pytest_agentbench.workspaces.workspace import Workspace, Workspaces


class Sandboxes:
    """All sandboxes of one session, and the workspaces they run in. Methods that are not coroutines never wait long."""

    def __init__(self, workspaces: Workspaces) -> None:
        self.workspaces = workspaces

    def spec(self, settings: SandboxSettings, needs: SandboxNeeds | None = None) -> SandboxSpec:
        """What a run gets by its profile and its case. What works here is found out once.

        Raises UnavailableError, with what to do, where that is not to be had here.
        """
        kind = self._kind(settings, needs)
        spec = SandboxSpec(kind, network=settings.network == "allow", limits=_limits(settings))
        if kind != "docker":
            return spec
        needs = needs or SandboxNeeds()
        return replace(
            spec,
            image=None if needs.dockerfile is not None else needs.image or settings.image,
            dockerfile=needs.dockerfile,
            compose=needs.compose,
            build_network=settings.build_network == "allow",
        )

    def expect(self, spec: SandboxSpec, runs: int) -> None:
        """Says that `runs` more runs will need such a sandbox soon: containers are made ahead of need."""

    def workspace(self, spec: SandboxSpec | None, case_id: str) -> Workspace:
        """A fresh folder for a run that may start a sandbox of that kind; None: it starts none."""
        return self.workspaces.create(case_id)

    async def start(self, spec: SandboxSpec, workspace: Workspace) -> Sandbox:
        """The sandbox of the run that has the workspace. Raises SandboxError where it cannot be had now."""
        if spec.kind == "local":
            return LocalSandbox(workspace, spec.limits)
        raise UnavailableError(f"sandbox: {spec.kind} is not part of this version")

    async def close(self) -> None:
        """Ends what was made and never used."""

    def _kind(self, settings: SandboxSettings, needs: SandboxNeeds | None) -> SandboxKind:
        if settings.type == "local":
            return "local"
        raise UnavailableError(
            f"the case needs a sandbox, and `sandbox: {settings.type}` is not to be had: set `sandbox: local` (no "
            "isolation) in the run profile if you trust this agent"
        )


def _limits(settings: SandboxSettings) -> ResourceLimits:
    return ResourceLimits(
        cpus=settings.cpus,
        memory_bytes=settings.memory_mb * 2**20,
        workspace_bytes=settings.workspace_mb * 2**20,
        file_bytes=min(ResourceLimits().file_bytes, settings.workspace_mb * 2**20),
        processes=settings.processes,
    )
