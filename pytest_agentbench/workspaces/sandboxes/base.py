"""The seam for sandboxes: protocols, specifications and results of commands."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol

from pytest_agentbench.errors import ConfigError, SandboxError
from pytest_agentbench.extensions import find_extension, ordered_names
from pytest_agentbench.records.base import AUTO, SandboxKind, SandboxType
from pytest_agentbench.records.case import Case, SandboxNeeds, SandboxSettings
from pytest_agentbench.records.run import SandboxUsed
from pytest_agentbench.workspaces.workspace import WORKSPACE, Entry, Workspace

if TYPE_CHECKING:
    from pytest_agentbench.workspaces.sandboxes.images import LocalImages

Killed = Literal["time-out", "output", "memory", "disk", "processes"]
Stderr = Literal["merged", "apart"]
Isolation = Literal["none", "process", "container", "machine"]
Need = Literal["image", "dockerfile", "compose"]
Role = Literal["run", "server", "hook", "verifier"]
Network = Literal["none", "machine", "separate"]
Programs = Literal["machine", "mounted", "image"]
"""Where commands find programs: at their paths on this machine, there if they are the system's or mounted, or in an
image that nobody knows before it runs.
"""

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})

_MOST_WORD = 2**17 - 1
_MOST_WORDS = 2**20
"""Maximum bytes of all arguments and variables: half of Linux's limit, since sandboxes add their own."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """A finished command. `exit_code` is None if it was killed; `killed` is then the reason.

    `output` is stdout and stderr in order. If it is too long, a note replaces its middle. After signal n the exit code
    is 128 + n, as in a shell.
    """

    exit_code: int | None
    output: str
    killed: Killed | None
    truncated: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Limits of a command and its descendants. `processes` counts threads.

    `cpu_seconds` and `file_bytes` apply to each process and each file. `workspace_bytes` bounds the workspace with its
    private temporary folder. `cpus` is a share of time that only docker enforces.
    """

    cpu_seconds: int = 600
    cpus: float = 2.0
    memory_bytes: int = 2 * 2**30
    file_bytes: int = 256 * 2**20
    workspace_bytes: int = 512 * 2**20
    processes: int = 512


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of this machine, mounted read-only at the absolute path `target` of a sandbox."""

    source: Path
    target: str


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """The sandbox that a run needs. Equal specs may share a warm pool.

    - `image` (pinned), `dockerfile`: at most one is set. They and `compose` (a file with further services) need docker.
    - `cli`: the command of another container engine than docker's daemon, such as podman. It needs kind docker.
    - `network` False: no network except for the services of `compose`.
    - `settings`: those of the run profile, if the kind's provider has fields of its own.
    - `watched`: attempts to reach other hosts are recorded. Its provider `joins_networks`.
    - `joins`: paths of namespaces by their kinds (`net`, `user`), in place of a network of its own. A provider that
      `joins_networks` uses them.
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
    settings: SandboxSettings | None = None
    watched: bool = False
    joins: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """A sandbox to start in a workspace.

    - `role`: the use of the sandbox. `run` is the run's own. `server` (programs of MCP servers) and `hook` (commands
      of the case) are additional sandboxes in the run's workspace. `verifier` has a workspace of its own.
    - `case`: the case of the run, None for a trial and for a server that the session's runs share.
    """

    spec: SandboxSpec
    workspace: Workspace
    role: Role = "run"
    case: Case | None = None

    @property
    def is_beside(self) -> bool:
        """Return whether the run's own sandbox uses the workspace, too."""
        return self.role in ("server", "hook")


class Process(Protocol):
    """A program that runs in a sandbox until it is stopped.

    Its stdout and stderr are one stream, unless stderr is separate.
    """

    async def write(self, data: bytes) -> None:
        """Write to its stdin. Raises BrokenPipeError if it no longer reads."""
        ...

    async def end_input(self) -> None:
        """Close its stdin, so that it can exit. Never raises; may be called twice."""
        ...

    async def read(self) -> bytes:
        """Wait for output and return it: at least one byte, or b"" at the end."""
        ...

    def errors(self) -> str:
        """Return the last 16 KiB of its stderr if that is separate, else an empty text."""
        ...

    async def stop(self) -> None:
        """Kill it with all its descendants."""
        ...


class Connection(Protocol):
    """A connection of a program in a sandbox to a socket that `Sandbox.serve` has opened."""

    async def read(self) -> bytes:
        """Wait for data of the program and return it: at least one byte, or b"" at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send data to the program. Raises ConnectionError if it no longer reads."""
        ...


Answer = Callable[[Connection], Awaitable[None]]
"""Answers one connection. It is closed when the function returns."""


class Sandbox(Protocol):
    """A sandbox for the commands of one run. Commands see the run's workspace and no other files of the user.

    Every method raises SandboxError if the sandbox itself fails, never for a failing command.
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
        user: str | None = None,
        cwd: str | None = None,
        leave_running: bool = False,
    ) -> ExecResult:
        """Run `argv` (no shell) for at most `seconds`. Keep `output_limit` bytes of its output.

        - `user`: the name or id of a user inside the sandbox, perhaps with a group (`1000:1000`); None: the run's user.
          Raises SandboxError if there is no such user, or if sandboxes of this kind cannot switch users.
        - `cwd`: a folder inside the sandbox, absolute or relative to the workspace; None: the workspace. The exit code
          is 127 if the command cannot enter the folder.
        - `leave_running`: background processes of the command continue until `stop`. The call returns when the command
          itself has ended. Later output of these processes is discarded.

        Without `leave_running` all processes of the command have ended on return. On cancellation they have ended
        anyway. A command that breaks a limit is killed with everything that runs in the sandbox. The exit code is 126
        for words that no program can be started with, and 127 for a missing program.
        """
        ...

    async def spawn(
        self, argv: Sequence[str], *, environment: Mapping[str, str] = NO_VARIABLES, stderr: Stderr = "merged"
    ) -> Process:
        """Start a program with pipes for its input and output, and return while it runs."""
        ...

    async def put(self, path: str, content: bytes) -> None:
        """Write a file of the workspace, or below /tmp. Raises PathRefusedError and OSError as Workspace does."""
        ...

    async def get(self, path: str, limit: int) -> bytes:
        """Return a file of the workspace, or below /tmp. Raises PathRefusedError if it has more than `limit` bytes."""
        ...

    async def upload(self, folder: Path, target: str) -> None:
        """Copy the content of a folder of this machine into the folder `target`: of the workspace, or below /tmp.

        `target` is created if it is missing. Files of equal names are replaced, other entries stay. Files and folders
        keep their permissions, and links stay links. Raises PathRefusedError for another target, OSError for entries of
        another kind with the same name.
        """
        ...

    async def download(self, path: str, folder: Path) -> None:
        """Copy the content of the folder `path`, of the workspace or below /tmp, into an empty folder of this machine.

        Links stay links and are never followed; FIFOs, sockets and devices are left out. Raises TreeError for too
        many entries or bytes, FileNotFoundError and PathRefusedError as `get` does.
        """
        ...

    def serve(self, path: str, answer: Answer) -> AbstractAsyncContextManager[None]:
        """Listen at a Unix socket below /tmp of the sandbox inside the block, and answer its connections here.

        Connections are answered concurrently. An exception of an answer ends its connection only. At the end of the
        block the answers are cancelled.
        """
        ...

    async def stop(self) -> None:
        """Kill everything that runs in it. The workspace stays. Never raises; may be called twice."""
        ...


class RemoteFiles(Protocol):
    """The copy of a run's workspace on another machine while sandboxes there use it, else the workspace itself.

    Paths and exceptions are those of `Sandbox.put` and `Sandbox.get`.
    """

    async def put(self, path: str, content: bytes) -> None:
        """Write a file."""
        ...

    async def get(self, path: str, limit: int) -> bytes:
        """Return a file."""
        ...

    async def entries(self, path: str) -> list[Entry]:
        """Return the entries of a folder, as `Workspace.entries`."""
        ...

    async def bring_back(self) -> None:
        """Replace the content of the workspace's folder on this machine by the copy's. Raises SandboxError."""
        ...


class SandboxSession:
    """The sandboxes of one kind in one session. Subclasses have to override `start`.

    Methods that are not coroutines may be called in any thread, and return quickly.
    """

    async def prepare(self, spec: SandboxSpec) -> None:
        """Prepare slow requirements before any paid request. Raises UnavailableError, SandboxError."""

    def expect(self, spec: SandboxSpec, runs: int) -> None:
        """Announce that `runs` runs will need such a sandbox soon, so that some can be made ahead."""

    def workspace(self, spec: SandboxSpec) -> Workspace | None:
        """Return the folder of a sandbox that was made ahead, or None for a new folder."""
        return None

    async def start(self, request: SandboxRequest) -> Sandbox:
        """Return a sandbox with the limits and the network of the request's spec. Raises SandboxError."""
        raise NotImplementedError

    async def describe(self, spec: SandboxSpec) -> SandboxUsed:
        """Return the facts about a started sandbox for the run's record."""
        return SandboxUsed(kind=spec.kind)

    def release(self, workspace: Workspace) -> None:
        """Report that the run of this workspace has ended. It may have started no sandbox."""

    async def close(self) -> None:
        """Stop everything that the session has left running."""


@dataclass(frozen=True, slots=True)
class Places:
    """The workspace and its private temporary folder, by their paths as commands in a sandbox see them."""

    workspace: str
    tmp: str


class SandboxProvider:
    """A kind of sandbox: the seam `sandbox NAME`.

    Its attributes and methods answer all questions of the package about the kind. Nothing outside of
    `workspaces.sandboxes` compares names of kinds, so that a plugin's provider is treated like the package's own.

    Run profiles select it with `sandbox: NAME`.
    """

    isolation: Isolation = "none"
    """How its sandboxes are separated from this machine, by the tables of docs/security.md.

    none: this machine's files at their paths, with all rights of the user. process: a process of this machine that
    sees this machine's programs and the mounts of its spec. container: programs and network of its own. machine: a
    kernel of its own, too. With all but `none` the workspace is at /workspace and the private folder at /tmp. Guests
    may use no kind with `none`. If the user allows `auto` to them, they may name any other.
    """

    shares_files: bool = True
    """Whether its sandboxes use the run's folder of this machine.

    False: they are elsewhere. The session copies the folder by `upload` and `download`, and reaches sockets inside by
    `serve`. `isolation` is `container` or `machine` then, requests with the same workspace share one folder there, and
    files of `mounts` are the provider's to copy.
    """

    settings: type[SandboxSettings] = SandboxSettings
    """Model of `sandbox: {type: NAME, ...}` in a run profile; a subclass adds the provider's own fields.

    They reach `start` as `request.spec.settings`, and are in the run's fingerprint.
    """

    takes: frozenset[Need] = frozenset()
    """Needs of cases that it fulfils: `image` also means the run profile's image."""

    switches_users: bool = False
    """Whether `exec` can run a command as another user. If not, `exec` is never called with `user`."""

    joins_networks: bool = False
    """Whether its sandboxes use the network namespace of their spec's `joins`."""

    starts_freely: bool = False
    """Starting one costs nothing and downloads nothing, so that `doctor` and `validate` start it without being asked
    to.
    """

    @property
    def programs(self) -> Programs:
        """Return where commands find their programs, by `isolation`: a provider may declare another value."""
        return _PROGRAMS[self.isolation]

    def places(self, workspace: Workspace, mounts: Sequence[Mount] = ()) -> Places:
        """Return the paths in a sandbox with these mounts."""
        if self.isolation == "none":
            return Places(str(workspace.path), str(workspace.private_tmp()))
        return Places(WORKSPACE, "/tmp")  # noqa: S108 - the sandbox's own

    def network(self, spec: SandboxSpec) -> Network:
        """Return the network of commands: none, this machine's with its loopback, or a separate one."""
        if self.isolation == "none":
            return "machine"
        if not spec.network:
            return "none"
        return "machine" if self.isolation == "process" else "separate"

    def problem(self) -> str | None:
        """Return why the sandbox is unavailable here and the remedy, or None. It must not start or send anything."""
        return None

    def problem_for(self, settings: SandboxSettings, needs: SandboxNeeds) -> str | None:
        """Return why no sandbox is available for these settings and the needs of a case, or None."""
        return self.problem()

    def weakness(self, settings: SandboxSettings) -> str | None:
        """Return the gap in the isolation of commands with these settings, for a warning, or None."""
        if self.isolation == "none":
            return "commands of agents run without isolation, as far as its provider says"
        return None

    def images(self) -> LocalImages | None:
        """Return the images of this machine that its sandboxes run; None if nothing here can find and build them.

        With them `agentbench agents image NAME --engine KIND` builds images, whose ids are in fingerprints. Commands
        run as the owner of the workspace, for whom these images have no name. It must not start or send anything.
        """
        return None

    def check_files(self, needs: SandboxNeeds) -> None:
        """Raise ConfigError for files of a case that no sandbox of this kind can use. Called when the case is read."""

    def open(self) -> SandboxSession:
        """Return the session's state. Called once a session. `SandboxSession.close` ends it."""
        raise NotImplementedError


_PROGRAMS: Mapping[Isolation, Programs] = {
    "none": "machine",
    "process": "mounted",
    "container": "image",
    "machine": "image",
}


def provider_of(kind: SandboxKind) -> SandboxProvider:
    """Return the provider of a kind of sandbox. Raises ConfigError if no such kind is installed."""
    provider: SandboxProvider | None = find_extension("sandbox", kind)
    if provider is None:
        raise ConfigError(f"found the sandbox {kind!r}, expected one of {', '.join(ordered_names('sandbox'))}")
    return provider


def lacks_isolation(sandbox: SandboxType) -> bool:
    """Return whether commands run without isolation with this `sandbox` of a profile. `auto` takes none without it."""
    return sandbox != AUTO and provider_of(sandbox).isolation == "none"


def programs_of(sandbox: SandboxType) -> Programs:
    """Return where commands find their programs in a sandbox of a run profile: by `auto`, as on this machine."""
    if sandbox == AUTO:
        return "machine"
    return provider_of(sandbox).programs


_ENTER = 'cd -P -- "$1" || exit 127; shift; exec "$@"'


def command_in_folder(argv: Sequence[str], cwd: str | None, workspace: str) -> Sequence[str]:
    """Return the command that enters the folder `cwd` of a sandbox and becomes `argv`, or `argv` itself for None.

    `workspace` is the workspace's path in the sandbox. The sandbox's own shell enters the folder, with the rights of
    the command. The exit code is 127 if it cannot.
    """
    if cwd is None:
        return argv
    return ["/bin/sh", "-c", _ENTER, "sh", posixpath.join(workspace, cwd), *argv]


def refuse_words(argv: Sequence[str], environment: Mapping[str, str], cwd: str | None = None) -> ExecResult | None:
    """Return the end of a command that Linux cannot start, as in a shell; None for all others.

    Models and agents choose these words, so that this is not the sandbox's failure.
    """
    problem = None
    if any(not name or "=" in name for name in environment):
        problem = "a variable's name is empty or has a '='"
    variables = (f"{name}={value}" for name, value in environment.items())
    sizes = [0]
    for word in (*argv, *variables, cwd or ""):
        if "\0" in word:
            problem = "found a NUL character"
        try:
            sizes.append(len(os.fsencode(word)))
        except UnicodeEncodeError:
            problem = "found a character that UTF-8 cannot hold"
    if max(sizes) > _MOST_WORD:
        problem = f"an argument or variable has {max(sizes):,} bytes, and Linux takes at most {_MOST_WORD:,}"
    elif sum(sizes) > _MOST_WORDS:
        problem = f"arguments and variables have {sum(sizes):,} bytes, expected at most {_MOST_WORDS:,}"
    if problem is None:
        return None
    return ExecResult(126, f"cannot start the command: {problem}\n", None, truncated=False, seconds=0.0)


def refuse_user(kind: SandboxKind, user: str | None) -> None:
    """Raise SandboxError for another user than the run's, in a sandbox that cannot switch users."""
    if user is not None:
        raise SandboxError(
            f"sandbox {kind}: it cannot run a command as the user {user!r}: only docker, and plugins' sandboxes with "
            "`switches_users`, can run commands as other users than the run's"
        )
