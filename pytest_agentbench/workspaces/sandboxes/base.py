"""The seam for sandboxes: where the commands of a run are executed, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol

from pytest_agentbench.extensions import find_extension
from pytest_agentbench.records.base import SandboxKind
from pytest_agentbench.records.run import SandboxUsed
from pytest_agentbench.workspaces.workspace import Workspace

Killed = Literal["time-out", "output", "memory", "disk", "processes"]
Stderr = Literal["merged", "apart"]
Likeness = Literal["docker", "bubblewrap", "local"]

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ExecResult:
    """A finished command. `exit_code` is None where it was killed; `killed` then says for what.

    `output` is what it wrote to stdout and stderr, in order; where it was too long its middle is left out with a note.
    A signal's number n shows as exit code 128 + n, as in a shell.
    """

    exit_code: int | None
    output: str
    killed: Killed | None
    truncated: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Limits of a command with all it starts. `processes` are threads too.

    `cpu_seconds` and `file_bytes` hold for each process and each file. `workspace_bytes` is what the workspace may
    hold with its private temporary folder; `cpus` is a share of time that only docker enforces.
    """

    cpu_seconds: int = 600
    cpus: float = 2.0
    memory_bytes: int = 2 * 2**30
    file_bytes: int = 256 * 2**20
    workspace_bytes: int = 512 * 2**20
    processes: int = 512


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of this machine that a sandbox can read at `target`, an absolute path, and never write."""

    source: Path
    target: str


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """Kind of sandbox that a run needs; equal specs may share a warm pool.

    `cli` is the command of another container engine than docker's daemon, such as podman; it needs kind docker.

    At most one of `image` (pinned) and `dockerfile` is set; either of them, and `compose` (a file with services that
    run beside), need docker. `network` False: no network at all, but for the services of `compose`.
    """

    kind: SandboxKind
    image: str | None = None
    dockerfile: Path | None = None
    compose: Path | None = None
    network: bool = False
    build_network: bool = False
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    mounts: tuple[Mount, ...] = ()
    cli: str | None = None


class Process(Protocol):
    """A program that runs in a sandbox until it is stopped.

    What it writes to stdout and stderr is one stream, unless stderr was to be kept apart.
    """

    async def write(self, data: bytes) -> None:
        """Send to its stdin. Raises BrokenPipeError where it no longer reads."""
        ...

    async def end_input(self) -> None:
        """Close its stdin, so that it may end by itself. Never raises; may be called twice."""
        ...

    async def read(self) -> bytes:
        """Return the output since the last call, at least one byte; nothing at its end."""
        ...

    def errors(self) -> str:
        """Return the end of its stderr so far, 16 KiB at most, where that is kept apart; else nothing."""
        ...

    async def stop(self) -> None:
        """Kill it with all that it started."""
        ...


class Sandbox(Protocol):
    """Place where the commands of one run are executed. It has the run's workspace, and nothing of the machine's own.

    Every method raises SandboxError where the sandbox itself fails, never for what a command does.
    """

    @property
    def kind(self) -> SandboxKind:
        """Return the kind of sandbox."""
        ...

    @property
    def workspace(self) -> Workspace:
        """Return the run's workspace, on this machine."""
        ...

    async def exec(
        self,
        argv: Sequence[str],
        *,
        seconds: float,
        stdin: bytes = b"",
        output_limit: int = 64_000,
        environment: Mapping[str, str] = NO_VARIABLES,
    ) -> ExecResult:
        """Run `argv` (no shell) in the workspace for at most `seconds`, keeping `output_limit` bytes of what it writes.

        When this returns or is cancelled, nothing of what the command started is left, but for open processes. A
        command that breaks a limit is killed with everything that runs in the sandbox.
        """
        ...

    async def open(
        self, argv: Sequence[str], *, environment: Mapping[str, str] = NO_VARIABLES, stderr: Stderr = "merged"
    ) -> Process:
        """Start a program that stays, with pipes for its input and output."""
        ...

    async def put(self, path: str, content: bytes) -> None:
        """Write a file of the workspace, or below /tmp. Raises PathRefusedError and OSError as Workspace does."""
        ...

    async def get(self, path: str, limit: int) -> bytes:
        """Return a file of the workspace, or below /tmp; PathRefusedError where it holds more than `limit` bytes."""
        ...

    async def stop(self) -> None:
        """End everything that runs in it. The workspace stays. Never raises; may be called twice."""
        ...


class SandboxSession:
    """Sandboxes of one kind in one session. A subclass starts them, and overwrites what else applies to it.

    Methods that are no coroutines may be called in any thread, and never wait long.
    """

    async def prepare(self, spec: SandboxSpec) -> None:
        """Have what is slow to be had, before anything is paid. Raises UnavailableError, SandboxError."""

    def expect(self, spec: SandboxSpec, runs: int) -> None:
        """Note that `runs` runs will need such a sandbox soon: some may be made ahead, as far as there is room."""

    def workspace(self, spec: SandboxSpec) -> Workspace | None:
        """Return the folder of a sandbox that was made ahead; None: the run gets a fresh one."""
        return None

    async def start(self, spec: SandboxSpec, workspace: Workspace, *, beside: bool = False) -> Sandbox:
        """Return the sandbox of the run that has the workspace, with the limits and the network of the spec.

        One that is `beside` is a further one for the same run. Raises SandboxError.
        """
        raise NotImplementedError

    async def describe(self, spec: SandboxSpec) -> SandboxUsed:
        """Return what a run's record tells of a sandbox that was started."""
        return SandboxUsed(kind=spec.kind)

    def release(self, workspace: Workspace) -> None:
        """Note that the run which has the workspace has ended, and may have started no sandbox."""

    async def close(self) -> None:
        """End what the session has left running."""


class SandboxProvider:
    """A kind of sandbox that a pack or a plugin adds: the seam `sandbox NAME`. A run profile says `sandbox: NAME`.

    Its sandboxes have the run's workspace, a folder of this machine; one that works elsewhere copies it there and back.
    """

    isolates_like: Likeness = "local"
    """Which of this package's sandboxes its own are like, by the tables of docs/security.md.

    docker: the programs are its own, the workspace is at /workspace, its private folder at /tmp. bubblewrap: this
    machine's programs at their places, workspace and private folder as before; it shows the mounts of its spec. local:
    everything is at its place on this machine, and nothing is isolated. A guest whose user allows `auto` may name one
    that is like docker or bubblewrap.
    """

    def problem(self) -> str | None:
        """Return why there is no such sandbox here, with what to do; None where there is. Starts and sends nothing."""
        return None

    def open(self) -> SandboxSession:
        """Return what a session has of them. Called once a session: nothing of it outlives `SandboxSession.close`."""
        raise NotImplementedError


def likeness_of(kind: SandboxKind) -> SandboxKind:
    """Return the kind of ours that sandboxes of a kind are like: itself, or what the provider of a plugin's says."""
    provider: SandboxProvider | None = find_extension("sandbox", kind)
    return kind if provider is None else provider.isolates_like


class SharedFolder:
    """`put` and `get` of a sandbox whose workspace is a folder of this machine."""

    workspace: Workspace

    async def put(self, path: str, content: bytes) -> None:
        """Put a file into the workspace, on this machine."""
        self.workspace.write_bytes(path, content)

    async def get(self, path: str, limit: int) -> bytes:
        """Return a file of the workspace, on this machine."""
        return self.workspace.read_bytes(path, limit)
