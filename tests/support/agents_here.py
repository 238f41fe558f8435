"""Check which command-line agents can run here: those with an image of `agentbench agents image`."""

from __future__ import annotations

from support.docker_here import docker_lacks

from pytest_agentbench.runners.agents.adapter import find_adapter


def agent_lacks(name: str) -> str | None:
    """Return the reason why the agent cannot run on this machine, or None. Ask the daemon once."""
    return docker_lacks(find_adapter(name).image, f"agentbench agents image {name}")
