"""Which sandbox a run profile means."""

from __future__ import annotations

from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.workspaces.local import LocalSandbox
from pytest_agentbench.workspaces.sandbox import Sandbox


def sandbox_for(name: str) -> Sandbox:
    """The sandbox that a run profile names. Raises UnavailableError for those this version does not have."""
    if name == "local":
        return LocalSandbox()
    raise UnavailableError(
        f"exec_shell needs a sandbox, and `sandbox: {name}` is not to be had: this version has only `local` (no "
        "isolation); set `sandbox: local` in the run profile if you trust this agent"
    )
