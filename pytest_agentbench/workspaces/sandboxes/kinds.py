"""The package's own kinds of sandboxes: docker, bubblewrap and local.

What starts them is imported at their first use: profiles name kinds in sessions that start no command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from pytest_agentbench.records.case import SandboxNeeds, SandboxSettings
from pytest_agentbench.workspaces.sandboxes.base import (
    Mount,
    Need,
    Places,
    Sandbox,
    SandboxProvider,
    SandboxRequest,
    SandboxSession,
)
from pytest_agentbench.workspaces.workspace import PRIVATE_TMP, WORKSPACE, Workspace

if TYPE_CHECKING:
    from pytest_agentbench.workspaces.sandboxes.images import LocalImages
    from pytest_agentbench.workspaces.sandboxes.watchdog import Watchdog
    from pytest_agentbench.workspaces.sessions import Workspaces


def engine_images(program: str | None = None) -> LocalImages:
    """Return the images of docker's daemon, or of a container engine by its program, such as podman."""
    from pytest_agentbench.workspaces.containers.builder import ImageBuilder

    return ImageBuilder(program)


class OwnProvider(SandboxProvider):
    """A kind of the package itself, whose sandboxes share the session's workspaces and watchdog."""

    def open_here(self, engine: str | None, workspaces: Workspaces, watchdog: Watchdog) -> SandboxSession:
        """Return the session's state, by the `cli` of the specs as `engine`."""
        raise NotImplementedError


class Docker(OwnProvider):
    """Containers of docker's daemon, or of another engine."""

    isolation = "container"
    takes = frozenset(get_args(Need))
    switches_users = True

    def problem(self) -> str | None:
        """Return why docker's daemon does not answer."""
        from pytest_agentbench.workspaces.containers.daemon import docker_problem

        return docker_problem()

    def problem_for(self, settings: SandboxSettings, needs: SandboxNeeds) -> str | None:
        """Return why there is no container: a missing image, daemon, or program for services."""
        if settings.image is None and needs.image is None and needs.dockerfile is None:
            return "no image is named; set `sandbox: {type: docker, image: name:tag}` in the run profile"
        if (problem := self.problem()) is not None or needs.compose is None:
            return problem
        from pytest_agentbench.workspaces.containers.compose import compose_problem

        return compose_problem()

    def images(self) -> LocalImages:
        """Return the images of docker's daemon."""
        return engine_images()

    def check_files(self, needs: SandboxNeeds) -> None:
        """Raise ConfigError for a wrong compose file."""
        if needs.compose is not None:
            from pytest_agentbench.workspaces.containers.compose_file import load_compose

            load_compose(needs.compose)

    def open_here(self, engine: str | None, workspaces: Workspaces, watchdog: Watchdog) -> SandboxSession:
        """Return the containers of an engine."""
        from pytest_agentbench.workspaces.containers.pool import ContainerPool

        return ContainerPool(engine, workspaces, watchdog)


class OfProcesses(OwnProvider):
    """A kind whose commands are processes of this machine. A session keeps nothing but its watchdog."""

    starts_freely = True

    def open_here(self, engine: str | None, workspaces: Workspaces, watchdog: Watchdog) -> SandboxSession:
        """Return the sandboxes of a session."""
        return _Processes(self, watchdog)

    def start(self, request: SandboxRequest, watchdog: Watchdog) -> Sandbox:
        """Return a sandbox without any process yet."""
        raise NotImplementedError


class Bubblewrap(OfProcesses):
    """Processes of this machine in namespaces of their own."""

    isolation = "process"
    joins_networks = True

    def places(self, workspace: Workspace, mounts: Sequence[Mount] = ()) -> Places:
        """Return the paths. With a mount below /tmp each command has an empty /tmp."""
        from pytest_agentbench.workspaces.sandboxes.bubblewrap import is_below_tmp

        if any(map(is_below_tmp, mounts)):
            return Places(WORKSPACE, f"{WORKSPACE}/{PRIVATE_TMP}")
        return super().places(workspace)

    def problem(self) -> str | None:
        """Return why bubblewrap does not work here."""
        from pytest_agentbench.workspaces.sandboxes.bubblewrap import bubblewrap_problem

        return bubblewrap_problem()

    def weakness(self, settings: SandboxSettings) -> str | None:
        """Return the sockets of this machine that commands reach with its network."""
        from pytest_agentbench.workspaces.sandboxes.bwrap import closes_abstract_sockets

        if settings.network != "allow" or closes_abstract_sockets():
            return None
        return (
            "with network: allow, commands reach this machine's abstract unix sockets (D-Bus, X, agents), which Linux "
            "6.12 with Landlock closes, and docker has none"
        )

    def start(self, request: SandboxRequest, watchdog: Watchdog) -> Sandbox:
        """Return a sandbox without any process yet."""
        from pytest_agentbench.workspaces.sandboxes.bubblewrap import BubblewrapSandbox

        return BubblewrapSandbox(request.workspace, request.spec, watchdog)


class Local(OfProcesses):
    """Processes of this machine, with limits and without isolation."""

    def weakness(self, settings: SandboxSettings) -> str | None:
        """Return that there is no isolation."""
        return "commands of agents run on this machine without isolation"

    def start(self, request: SandboxRequest, watchdog: Watchdog) -> Sandbox:
        """Return a sandbox without any process yet."""
        from pytest_agentbench.workspaces.sandboxes.host import LocalSandbox

        return LocalSandbox(request.workspace, request.spec.limits, watchdog)


class _Processes(SandboxSession):
    """Sandboxes whose commands are processes of this machine."""

    def __init__(self, provider: OfProcesses, watchdog: Watchdog) -> None:
        self._provider, self._watchdog = provider, watchdog

    async def start(self, request: SandboxRequest) -> Sandbox:
        """Return a sandbox without any process yet."""
        return self._provider.start(request, self._watchdog)


DOCKER, BUBBLEWRAP, LOCAL = Docker(), Bubblewrap(), Local()
