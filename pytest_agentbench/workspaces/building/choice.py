"""Which engine makes an image."""

from __future__ import annotations

from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.workspaces.building.base import ImageBuilder
from pytest_agentbench.workspaces.building.by_command import CommandBuilder
from pytest_agentbench.workspaces.by_command.client import client
from pytest_agentbench.workspaces.docker.building import DockerBuilder
from pytest_agentbench.workspaces.docker.daemon import docker_problem


def image_builder(engine: str) -> ImageBuilder:
    """The engine of that name: `docker` by its SDK, others (podman, a path) by their command line.

    Raises UnavailableError where no daemon answers, or the program has no use.
    """
    if engine != "docker":
        return CommandBuilder(client(engine))
    if (problem := docker_problem()) is not None:
        raise UnavailableError(problem)
    return DockerBuilder()
