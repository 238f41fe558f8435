"""The kit of sandbox providers: commands, files, limits, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import get_args
from uuid import uuid4

import pytest

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.extensions import SessionExtensions, extension_names
from pytest_agentbench.records.case import SandboxSettings
from pytest_agentbench.seams import SEAMS
from pytest_agentbench.testing.samples import expect, expect_error, expect_line, sample_case
from pytest_agentbench.testing.sandbox_exec import (
    LEAVE_READERS,
    check_cwd,
    check_leave_running,
    check_user,
    expect_none_left,
)
from pytest_agentbench.testing.sandbox_exec import PATIENCE as _PATIENCE
from pytest_agentbench.testing.sandbox_exec import run_shell as _run
from pytest_agentbench.testing.sandbox_files import check_folders, check_one_workspace, check_sockets
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.sandboxes.base import (
    Isolation,
    Mount,
    Need,
    Role,
    Sandbox,
    SandboxProvider,
    SandboxRequest,
    SandboxSession,
    SandboxSpec,
)
from pytest_agentbench.workspaces.sandboxes.copies import WorkspaceCopies
from pytest_agentbench.workspaces.sandboxes.guarded import GuardedSession
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.workspace import Workspace

_LATE = 20.0
"""Seconds by which a command has to be gone whose limit was one second."""
_PRIVATE = "/tmp/private.txt"  # noqa: S108 - the sandbox's own /tmp


@dataclass(frozen=True)
class _Bench:
    """A session in use: `make` starts a sandbox in a new workspace."""

    session: SandboxSession
    spec: SandboxSpec
    workspaces: Workspaces
    provider: SandboxProvider
    copies: WorkspaceCopies | None

    async def make(self) -> Sandbox:
        ahead = self.session.workspace(self.spec)
        return await self.make_in(ahead or self.workspaces.create("kit"))

    async def make_in(self, workspace: Workspace, role: Role = "run") -> Sandbox:
        request = SandboxRequest(self.spec, workspace, role, sample_case())
        if self.copies is None:
            sandbox = await self.session.start(request)
        else:
            sandbox = await self.copies.start(self.session, request)
        expect(sandbox.workspace is workspace, f"workspace: found {sandbox.workspace!r}, expected the request's")
        return sandbox


def check_sandbox_provider(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """Check that sandboxes of a provider run commands as every runner, tool and verifier expects.

    `spec` is the spec of a run; its commands need a POSIX `sh` with `cat`, `mkfifo` and `sleep`. Skips the test if the
    provider is unavailable here. Takes about 15 seconds.
    """
    misfit = SEAMS["sandbox"].find_misfit("", provider)
    expect(misfit is None, f"found {misfit}")
    levels = get_args(Isolation)
    expect(provider.isolation in levels, f"isolation: found {provider.isolation!r}, expected one of {levels}")
    fits = provider.shares_files or provider.programs == "image"
    expect(fits, f"isolation: found {provider.isolation!r}, expected container or machine if shares_files is False")
    problem = provider.problem()
    if problem is not None:
        expect_line(problem, "problem()")
        pytest.skip(problem)
    model = provider.settings
    is_model = isinstance(model, type) and issubclass(model, SandboxSettings)
    expect(is_model, f"settings: found {model!r}, expected a subclass of SandboxSettings")
    known = {*get_args(Need)}
    expect(set(provider.takes) <= known, f"takes: found {sorted(provider.takes)}, expected some of {sorted(known)}")
    _check_session(provider.open(), spec, provider)
    # One process runs several sessions (pytester, an IDE's test runner): the end of one must not end another
    first, second = provider.open(), provider.open()
    expect(first is not second, "open: two sessions share an object, which the end of the first would close")
    asyncio.run(_close_both(first, second))


async def _close_both(*sessions: SandboxSession) -> None:
    for session in sessions:
        await session.close()


def check_sandbox_session(
    session: SandboxSession,
    spec: SandboxSpec,
    *,
    isolation: Isolation = "none",
    switches_users: bool = False,
    shares_files: bool = True,
) -> None:
    """Check the return value of a provider's `open`, and close it: the larger part of `check_sandbox_provider`."""
    provider = SandboxProvider()
    provider.isolation, provider.switches_users = isolation, switches_users
    provider.shares_files = shares_files
    _check_session(session, spec, provider)


def _check_session(session: SandboxSession, spec: SandboxSpec, provider: SandboxProvider) -> None:
    workspaces = Workspaces()
    try:
        with _declared(spec.kind, provider), _secret() as secret:
            guarded = GuardedSession(session, spec.kind, switches_users=provider.switches_users)
            copies = None if provider.shares_files else WorkspaceCopies(workspaces)
            asyncio.run(_check_all(_Bench(guarded, spec, workspaces, provider, copies), secret))
    except SandboxError as error:  # the guard's, with the method that raised another exception, or the provider's own
        raise AssertionError(str(error)) from error
    finally:
        workspaces.close()


@contextmanager
def _declared(kind: str, provider: SandboxProvider) -> Iterator[None]:
    """Let the kind be a known one inside the block, also if only a conftest.py declares it, which no test asks."""
    extensions = SessionExtensions()
    try:
        if kind not in extension_names("sandbox"):
            extensions.add("sandbox", kind, provider)
        yield
    finally:
        extensions.close()


@contextmanager
def _secret() -> Iterator[str]:
    """Put a secret that no sandbox may show into the environment; return it."""
    name = f"AGENTBENCH_KIT_{uuid4().hex}"
    os.environ[name] = name
    try:
        yield name
    finally:
        del os.environ[name]


async def _check_all(bench: _Bench, secret: str) -> None:
    await bench.session.prepare(bench.spec)
    checks: list[Callable[[_Bench], Awaitable[None]]] = [
        _check_commands,
        _check_files,
        _check_time_out,
        _check_programs,  # before the cancelling, which needs programs
        _check_cancelling,
        _check_two,
        _check_file_limit,
        _check_copies,
    ]
    if bench.provider.isolation != "none":
        checks += [_check_places, _check_mounts, _check_network, _check_process_limit]
    checks.append(_check_options)
    _check_images(bench)
    used = await bench.session.describe(bench.spec)
    expect(used.kind == bench.spec.kind, f"describe: found the kind {used.kind!r}, expected {bench.spec.kind!r}")
    try:
        for check in checks:
            await check(bench)
        # Last, as a provider that passes the environment on passes all else, and prints keys into every trace.
        sandbox = await bench.make()
        shown = await _run(sandbox, "env")
        expect(secret not in shown.output, "exec: the sandbox has the environment of this process, with its keys")
        await sandbox.stop()
        bench.session.release(sandbox.workspace)
    finally:
        await bench.session.close()
    await bench.session.close()  # may be called twice


def _check_images(bench: _Bench) -> None:
    if (images := bench.provider.images()) is None:
        return
    with closing(images):
        missing, image = f"localhost/agentbench-kit:{uuid4().hex}", bench.spec.image
        expect(images.find(missing) is None, "images: `find` returns an image that does not exist, expected None")
        images.remove(missing)  # a missing image is no error
        if image is not None:
            expect(images.find(image) is not None, f"images: `find` returns None for the prepared image {image}")


async def _check_commands(bench: _Bench) -> None:
    sandbox = await bench.make()
    expect(sandbox.kind == bench.spec.kind, f"kind: found {sandbox.kind!r}, expected {bench.spec.kind!r}")
    done = await _run(sandbox, "echo one; echo two >&2; echo three; exit 3")
    expect(done.output == "one\ntwo\nthree\n", f"exec: stdout and stderr came as {done.output!r}, expected their order")
    expect((done.exit_code, done.killed) == (3, None), f"exec: found {done}, expected exit code 3")
    done = await _run(sandbox, "kill -9 $$")
    expect(done.exit_code == 137, f"exec: a command killed by signal 9 has {done.exit_code}, expected 137")
    done = await sandbox.exec(["no-such-program-at-all"], seconds=_PATIENCE)
    expect(done.exit_code == 127, f"exec: a missing program has exit code {done.exit_code}, expected 127, no error")
    done = await _run(sandbox, "cat", stdin=b"given\n")
    expect(done.output == "given\n", f"exec: stdin came as {done.output!r}")
    done = await _run(sandbox, 'echo "$GIVEN"', environment={"GIVEN": "a value"})
    expect(done.output == "a value\n", f"exec: the variable of `environment` came as {done.output!r}")
    # By the shell alone: not every image has seq, yes or head -c.
    done = await _run(sandbox, "while [ ${#x} -lt 100000 ]; do x=x$x$x; done; echo $x; echo end", output_limit=1_000)
    expect(done.truncated, "exec: `truncated` is false for an output over output_limit")
    expect(len(done.output) < 2_000, f"exec: {len(done.output)} characters are kept, expected about output_limit")
    expect(done.output.endswith("end\n"), "exec: the end of long output is missing, which usually has the errors")
    expect(done.seconds >= 0, "exec: seconds are negative")
    await sandbox.stop()
    await sandbox.stop()  # may be called twice


async def _check_files(bench: _Bench) -> None:
    sandbox = await bench.make()
    await sandbox.put("in/given.txt", b"from outside")
    done = await _run(sandbox, "cat in/given.txt && printf made > made.txt")
    expect(done.output == "from outside", f"put: a command in the workspace sees {done.output!r}")
    expect(await sandbox.get("made.txt", 100) == b"made", "get: it does not return the file that a command wrote")
    await sandbox.put(_PRIVATE, b"private")
    expect(await sandbox.get(_PRIVATE, 100) == b"private", "put, get: a file in /tmp is not stored")
    # Refused by the provider itself, because it may write with more rights than the commands inside.
    for path in ("../outside.txt", "/etc/agentbench-kit"):
        refused = sandbox.put(path, b"")
        await expect_error(refused, f"put({path!r}), out of the workspace", PathRefusedError, OSError)
    await expect_error(sandbox.get("made.txt", 2), "get: of a file over the limit", PathRefusedError)
    await expect_error(sandbox.get("missing.txt", 9), "get: of no file", OSError)
    await sandbox.stop()
    expect(sandbox.workspace.read_text("made.txt") == "made", "stop: the workspace must stay unchanged")


async def _check_time_out(bench: _Bench) -> None:
    sandbox = await bench.make()
    done = await _run(sandbox, LEAVE_READERS)
    expect(done.output == "begun\n", f"exec: found {done}")
    await expect_none_left(sandbox, "its end")
    # A background process holds the output open: a timeout that kills only the shell would wait for its end.
    began = time.monotonic()
    done = await _run(sandbox, f"rm left; {LEAVE_READERS}; sleep 600", seconds=1)
    expect((done.exit_code, done.killed) == (None, "time-out"), f"exec: found {done}, expected it killed for time-out")
    expect(done.output == "begun\n", f"exec: its output before the time-out is {done.output!r}")
    expect(time.monotonic() - began < _LATE, "exec: a command went on long after its limit of one second")
    await expect_none_left(sandbox, "its time-out")
    done = await _run(sandbox, "echo usable")
    expect(done.output == "usable\n", "exec: after a time-out the sandbox must be usable")
    await sandbox.stop()


async def _check_cancelling(bench: _Bench) -> None:
    sandbox = await bench.make()
    await _run(sandbox, "mkfifo ready")
    task = asyncio.ensure_future(_run(sandbox, f"{LEAVE_READERS}; echo > ready; sleep 600"))
    # Not by another exec: a sandbox may run one command at a time.
    listener = await sandbox.spawn(["cat", "ready"])
    await asyncio.wait_for(listener.read(), _PATIENCE)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        await expect_none_left(sandbox, "its cancelling")
        await listener.stop()
        await sandbox.stop()
        return
    raise AssertionError("exec: it was cancelled, and went on")


async def _check_programs(bench: _Bench) -> None:
    sandbox = await bench.make()
    cat = await sandbox.spawn(["cat"])
    await cat.write(b"one\n")
    expect(
        await asyncio.wait_for(cat.read(), _PATIENCE) == b"one\n", "spawn: the output of a program is not read at once"
    )
    await cat.end_input()
    await cat.end_input()  # may be called twice
    expect(await asyncio.wait_for(cat.read(), _PATIENCE) == b"", "spawn: after its end, read() must return no bytes")
    await cat.stop()
    await expect_error(cat.write(b"x"), "spawn: write() to a program that has ended", BrokenPipeError)
    apart = await sandbox.spawn(["sh", "-c", "echo oops >&2; echo fine; cat"], stderr="apart")
    expect(
        await asyncio.wait_for(apart.read(), _PATIENCE) == b"fine\n",
        "spawn: read() must not return stderr if it is apart",
    )
    await _run(sandbox, "echo beside")
    await apart.write(b"still here\n")
    expect(await asyncio.wait_for(apart.read(), _PATIENCE) == b"still here\n", "exec: it ended an open program")
    began = time.monotonic()
    while apart.errors() != "oops\n":  # it has a pipe of its own, which may be read later
        late = time.monotonic() - began > _LATE
        expect(not late, f"spawn: errors() is {apart.errors()!r}, expected its stderr")
        await asyncio.sleep(0.01)
    await sandbox.stop()
    expect(await asyncio.wait_for(apart.read(), _PATIENCE) == b"", "stop: a program that was open went on")
    await apart.stop()


async def _check_file_limit(bench: _Bench) -> None:
    limits = replace(bench.spec.limits, file_bytes=2**20)
    sandbox = await replace(bench, spec=replace(bench.spec, limits=limits)).make()
    await _run(sandbox, "while echo 0123456789012345678901234567890123456789012345678901234567890123; do :; done > big")
    await sandbox.stop()
    size = sandbox.workspace.path.joinpath("big").stat().st_size
    expect(size <= 2**20, f"limits: a command wrote a file of {size} bytes, expected at most file_bytes ({2**20})")


async def _check_copies(bench: _Bench) -> None:
    sandbox = await bench.make()
    server = await bench.make_in(sandbox.workspace, "server")
    await check_one_workspace(sandbox, server)
    await check_folders(sandbox, bench.workspaces)
    await check_sockets(sandbox, is_local=bench.provider.programs == "machine")
    await sandbox.stop()


async def _check_options(bench: _Bench) -> None:
    sandbox = await bench.make()
    await check_cwd(sandbox)
    if bench.provider.switches_users:
        await check_user(sandbox)
        await _run(sandbox, "rm left")
    await check_leave_running(sandbox, bench.make_in)


async def _check_places(bench: _Bench) -> None:
    sandbox = await bench.make()
    places = bench.provider.places(sandbox.workspace)
    done = await _run(sandbox, f"pwd; echo inside > here.txt; cat {places.workspace}/here.txt")
    expect(
        done.output == f"{places.workspace}\ninside\n",
        f"places: the workspace is at {done.output!r}, expected {places.workspace}",
    )
    await sandbox.put(_PRIVATE, b"private")
    done = await _run(sandbox, f"cat {places.tmp}/{os.path.basename(_PRIVATE)}")
    expect(done.output == "private", f"places: a command finds {done.output!r} in {places.tmp}, expected the put file")
    await sandbox.stop()


async def _check_mounts(bench: _Bench) -> None:
    folder = bench.workspaces.create("mounted").path
    (folder / "given.txt").write_text("mounted", encoding="utf-8")
    folder.chmod(0o755)
    mounted = replace(bench.spec, mounts=(Mount(folder, "/run/agentbench-kit"),))
    sandbox = await replace(bench, spec=mounted).make()
    done = await _run(sandbox, "cat /run/agentbench-kit/given.txt")
    expect(done.output == "mounted", f"mounts: a command finds {done.output!r} at a mount's target")
    done = await _run(sandbox, "echo changed > /run/agentbench-kit/given.txt")
    expect(done.exit_code != 0, "mounts: a command can write to a mount")
    expect((folder / "given.txt").read_text(encoding="utf-8") == "mounted", "mounts: a command changed a mounted file")
    await sandbox.stop()


_CONNECT = """
import socket, sys
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
except OSError:
    sys.exit(3)
"""


async def _check_network(bench: _Bench) -> None:
    sandbox = await replace(bench, spec=replace(bench.spec, network=False)).make()
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        command = f"command -v python3 >/dev/null || exit 3; python3 - {port} <<'END'\n{_CONNECT}END"
        done = await _run(sandbox, command)
    expect(done.exit_code == 3, "network: a command reaches a port of this machine although spec.network is False")
    await sandbox.stop()


async def _check_process_limit(bench: _Bench) -> None:
    limits = replace(bench.spec.limits, processes=20)
    sandbox = await replace(bench, spec=replace(bench.spec, limits=limits)).make()
    starts = "i=0; while [ $i -lt 60 ]; do sleep 20 & i=$((i+1)); done; echo started"
    done = await _run(sandbox, starts, seconds=15)
    is_bounded = done.killed == "processes" or done.exit_code != 0 or "started" not in done.output
    expect(is_bounded, "limits: a command has 60 processes, expected at most `processes` (20)")
    await sandbox.stop()


async def _check_two(bench: _Bench) -> None:
    one, other = await asyncio.gather(bench.make(), bench.make())
    await _run(one, "echo one > whose.txt")
    done = await _run(other, "cat whose.txt")
    expect(done.exit_code != 0, "start: two sandboxes have one workspace")
    stays = await other.spawn(["cat"])
    await one.stop()
    await stays.write(b"here\n")
    expect(await asyncio.wait_for(stays.read(), _PATIENCE) == b"here\n", "stop: it ended a program of another sandbox")
    await stays.stop()
    await other.stop()
