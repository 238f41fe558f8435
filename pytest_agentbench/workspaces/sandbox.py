"""The seam for sandboxes: how a command of the agent is run, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pytest_agentbench.workspaces.workspace import Workspace


@dataclass(frozen=True, slots=True)
class ExecResult:
    """A finished command. `exit_code` is None where it was killed at its time limit or for writing without end.

    `output` is what it wrote to stdout and stderr, in order; where it was too long its middle is left out with a note.
    A signal's number n shows as exit code 128 + n, as in a shell.
    """

    exit_code: int | None
    output: str
    timed_out: bool
    truncated: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """What one process of a command may take; `processes` is how many more the user may have than at the start."""

    cpu_seconds: int = 600
    memory_bytes: int = 2 * 2**30
    file_bytes: int = 256 * 2**20
    processes: int = 512


class Sandbox(Protocol):
    """Runs commands in a workspace. When `run` returns or is cancelled, nothing the command started is left."""

    async def run(
        self, argv: Sequence[str], *, workspace: Workspace, seconds: float, output_limit: int = 64_000
    ) -> ExecResult:
        """Run `argv` (no shell) for at most `seconds`, keeping `output_limit` bytes of what it writes.

        Raises SandboxError where the sandbox itself fails.
        """
        ...
