"""Choose and start the sandboxes of one session."""

from __future__ import annotations

import threading
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_agentbench.errors import ConfigError, UnavailableError
from pytest_agentbench.extensions import CONTAINERS, extension_names, load_extensions
from pytest_agentbench.records.base import AUTO, SandboxKind, SandboxType
from pytest_agentbench.records.case import SandboxNeeds, SandboxSettings, change_type
from pytest_agentbench.records.run import SandboxUsed
from pytest_agentbench.workspaces.sandboxes.base import (
    RemoteFiles,
    ResourceLimits,
    Role,
    Sandbox,
    SandboxRequest,
    SandboxSession,
    SandboxSpec,
    provider_of,
)
from pytest_agentbench.workspaces.sandboxes.kinds import OwnProvider, engine_images

if TYPE_CHECKING:
    from pytest_agentbench.records.case import Case
    from pytest_agentbench.workspaces.sandboxes.copies import WorkspaceCopies
    from pytest_agentbench.workspaces.sandboxes.images import LocalImages
    from pytest_agentbench.workspaces.sandboxes.watchdog import Watchdog
    from pytest_agentbench.workspaces.sessions import Workspaces
    from pytest_agentbench.workspaces.workspace import Workspace

_NO_NEEDS = SandboxNeeds()
_AUTOMATIC = ("docker", "bubblewrap")
"""Kinds that `auto` tries, in order of preference."""


class Sandboxes:
    """All sandboxes of one session, and their workspaces. Methods that are not coroutines return quickly.

    Without `starts_engines` no container engine that a file names is started to check whether it works.
    """

    def __init__(self, workspaces: Workspaces, *, starts_engines: bool = True) -> None:
        self.workspaces = workspaces
        self._starts_engines = starts_engines
        self._opened: dict[tuple[SandboxKind, str | None], SandboxSession] = {}
        self._opening = threading.Lock()
        self._copies: WorkspaceCopies | None = None

    @cached_property
    def _watchdog(self) -> Watchdog:
        """Return the session's watchdog, created at first use, because most sessions need none."""
        from pytest_agentbench.workspaces.sandboxes.watchdog import Watchdog

        return Watchdog()

    def spec(self, settings: SandboxSettings, needs: SandboxNeeds | None = None) -> SandboxSpec:
        """Return the sandbox for a run by its profile and its case. Availability is checked once.

        Raises UnavailableError with the remedy if the sandbox is unavailable.
        """
        needs = needs or _NO_NEEDS
        kind = _choose_kind(settings, needs)
        spec = _make_spec(kind, settings)
        taken = provider_of(kind).takes
        if not taken:
            return spec
        # The case's own image or Dockerfile has precedence; the profile's image is for cases without one.
        image = None if needs.dockerfile is not None else needs.image or settings.image
        return replace(
            spec,
            image=image if "image" in taken else None,
            dockerfile=needs.dockerfile,
            compose=needs.compose,
            build_network=settings.build_network == "allow",
        )

    def container(self, image: str, settings: SandboxSettings, engine: str = CONTAINERS) -> SandboxSpec:
        """Return a container of that image with the network and the limits of the settings, regardless of their type.

        `engine` is a kind of sandbox that takes images, or the program of a container engine, such as podman. Raises
        UnavailableError with the remedy if it is unavailable.
        """
        if (problem := find_engine_problem(engine, starts=self._starts_engines)) is not None:
            raise UnavailableError(f"the case needs a container, and no engine for containers is available: {problem}")
        if engine in extension_names("sandbox"):
            return replace(_make_spec(engine, change_type(settings, engine)), image=image)
        return replace(_make_spec(CONTAINERS, change_type(settings, CONTAINERS)), image=image, cli=engine)

    def may_ask(self, spec: SandboxSpec) -> bool:
        """Return whether the spec's engine may be queried: docker's daemon, and others with `starts_engines`."""
        return spec.cli is None or self._starts_engines

    async def prepare(self, spec: SandboxSpec) -> None:
        """Pull or build the image before any paid request.

        Raises UnavailableError if it cannot be pulled, SandboxError if it cannot be built.
        """
        await self._of(spec).prepare(spec)

    def expect(self, spec: SandboxSpec, runs: int) -> None:
        """Announce that `runs` runs will need such a sandbox soon, so that containers are made ahead."""
        self._of(spec).expect(spec, runs)

    def workspace(self, spec: SandboxSpec | None, case_id: str) -> Workspace:
        """Return a new workspace for a run. `spec` is the sandbox that it may start, or None."""
        ready = None if spec is None else self._of(spec).workspace(spec)
        return ready or self.workspaces.create(case_id)

    async def describe(self, spec: SandboxSpec) -> SandboxUsed:
        """Return the facts about a started sandbox."""
        return await self._of(spec).describe(spec)

    async def start(
        self, spec: SandboxSpec, workspace: Workspace, *, role: Role = "run", case: Case | None = None
    ) -> Sandbox:
        """Return a sandbox in the workspace, by a SandboxRequest. Raises SandboxError if it cannot be started."""
        session, request = self._of(spec), SandboxRequest(spec, workspace, role, case)
        if provider_of(spec.kind).shares_files:
            return await session.start(request)
        if self._copies is None:
            from pytest_agentbench.workspaces.sandboxes.copies import WorkspaceCopies

            self._copies = WorkspaceCopies(self.workspaces)
        return await self._copies.start(session, request)

    def copy_of(self, workspace: Workspace) -> RemoteFiles | None:
        """Return the copy in which sandboxes on another machine work; None if none was started there."""
        if self._copies is None:
            return None
        return self._copies.by_folder.get(workspace.path)

    async def bring_back(self, workspace: Workspace) -> None:
        """Bring the folder up to date with its copy on another machine, if it has one. Raises SandboxError."""
        copy = self.copy_of(workspace)
        if copy is not None:
            await copy.bring_back()

    def release(self, workspace: Workspace) -> None:
        """Report that the run of this workspace has ended. Its unused container is removed."""
        for session in tuple(self._opened.values()):
            session.release(workspace)

    async def close(self) -> None:
        """Remove everything that was made and not used. An error of one session does not keep the others from
        closing.
        """
        async with AsyncExitStack() as ends:
            for session in self._opened.values():
                ends.push_async_callback(session.close)

    def _of(self, spec: SandboxSpec) -> SandboxSession:
        """Return this session's state for such sandboxes, opened at first use."""
        key = (spec.kind, spec.cli)
        # Runs call this in several threads. Of two sessions for one key, `close` would miss one
        with self._opening:
            if key not in self._opened:
                self._opened[key] = self._open(spec)
            return self._opened[key]

    def _open(self, spec: SandboxSpec) -> SandboxSession:
        provider = provider_of(spec.kind)
        if isinstance(provider, OwnProvider):
            return provider.open_here(spec.cli, self.workspaces, self._watchdog)
        from pytest_agentbench.workspaces.sandboxes.guarded import open_guarded

        return open_guarded(provider, spec.kind)


def _choose_kind(settings: SandboxSettings, needs: SandboxNeeds) -> SandboxKind:
    """Return the kind of the run's sandbox. Raises UnavailableError if no suitable kind is available."""
    kinds = kinds_of(settings.type)
    if asked := {name for name, value in needs if value is not None}:
        suitable = tuple(kind for kind in kinds if asked <= provider_of(kind).takes)
        if not suitable:
            taken = ", ".join(sorted(provider_of(settings.type).takes))
            also = f", which takes {taken} only" if taken else ""
            raise UnavailableError(
                f"the case needs containers (its {', '.join(sorted(asked))}), and the run profile has "
                f"`sandbox: {settings.type}`{also}: set docker or auto there"
            )
        kinds = suitable
    reasons = []
    for kind in kinds:
        reason = provider_of(kind).problem_for(settings, needs)
        if reason is None:
            return kind
        reasons.append(f"{kind}: {reason}")
    raise UnavailableError(
        f"the case needs a sandbox, and no sandbox is available ({'; '.join(reasons)}); or set `sandbox: local` (no "
        "isolation) in the run profile if you trust this agent"
    )


def kinds_of(sandbox: SandboxType) -> tuple[SandboxKind, ...]:
    """Return the kinds that a profile's `sandbox` allows, in order of preference."""
    if sandbox == AUTO:
        return _AUTOMATIC
    return (sandbox,)


def open_images(engine: str) -> LocalImages:
    """Return the images of a kind of sandbox, or of a container engine by its program, such as podman. Close them.

    Raises ConfigError for a kind that has no images.
    """
    if engine not in extension_names("sandbox"):
        return engine_images(engine)
    if (images := provider_of(engine).images()) is not None:
        return images
    kinds = [name for name, provider in load_extensions("sandbox").items() if provider.images() is not None]
    raise ConfigError(
        f"found the sandbox {engine!r}, for which no images can be built here, expected {', '.join(kinds)}, or the "
        "program of another container engine, such as podman"
    )


def find_engine_problem(engine: str, *, starts: bool) -> str | None:
    """Return why there are no containers of a kind of sandbox, or of an engine's program, and the remedy, or None.

    Without `starts` the program is not started.
    """
    if engine in extension_names("sandbox"):
        provider = provider_of(engine)
        if "image" not in provider.takes:
            return f"the sandbox {engine} runs no images"
        return provider.problem()
    from pytest_agentbench.workspaces.containers.engines import engine_problem, missing_engine

    if starts:
        return engine_problem(engine)
    return missing_engine(engine)


def _make_spec(kind: SandboxKind, settings: SandboxSettings) -> SandboxSpec:
    """Return a sandbox by settings of its kind, or of `auto`, without an image.

    Raises UnavailableError if its kind cannot watch the network.
    """
    own, watched = None if type(settings) is SandboxSettings else settings, settings.network == "watch"
    if watched and not provider_of(kind).joins_networks:
        raise UnavailableError(
            f"sandbox.network: found watch, and {kind} cannot record attempts to reach other hosts; use bubblewrap, or "
            "network: deny"
        )
    return SandboxSpec(
        kind, network=settings.network == "allow", limits=_limits(settings), settings=own, watched=watched
    )


def _limits(settings: SandboxSettings) -> ResourceLimits:
    return ResourceLimits(
        cpus=settings.cpus,
        memory_bytes=settings.memory_mb * 2**20,
        workspace_bytes=settings.workspace_mb * 2**20,
        file_bytes=min(ResourceLimits().file_bytes, settings.workspace_mb * 2**20),
        processes=settings.processes,
    )
