"""Check which command-line agents can run here: those with an image of `agentbench agents image`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from support.docker_here import bubblewrap_lacks, docker_lacks

from pytest_agentbench.runners.agents.adapter import find_adapter


def agent_lacks(name: str) -> str | None:
    """Return the reason why the agent cannot run on this machine, or None. Ask the daemon once."""
    return docker_lacks(find_adapter(name).image, f"agentbench agents image {name}")


def find_acp_sandbox(names: Sequence[str]) -> tuple[str, str | None]:
    """Return the sandbox in which the agents can run by ACP, and the reason why they cannot run anywhere, or None.

    It is docker if all images are there, else bubblewrap with programs on PATH.
    """
    lacks = [reason for name in names if (reason := agent_lacks(name)) is not None]
    if not lacks:
        return "docker", None
    missing = [name for name in names if shutil.which(find_adapter(name).program.executable) is None]
    if missing or bubblewrap_lacks() is not None:
        return "docker", "; ".join(dict.fromkeys(lacks))
    return "bubblewrap", None
