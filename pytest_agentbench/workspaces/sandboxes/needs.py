"""Images and files that a case asks of its sandbox: their place in a fingerprint, and images that are not pinned."""

from __future__ import annotations

from typing import Any

from pytest_agentbench.config.profiles import RunProfile, pinning_problem
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import Case, SandboxNeeds


def describe_needs(needs: SandboxNeeds, *, network: bool) -> dict[str, Any]:
    """Return the part of a run's fingerprint for the case's image and files. `network`: builds have network.

    Raises ConfigError for an image that cannot be built, and for an invalid compose file.
    """
    identity: dict[str, Any] = {}
    if needs.image is not None:
        identity["image"] = needs.image
    if needs.dockerfile is not None:
        from pytest_agentbench.workspaces.containers.images import build_digest

        # Each build may give an image another id: the digest of its sources replaces the id
        identity |= {"image": None, "build": build_digest(needs.dockerfile, network=network)}
    if needs.compose is not None:
        from pytest_agentbench.workspaces.containers.compose import compose_digest

        identity["compose"] = compose_digest(needs.compose, network=network)
    return identity


def refuse_floating_images(case: Case, profile: RunProfile) -> None:
    """Raise ConfigError for an image of the case that is not pinned, unless the profile allows it."""
    needs = case.sandbox
    if needs is None or profile.allow_floating_image:
        return
    if needs.image is not None and (problem := pinning_problem(needs.image)):
        raise ConfigError(f"{case.path}:{case.line}:1: sandbox.image: {problem}")
    if needs.dockerfile is None:
        return
    from pytest_agentbench.workspaces.containers.compose_file import list_base_images

    for image in list_base_images(needs.dockerfile):
        if problem := pinning_problem(image):
            raise ConfigError(f"{needs.dockerfile}:1:1: {problem}")
