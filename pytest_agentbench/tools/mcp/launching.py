"""Launching of servers' programs, and the sandboxes they run in, which agents must not see into."""

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
from pytest_agentbench.records.base import SandboxKind
from pytest_agentbench.records.case import VARIABLE, McpServer, SandboxSettings
from pytest_agentbench.workspaces.sandboxes.base import Mount, Process, Sandbox, SandboxSpec, likeness_of
from pytest_agentbench.workspaces.sandboxes.bubblewrap import ShownProgram, show_program
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.workspace import WORKSPACE, Workspace

_IN_FOLDER = 'cd "$1" && shift && unset OLDPWD && exec "$@"'
_OFFLINE = {"npm_config_offline": "true", "UV_OFFLINE": "1"}
"""Variables by which npx and uvx fail at once if they would have to download, instead of trying again for 30 s."""

_OWN_FOLDERS = ("/tmp/", f"{WORKSPACE}/")  # noqa: S108 - of a sandbox


class Turns:
    """Turns of the event loop over which starts of programs are spread: each holds it up for some milliseconds."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def next(self) -> None:
        """Return in a turn of the event loop that is the caller's own."""
        async with self._lock:
            await asyncio.sleep(0)


def find_problem(server: McpServer, environ: Mapping[str, str], kind: SandboxKind = "local") -> str | None:
    """Return what the server needs and does not find: a variable, its folder, its program. None where nothing is
    missing.

    The programs of a container (`kind` docker) are those of its image: nobody knows them before it runs.
    """
    return next(_problems(server, environ, likeness_of(kind)), None)


def list_mounts(server: McpServer, kind: SandboxKind, environ: Mapping[str, str] = os.environ) -> tuple[Mount, ...]:
    """Return what the server's sandbox must show it beside the workspace: its folder, in bubblewrap its program."""
    kind = likeness_of(kind)
    if server.command is None or kind == "local":
        return ()
    folder = () if server.cwd is None else (Mount(Path(server.cwd), _map_folder(server.cwd, kind)),)
    if kind == "docker":
        return folder
    try:
        return (*_find_program(server, environ, kind).mounts, *folder)
    except LookupError:  # which is the problem of whoever starts it
        return folder


def lacks_network(spec: SandboxSpec | None) -> bool:
    """Return whether a server's program runs in a sandbox without network; False for a server without a program."""
    return spec is not None and likeness_of(spec.kind) != "local" and not spec.network


async def launch_server(
    server: McpServer, sandbox: Sandbox, environ: Mapping[str, str] = os.environ, *, offline: bool = False
) -> Process:
    """Start the server's program, in a sandbox that has the mounts of the server, and no network if `offline`.

    Raises SandboxError, and UnavailableError with the reason where something is missing that it needs.
    """
    kind = likeness_of(sandbox.kind)
    missing = find_problem(server, environ, kind)
    if missing is not None:
        raise UnavailableError(missing)
    program = _find_program(server, environ, kind)
    workspace = str(sandbox.workspace.path) if kind == "local" else WORKSPACE
    environment = {"AGENTBENCH_WORKSPACE": workspace, **(_OFFLINE if offline else {})}
    if program.path:
        environment["PATH"] = os.pathsep.join(program.path)
    argv = [program.program, *server.args]
    if server.cwd is not None:
        argv = ["/bin/sh", "-c", _IN_FOLDER, "sh", _map_folder(server.cwd, kind), *argv]
    return await sandbox.open(argv, environment={**environment, **_own_variables(server, environ)}, stderr="apart")


def list_variables(server: McpServer) -> list[str]:
    """Return the names of this process's variables that the server gets."""
    return [*server.env_from, *server.header_variables]


def collect_secrets(server: McpServer, environ: Mapping[str, str]) -> dict[str, str]:
    """Return whatever the server is given and should not be shown, by some name: its variables and headers."""
    named = {name: environ[name] for name in server.header_variables if name in environ}
    headers = {f"header {name}": value for name, value in expand_headers(server, environ).items()}
    return {**headers, **named, **_own_variables(server, environ)}


def expand_headers(server: McpServer, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the server's headers, with the values of the variables that they name; nothing for one that is not set."""
    return {
        name: VARIABLE.sub(lambda found: environ.get(found[1], ""), value) for name, value in server.headers.items()
    }


def _problems(server: McpServer, environ: Mapping[str, str], kind: SandboxKind) -> Iterator[str]:
    for name in list_variables(server):
        if name not in environ:
            yield f"the variable {name} is not set"
    if server.command is None:
        return
    if server.cwd is not None and not os.path.isdir(server.cwd):
        yield f"its folder {server.cwd} does not exist"
    try:
        _find_program(server, environ, kind)
    except LookupError as error:
        yield str(error)


def _find_program(server: McpServer, environ: Mapping[str, str], kind: SandboxKind) -> ShownProgram:
    """Return how the server's program is called. Raises LookupError where it is not to be had."""
    command = server.command
    assert command is not None
    is_relative = os.sep in command and not os.path.isabs(command)
    if kind == "docker" or (is_relative and server.cwd is None):
        return ShownProgram(command)  # of the image, or of a workspace that may not be there yet
    file = os.path.join(server.cwd, command) if is_relative and server.cwd is not None else command
    path = environ.get("PATH")  # never what the file's own `env` says
    if kind == "bubblewrap":
        moves = server.cwd is not None and _map_folder(server.cwd, kind) != server.cwd
        shown = show_program(file, path, None if moves and not is_relative else server.cwd)
        return replace(shown, program=command) if is_relative else shown
    found = shutil.which(file, path=path)
    if found is None:
        raise LookupError(f"the program {command} is not installed")
    return ShownProgram(found)


def _map_folder(cwd: str, kind: SandboxKind) -> str:
    """Return where the server finds its folder: at the same place, or below /mnt where a sandbox has its own there."""
    own = kind != "local" and f"{os.path.normpath(cwd)}/".startswith(_OWN_FOLDERS)
    return f"/mnt{os.path.normpath(cwd)}" if own else cwd


def _own_variables(server: McpServer, environ: Mapping[str, str]) -> dict[str, str]:
    return {**{name: environ[name] for name in server.env_from if name in environ}, **server.env}


def choose_sandbox(server: McpServer, profile: SandboxSettings) -> SandboxSettings:
    """Return where the server's program runs: as it says itself, else as the run profile does."""
    if server.sandbox is None:
        return profile
    return server.sandbox if isinstance(server.sandbox, SandboxSettings) else SandboxSettings(type=server.sandbox)


def server_refusal(name: str, server: McpServer, root: ConfigRoot, profile: RunProfile) -> str | None:
    """Return why a declared server may not have its program, or variables that it asks for; None where it may.

    What the session's root declares is the user's word. Of a container the program is its image's own; a relative
    path without `cwd` is the workspace's.
    """
    own = root.own
    written = own is not None and server in (root.own_servers().get(name), profile.own_servers().get(name))
    command = server.command or ""
    is_placed = server.cwd is not None or os.path.isabs(command)
    if is_placed and likeness_of(choose_sandbox(server, profile.sandbox_settings).type) != "docker":
        folder = own.real if written and own is not None else root.programs
        if problem := find_program_problem(command, server.cwd or root.real, folder):
            return f"command: {problem}"
    return (
        find_server_problem(server, root.key_grants(), written=written) if server.env_from or server.headers else None
    )


def server_spec(sandboxes: Sandboxes, name: str, server: McpServer, profile: SandboxSettings) -> SandboxSpec | None:
    """Return the sandbox of the server's program; None for a server that has only an address.

    Raises UnavailableError, ConfigError.
    """
    if server.command is None:
        return None
    spec = sandboxes.spec(choose_sandbox(server, profile))
    like = likeness_of(spec.kind)
    if server.url is not None and like != "local" and not (like == "bubblewrap" and spec.network):
        raise ConfigError(
            f"MCP server {name!r}: it is spoken to at {server.url}, which nothing in its sandbox ({spec.kind}) can "
            "serve; set its `sandbox: {type: bubblewrap, network: allow}`, or `sandbox: local`"
        )
    return replace(spec, mounts=list_mounts(server, spec.kind))


class ServerSandboxes:
    """The sandboxes of the servers that share a workspace: one for each spec, started with the first of its servers."""

    def __init__(self, sandboxes: Sandboxes, workspace: Callable[[], Workspace]) -> None:
        """Set up without starting any; `workspace` gives the folder, made at first use."""
        self._sandboxes, self._workspace = sandboxes, workspace
        self._started: dict[SandboxSpec, asyncio.Task[Sandbox]] = {}

    async def get(self, spec: SandboxSpec) -> Sandbox:
        """Return the sandbox of that spec. Raises SandboxError and UnavailableError where it cannot be had."""
        started = self._started.get(spec)
        if started is None or (started.done() and started.exception() is not None):  # what failed then may work now
            starting = self._sandboxes.start(spec, self._workspace(), beside=True)
            started = self._started[spec] = asyncio.ensure_future(starting)
        # Shielded: a run that gives up waiting must not cancel the start for the others that share the sandbox.
        return await asyncio.shield(started)

    async def stop(self) -> None:
        """End all sandboxes with what runs in them. Never raises; may be called twice."""
        await asyncio.gather(*map(_stop_started, self._started.values()))


async def _stop_started(started: asyncio.Task[Sandbox]) -> None:
    with suppress(AgentbenchError):  # it never started, which whoever asked for it was told
        await (await started).stop()
