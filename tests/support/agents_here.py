"""Which command-line agents can be run here: those whose image `agentbench agents image` has built."""

from __future__ import annotations

from support.docker_here import docker_lacks

from pytest_agentbench.runners.agents.adapter import find_adapter


def agent_lacks(name: str) -> str | None:
    """Return the reason why the agent cannot run on this machine, or None. The daemon is asked once."""
    return docker_lacks(find_adapter(name).image, f"agentbench agents image {name}")
