"""Sandboxes of other packages, whose unexpected exceptions become a SandboxError.

Without it a broken connection of a remote sandbox would look like a problem of the agent's command: the model would
read it as the result of a tool, and the run would fail or pass by it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.records.base import SandboxKind
from pytest_agentbench.records.run import SandboxUsed
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.sandboxes.base import (
    NO_VARIABLES,
    Answer,
    ExecResult,
    Process,
    Sandbox,
    SandboxProvider,
    SandboxRequest,
    SandboxSession,
    SandboxSpec,
    Stderr,
    refuse_user,
    refuse_words,
)
from pytest_agentbench.workspaces.workspace import TreeError, Workspace


@contextmanager
def _guarding(kind: SandboxKind, method: str, *allowed: type[Exception]) -> Iterator[None]:
    """Raise a SandboxError in place of exceptions that the method does not document."""
    try:
        yield
    except (SandboxError, UnavailableError):
        raise
    except Exception as error:
        # A file may be missing; a connection that is lost is the sandbox's failure
        is_lost = isinstance(error, ConnectionError | TimeoutError) and type(error) not in allowed
        if isinstance(error, allowed) and not is_lost:
            raise
        raise SandboxError(f"sandbox {kind}: {method}: {type(error).__name__}: {error}") from error


def open_guarded(provider: SandboxProvider, kind: SandboxKind) -> GuardedSession:
    """Return the session's state of a provider. Raises SandboxError if it cannot be opened."""
    with _guarding(kind, "open"):
        return GuardedSession(provider.open(), kind, switches_users=provider.switches_users)


class GuardedSession(SandboxSession):
    """The session of another package's provider."""

    def __init__(self, session: SandboxSession, kind: SandboxKind, *, switches_users: bool) -> None:
        self._session, self._kind, self._switches_users = session, kind, switches_users

    async def prepare(self, spec: SandboxSpec) -> None:
        """Prepare slow requirements."""
        with _guarding(self._kind, "prepare"):
            await self._session.prepare(spec)

    def expect(self, spec: SandboxSpec, runs: int) -> None:
        """Announce runs."""
        with _guarding(self._kind, "expect"):
            self._session.expect(spec, runs)

    def workspace(self, spec: SandboxSpec) -> Workspace | None:
        """Return the folder of a sandbox that was made ahead, or None."""
        with _guarding(self._kind, "workspace"):
            return self._session.workspace(spec)

    async def start(self, request: SandboxRequest) -> Sandbox:
        """Return a guarded sandbox."""
        with _guarding(self._kind, "start"):
            sandbox = await self._session.start(request)
            if hasattr(sandbox, "open") and not hasattr(sandbox, "spawn"):
                problem = f"{type(sandbox).__name__} has the method `open` of an earlier version; rename it to `spawn`"
                raise SandboxError(f"sandbox {self._kind}: {problem}")
            return GuardedSandbox(sandbox, switches_users=self._switches_users)

    async def describe(self, spec: SandboxSpec) -> SandboxUsed:
        """Return the facts about a started sandbox."""
        with _guarding(self._kind, "describe"):
            return await self._session.describe(spec)

    def release(self, workspace: Workspace) -> None:
        """Report that the run of this workspace has ended."""
        with _guarding(self._kind, "release"):
            self._session.release(workspace)

    async def close(self) -> None:
        """Stop everything."""
        with _guarding(self._kind, "close"):
            await self._session.close()


class GuardedSandbox:
    """A sandbox of another package's provider."""

    def __init__(self, sandbox: Sandbox, *, switches_users: bool) -> None:
        self._sandbox, self._switches_users = sandbox, switches_users

    @property
    def kind(self) -> SandboxKind:
        """Return the kind of sandbox."""
        return self._sandbox.kind

    @property
    def workspace(self) -> Workspace:
        """Return the run's workspace."""
        return self._sandbox.workspace

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
        """Run a command. Another user is refused if the provider cannot switch users."""
        if not self._switches_users:
            refuse_user(self.kind, user)
        if (refused := refuse_words(argv, environment, cwd)) is not None:
            return refused
        with _guarding(self.kind, "exec"):
            return await self._sandbox.exec(
                argv,
                seconds=seconds,
                stdin=stdin,
                output_limit=output_limit,
                environment=environment,
                user=user,
                cwd=cwd,
                leave_running=leave_running,
            )

    async def spawn(
        self, argv: Sequence[str], *, environment: Mapping[str, str] = NO_VARIABLES, stderr: Stderr = "merged"
    ) -> Process:
        """Start a program."""
        with _guarding(self.kind, "spawn"):
            process = await self._sandbox.spawn(argv, environment=environment, stderr=stderr)
            return GuardedProcess(process, self.kind)

    async def put(self, path: str, content: bytes) -> None:
        """Write a file."""
        with _guarding(self.kind, "put", PathRefusedError, OSError):
            await self._sandbox.put(path, content)

    async def get(self, path: str, limit: int) -> bytes:
        """Return a file."""
        with _guarding(self.kind, "get", PathRefusedError, OSError):
            return await self._sandbox.get(path, limit)

    async def upload(self, folder: Path, target: str) -> None:
        """Copy a folder into it."""
        with _guarding(self.kind, "upload", PathRefusedError, TreeError, OSError):
            await self._sandbox.upload(folder, target)

    async def download(self, path: str, folder: Path) -> None:
        """Copy a folder of it."""
        with _guarding(self.kind, "download", PathRefusedError, TreeError, OSError):
            await self._sandbox.download(path, folder)

    @asynccontextmanager
    async def serve(self, path: str, answer: Answer) -> AsyncIterator[None]:
        """Listen inside of it."""
        with _guarding(self.kind, "serve"):
            serving = self._sandbox.serve(path, answer)
            await serving.__aenter__()
        try:
            yield
        finally:
            with _guarding(self.kind, "serve"):
                await serving.__aexit__(None, None, None)

    async def stop(self) -> None:
        """Kill everything that runs in it."""
        with _guarding(self.kind, "stop"):
            await self._sandbox.stop()


class GuardedProcess:
    """A program in a sandbox of another package's provider."""

    def __init__(self, process: Process, kind: SandboxKind) -> None:
        self._process, self._kind = process, kind

    async def write(self, data: bytes) -> None:
        """Write to its stdin."""
        with _guarding(self._kind, "Process.write", BrokenPipeError):
            await self._process.write(data)

    async def end_input(self) -> None:
        """Close its stdin."""
        with _guarding(self._kind, "Process.end_input"):
            await self._process.end_input()

    async def read(self) -> bytes:
        """Wait for output."""
        with _guarding(self._kind, "Process.read"):
            return await self._process.read()

    def errors(self) -> str:
        """Return the end of its stderr."""
        with _guarding(self._kind, "Process.errors"):
            return self._process.errors()

    async def stop(self) -> None:
        """Kill it."""
        with _guarding(self._kind, "Process.stop"):
            await self._process.stop()
