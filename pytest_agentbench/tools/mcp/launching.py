"""Start servers' programs in separate sandboxes, which agents cannot access."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pytest_agentbench.config.keys import find_program_problem, find_server_problem
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import AgentbenchError, ConfigError, UnavailableError
from pytest_agentbench.records.base import AUTO, SandboxKind, SandboxType
from pytest_agentbench.records.case import VARIABLE, Case, McpServer, SandboxSettings
from pytest_agentbench.workspaces.sandboxes.base import (
    Mount,
    Process,
    Programs,
    Sandbox,
    SandboxSpec,
    programs_of,
    provider_of,
)
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sandboxes.shown import ShownProgram, show_program
from pytest_agentbench.workspaces.workspace import WORKSPACE, Workspace

_IN_FOLDER = 'cd "$1" && shift && unset OLDPWD && exec "$@"'
_OFFLINE = {"npm_config_offline": "true", "UV_OFFLINE": "1"}
"""Variables that make npx and uvx fail at once without network, instead of retrying for 30 s."""

_OWN_FOLDERS = ("/tmp/", f"{WORKSPACE}/")  # noqa: S108 - paths in a sandbox


class Turns:
    """Spreads starts of programs over turns of the event loop, because each blocks it for some milliseconds."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def next(self) -> None:
        """Wait for a turn of the event loop without another start."""
        async with self._lock:
            await asyncio.sleep(0)


def find_problem(server: McpServer, environ: Mapping[str, str], sandbox: SandboxType = AUTO) -> str | None:
    """Return the first missing requirement of the server (a variable, its folder, its program), or None.

    The programs of an image are unknown before a sandbox of it runs.
    """
    return next(_problems(server, environ, programs_of(sandbox)), None)


def list_mounts(server: McpServer, kind: SandboxKind, environ: Mapping[str, str] = os.environ) -> tuple[Mount, ...]:
    """Return the mounts of the server's sandbox, except the workspace: its folder, and a mounted program."""
    programs = programs_of(kind)
    if server.command is None or programs == "machine":
        return ()
    folder = () if server.cwd is None else (Mount(Path(server.cwd), _map_folder(server.cwd, programs)),)
    if programs == "image":
        return folder
    try:
        return (*_find_program(server, environ, programs).mounts, *folder)
    except LookupError:  # reported when the server is started
        return folder


def lacks_network(spec: SandboxSpec | None) -> bool:
    """Return whether a server's program runs in a sandbox without network; False for a server without a program."""
    return spec is not None and provider_of(spec.kind).network(spec) == "none"


async def launch_server(
    server: McpServer, sandbox: Sandbox, environ: Mapping[str, str] = os.environ, *, offline: bool = False
) -> Process:
    """Start the server's program in a sandbox that has the server's mounts, and no network if `offline`.

    Raises SandboxError, and UnavailableError with the missing requirement.
    """
    missing = find_problem(server, environ, sandbox.kind)
    if missing is not None:
        raise UnavailableError(missing)
    provider = provider_of(sandbox.kind)
    program = _find_program(server, environ, provider.programs)
    environment = {"AGENTBENCH_WORKSPACE": provider.places(sandbox.workspace).workspace}
    if offline:
        environment |= _OFFLINE
    if program.path:
        environment["PATH"] = os.pathsep.join(program.path)
    argv = [program.program, *server.args]
    if server.cwd is not None:
        argv = ["/bin/sh", "-c", _IN_FOLDER, "sh", _map_folder(server.cwd, provider.programs), *argv]
    # The server's own variables have precedence. Nothing else of this process's environment reaches it
    return await sandbox.spawn(argv, environment={**environment, **_own_variables(server, environ)}, stderr="apart")


def list_variables(server: McpServer) -> list[str]:
    """Return the names of this process's variables that the server gets."""
    return [*server.env_from, *server.header_variables]


def collect_secrets(server: McpServer, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets of the server by name: its variables and headers."""
    named = {name: environ[name] for name in server.header_variables if name in environ}
    headers = {f"header {name}": value for name, value in expand_headers(server, environ).items()}
    return {**headers, **named, **_own_variables(server, environ)}


def expand_headers(server: McpServer, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the server's headers with the values of their variables, empty for a variable that is not set."""
    return {
        name: VARIABLE.sub(lambda match: environ.get(match[1], ""), value) for name, value in server.headers.items()
    }


def _problems(server: McpServer, environ: Mapping[str, str], programs: Programs) -> Iterator[str]:
    for name in list_variables(server):
        if name not in environ:
            yield f"the variable {name} is not set"
    if server.command is None:
        return
    if server.cwd is not None and not os.path.isdir(server.cwd):
        yield f"its folder {server.cwd} does not exist"
    try:
        _find_program(server, environ, programs)
    except LookupError as error:
        yield str(error)


def _find_program(server: McpServer, environ: Mapping[str, str], programs: Programs) -> ShownProgram:
    """Return how the server's program is called. Raises LookupError if it is missing."""
    command = server.command
    assert command is not None
    is_relative = os.sep in command and not os.path.isabs(command)
    if programs == "image" or (is_relative and server.cwd is None):
        return ShownProgram(command)  # in the image, or in a workspace that may not exist yet
    file = os.path.join(server.cwd, command) if is_relative and server.cwd is not None else command
    path = environ.get("PATH")  # never PATH of the file's own `env`
    if programs == "mounted":
        moves = server.cwd is not None and _map_folder(server.cwd, programs) != server.cwd
        visible = show_program(file, path, None if moves and not is_relative else server.cwd)
        if is_relative:
            return replace(visible, program=command)
        return visible
    program = shutil.which(file, path=path)
    if program is None:
        raise LookupError(f"the program {command} is not installed")
    return ShownProgram(program)


def _map_folder(cwd: str, programs: Programs) -> str:
    """Return the server's folder inside the sandbox: the same path, or one below /mnt if the sandbox uses that path
    itself.
    """
    own = programs != "machine" and f"{os.path.normpath(cwd)}/".startswith(_OWN_FOLDERS)
    if own:
        return f"/mnt{os.path.normpath(cwd)}"
    return cwd


def _own_variables(server: McpServer, environ: Mapping[str, str]) -> dict[str, str]:
    return {**{name: environ[name] for name in server.env_from if name in environ}, **server.env}


def choose_sandbox(server: McpServer, profile: SandboxSettings) -> SandboxSettings:
    """Return the sandbox settings of the server's program: its own, else the run profile's."""
    if server.sandbox is None:
        return profile
    if isinstance(server.sandbox, SandboxSettings):
        return server.sandbox
    return SandboxSettings(type=server.sandbox)


def server_refusal(name: str, server: McpServer, root: ConfigRoot, profile: RunProfile) -> str | None:
    """Return why a declared server may not use its program or its variables, or None.

    Declarations of the session's root are trusted. A container's program is in its image, and a relative path without
    `cwd` belongs to the workspace, so neither is checked.
    """
    own = root.own
    written = own is not None and server in (root.own_servers().get(name), profile.own_servers().get(name))
    command = server.command or ""
    is_placed = server.cwd is not None or os.path.isabs(command)
    if is_placed and programs_of(choose_sandbox(server, profile.sandbox_settings).type) != "image":
        folder = own.real if written and own is not None else root.programs
        if problem := find_program_problem(command, server.cwd or root.real, folder):
            return f"command: {problem}"
    if not server.env_from and not server.headers:
        return None
    return find_server_problem(server, root.key_grants(), written=written)


def server_spec(sandboxes: Sandboxes, name: str, server: McpServer, profile: SandboxSettings) -> SandboxSpec | None:
    """Return the sandbox of the server's program; None for a server that has only an address.

    Raises UnavailableError, ConfigError.
    """
    if server.command is None:
        return None
    spec = sandboxes.spec(choose_sandbox(server, profile))
    if server.url is not None and provider_of(spec.kind).network(spec) != "machine":
        raise ConfigError(
            f"MCP server {name!r}: its address is {server.url}, and a program in its sandbox ({spec.kind}) cannot "
            "serve it; set its `sandbox: {type: bubblewrap, network: allow}`, or `sandbox: local`"
        )
    return replace(spec, mounts=list_mounts(server, spec.kind))


class ServerSandboxes:
    """The sandboxes of servers that share a workspace: one for each spec, started with its first server."""

    def __init__(self, sandboxes: Sandboxes, workspace: Callable[[], Workspace], case: Case | None = None) -> None:
        """Set up without starting any. `workspace()` returns the folder, created at first use.

        `case` is the case of the run, None for servers that the session's runs share.
        """
        self._sandboxes, self._workspace, self._case = sandboxes, workspace, case
        self._started: dict[SandboxSpec, asyncio.Task[Sandbox]] = {}

    async def get(self, spec: SandboxSpec) -> Sandbox:
        """Return the sandbox of that spec. Raises SandboxError and UnavailableError if it cannot be started."""
        started = self._started.get(spec)
        if started is None or (started.done() and started.exception() is not None):  # retry after a failure
            starting = self._sandboxes.start(spec, self._workspace(), role="server", case=self._case)
            started = self._started[spec] = asyncio.ensure_future(starting)
        # Shielded: a cancelled run must not cancel the start for the others that share the sandbox
        return await asyncio.shield(started)

    async def stop(self) -> None:
        """Stop all sandboxes with their processes. Never raises; may be called twice."""
        await asyncio.gather(*map(_stop_started, self._started.values()))


async def _stop_started(started: asyncio.Task[Sandbox]) -> None:
    with suppress(AgentbenchError):  # it never started, and the caller of `get` got the error
        await (await started).stop()
