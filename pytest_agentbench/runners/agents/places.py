"""Folders and addresses of a program's run: its control folder, its way to the model, its sandbox."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.runners.base import RunContext
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.sandboxes.base import (
    Connection,
    Mount,
    Sandbox,
    SandboxSpec,
    programs_of,
    provider_of,
)
from pytest_agentbench.workspaces.workspace import WORKSPACE

if TYPE_CHECKING:
    from pytest_agentbench.runners.gateway.address import GatewayAddress
    from pytest_agentbench.runners.gateway.gateway import Gateway
    from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes

CONTROL = "/run/agentbench"
"""Folder of the run's own files in sandboxes, read-only: the relay, long messages, the model's socket."""

HOME = "/tmp/home"  # noqa: S108 - in the run's private folder
"""HOME of programs, the same path in each run; `list_places` has the exceptions."""

PORT = 18790
"""Port of the relay, on the loopback of a sandbox without network."""

SOCKET, _RELAYS = "model.sock", ("relay.py", "relay.mjs")
_SERVED = "/tmp/agentbench/model.sock"  # noqa: S108 - the sandbox's own
"""Path of the model's socket in sandboxes on another machine."""

_CHUNK = 64 * 2**10
START = 'if command -v python3 >/dev/null 2>&1; then exec python3 "$0/relay.py" "$@"; fi; exec node "$0/relay.mjs" "$@"'
_PASSWD = f"root:x:0:0::/root:/bin/sh\nagent:x:{{0}}:{{0}}::{HOME}:/bin/sh\n"


def find_control(sandbox: Sandbox, folder: Path) -> str:
    """Return the path of the control folder inside the sandbox."""
    if programs_of(sandbox.kind) == "machine":
        return str(folder)
    return CONTROL


@contextmanager
def control_folder(sandboxes: Sandboxes) -> Iterator[Path]:
    """Yield a fresh folder below the session's own, which others cannot enter. Raises SandboxError."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="agent-", dir=sandboxes.workspaces.session_folder()))
        folder.chmod(0o755)  # processes in the sandbox may have another user
    except OSError as error:
        raise SandboxError(f"no folder for the run's own files: {error}; free space there or set TMPDIR") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def write_inputs(folder: Path, texts: Sequence[str]) -> None:
    """Write the relay and the turns' texts there, for the sandbox's user to read. Raises SandboxError."""
    here = files("pytest_agentbench.runners.agents")
    contents = {name: here.joinpath(name).read_bytes() for name in _RELAYS}
    for name, content in contents.items():
        write_readable(folder, name, content)
    for number, text in enumerate(texts, start=1):
        write_message(folder, number, text)


def write_message(folder: Path, number: int, text: str) -> None:
    """Write a turn's text there. Raises SandboxError."""
    write_readable(folder, name_message(number), text.encode("utf-8", "replace"))


def write_readable(folder: Path, name: str, content: bytes) -> None:
    """Write a file there that the sandbox's user can read under any umask. Raises SandboxError."""
    try:
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o644)
    except OSError as error:
        raise SandboxError(f"cannot write the agent's input files: {error}") from error


def name_message(number: int) -> str:
    """Return the name of a turn's text there."""
    return f"turn-{number}.md"


@asynccontextmanager
async def open_way(
    gateway: Gateway, context: RunContext, folder: Path, *, relayed: bool
) -> AsyncIterator[GatewayAddress]:
    """Yield the address for the program's model requests: the relay in its sandbox, or the session's listener."""
    from pytest_agentbench.runners.gateway.address import GatewayAddress

    assert context.model is not None
    if relayed:
        async with AsyncExitStack() as stack:
            # Not around the yield: an OSError of the run itself is not about listening
            try:
                await stack.enter_async_context(gateway.serving(folder / SOCKET))
            except OSError as error:
                raise SandboxError(f"cannot listen for the agent's requests to its model: {error}") from error
            yield GatewayAddress(f"http://127.0.0.1:{PORT}", gateway.key, context.model.requested_model)
        return
    if context.listen_for is None:
        raise UnavailableError("a program that runs on this machine itself needs a session's listener")
    opened = context.listen_for(gateway)
    try:
        yield opened.address
    finally:
        opened.close()


@asynccontextmanager
async def open_socket(sandbox: Sandbox, folder: Path) -> AsyncIterator[str]:
    """Yield the path of the model's socket inside the sandbox: in the control folder, or served over the connection."""
    if not provider_of(sandbox.kind).shares_files:
        async with sandbox.serve(_SERVED, partial(_forward, folder)):
            yield _SERVED
    elif programs_of(sandbox.kind) == "machine":
        yield str(folder / SOCKET)
    else:
        yield f"{CONTROL}/{SOCKET}"


async def _forward(folder: Path, connection: Connection) -> None:
    """Forward a connection to the model's socket in the control folder until that end closes."""
    reader, writer = await _connect(folder)

    async def send() -> None:
        while data := await connection.read():
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    sending = asyncio.ensure_future(send())
    try:
        while data := await reader.read(_CHUNK):
            await connection.write(data)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.close()


async def _connect(folder: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    # By a descriptor, because the folder's path may be longer than a socket's name can be
    opened = os.open(folder, os.O_RDONLY)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{opened}/{SOCKET}")
    finally:
        os.close(opened)


def find_workspace(context: RunContext) -> str:
    """Return the path of the run's workspace inside the sandbox."""
    return provider_of(context.needs_sandbox().kind).places(context.workspace).workspace


def list_places(spec: SandboxSpec, sandbox: Sandbox) -> dict[str, str]:
    """Return the paths of workspace and home inside the sandbox."""
    places = provider_of(spec.kind).places(sandbox.workspace, spec.mounts)
    return {"workspace": places.workspace, "home": f"{places.tmp}/home"}


@asynccontextmanager
async def start_sandbox(context: RunContext, folder: Path) -> AsyncIterator[Sandbox]:
    """Yield the run's sandbox. In the end it is stopped, and then the program's HOME is removed."""
    mounts = [Mount(folder, CONTROL)]
    has_images = provider_of(context.needs_sandbox().kind).images() is not None
    if has_images and context.prepared.program.adapter is not None:
        # Some agents fail if their user has no name, and only the run knows the user's number
        write_readable(folder, "passwd", _PASSWD.format(context.workspace.uid).encode())
        mounts.append(Mount(folder / "passwd", "/etc/passwd"))
    try:
        yield await context.sandbox(tuple(mounts))
    finally:
        await context.stop_sandbox()
        try:
            # After the stop, because processes in the sandbox may write until then
            await context.in_thread(partial(context.workspace.remove, HOME))
        except (OSError, PathRefusedError) as error:
            context.trace.event("state_not_removed", reason=str(error))


def show_values() -> dict[str, str | int]:
    """Return example values for the names in templates."""
    return {
        "base": f"http://127.0.0.1:{PORT}",
        "key": "KEY",
        "model": "MODEL",
        "message": "MESSAGE",
        "message_file": f"{CONTROL}/{name_message(1)}",
        "session": "SESSION",
        "context_tokens": 128_000,
        "root": "ROOT",
        "permission": "allow",
        "workspace": WORKSPACE,
        "home": HOME,
        "mcp_relay": f"{CONTROL}/agentbench-mcp",
    }
