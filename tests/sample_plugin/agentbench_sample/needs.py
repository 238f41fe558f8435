"""Doctor: the containers that the runner `shell` needs, so that `agentbench doctor` looks for them."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_agentbench import Case, PackNeeds, RunProfile, Sandboxes, SandboxSpec


def shell_containers(case: Case, profile: RunProfile, sandboxes: Sandboxes) -> Iterator[SandboxSpec]:
    """Yield the container of a case that names an image. Raises UnavailableError where there is no engine."""
    image = case.runner.overrides.get("image")
    if case.runner.type == "shell":
        settings = profile.sandbox_settings
        yield sandboxes.spec(settings, case.sandbox) if image is None else sandboxes.container(image, settings)


NEEDS = PackNeeds(shell_containers)
