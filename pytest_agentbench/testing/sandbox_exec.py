"""The part of the sandbox kit for the options of `exec`: a folder, a user, and processes that continue.

Checks use the shell alone, because images lack programs. A process is found by a pipe that it reads: who writes to a
pipe without a reader waits for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.testing.samples import expect
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Sandbox
from pytest_agentbench.workspaces.workspace import Workspace

PATIENCE = 60.0
"""Maximum seconds of a command, unless it is meant to be killed."""

LEAVE_READERS = (
    "mkfifo left; S=$(command -v setsid); ($S cat left >/dev/null 2>&1 </dev/null &); ($S cat left &); echo begun"
)
"""A command that leaves readers of a pipe behind, one of them apart from everything that it came from."""

_ANSWER_SECONDS = 10.0
_USER, _GROUP = "12345", "23456"
_OWN_IDS = """while read -r name id rest; do case $name in Uid:|Gid:) echo "$id" ;; esac; done < /proc/self/status"""
_SERVE = (
    'mkfifo asked answered; (while read -r line < asked; do echo noise; echo "$line" > answered; done) & '
    "echo begun; exit 3"
)
"""A command that leaves a server of pipes, which also writes to its command's output, and ends with 3."""


async def run_shell(sandbox: Sandbox, command: str, *, seconds: float = PATIENCE, **options: object) -> ExecResult:
    """Run a command of the shell."""
    return await sandbox.exec(["sh", "-c", command], seconds=seconds, **options)  # type: ignore[arg-type]


async def expect_none_left(sandbox: Sandbox, after: str, *, pipe: str = "left") -> None:
    """Expect that no process reads the pipe."""
    done = await run_shell(sandbox, f"echo anybody > {pipe}", seconds=1)
    expect(done.killed == "time-out", f"exec: a process that a command had started was running after {after}")


async def check_cwd(sandbox: Sandbox) -> None:
    """Check that a command runs in the folder of `cwd`."""
    await run_shell(sandbox, "mkdir inner")
    await run_shell(sandbox, "echo made > made.txt", cwd="inner")
    done = await run_shell(sandbox, "cat inner/made.txt")
    expect(done.output == "made\n", "cwd: a command with cwd='inner' did not run in that folder of the workspace")
    done = await run_shell(sandbox, "pwd", cwd="/")
    expect(done.output == "/\n", f"cwd: a command with cwd='/' ran in {done.output!r}")
    done = await run_shell(sandbox, "pwd", cwd="missing")
    expect(done.exit_code == 127, f"cwd: a missing folder has exit code {done.exit_code}, expected 127, no error")


async def check_user(sandbox: Sandbox) -> None:
    """Check that a command runs as `user`, and leaves no process."""
    own = (await run_shell(sandbox, _OWN_IDS)).output
    for user, ids in ((_USER, f"{_USER}\n"), (f"{_USER}:{_GROUP}", f"{_USER}\n{_GROUP}\n")):
        done = await run_shell(sandbox, _OWN_IDS, user=user)
        expect(
            done.output.startswith(ids), f"user: a command with user={user!r} has the ids {done.output!r}, not {ids!r}"
        )
    try:
        done = await run_shell(sandbox, "echo", user="no-such-user-at-all")
    except SandboxError:
        pass
    else:
        raise AssertionError(f"user: an unknown user ended as {done}, expected SandboxError")
    done = await run_shell(sandbox, _OWN_IDS)
    expect(done.output == own, f"user: the next command without a user has the ids {done.output!r}, expected {own!r}")
    await run_shell(sandbox, "mkfifo left; chmod 666 left")
    await run_shell(sandbox, "S=$(command -v setsid); ($S cat left >/dev/null 2>&1 </dev/null &)", user=_USER)
    await expect_none_left(sandbox, "the end of a command of another user")


async def check_leave_running(sandbox: Sandbox, start_again: Callable[[Workspace], Awaitable[Sandbox]]) -> None:
    """Check that processes of a command with `leave_running` continue until the sandbox stops.

    `start_again` starts another sandbox in the same workspace, which shows whether they ended.
    """
    done = await run_shell(sandbox, _SERVE, leave_running=True)
    expect((done.exit_code, done.output) == (3, "begun\n"), f"leave_running: found {done}, expected its own end")
    for word in ("one", "two"):  # the second question comes after the end of another command
        done = await run_shell(sandbox, f"echo {word} > asked; cat answered", seconds=_ANSWER_SECONDS)
        expect(done.output == f"{word}\n", "leave_running: a process that a command had left did not continue")
    await run_shell(sandbox, LEAVE_READERS)
    done = await run_shell(sandbox, "echo three > asked; cat answered", seconds=_ANSWER_SECONDS)
    expect(done.output == "three\n", "leave_running: the end of another command ended a process that was left before")
    await expect_none_left(sandbox, "the end of a command without `leave_running`")
    await expect_none_left(sandbox, "a time-out, also if it was left running before", pipe="asked")
    done = await run_shell(sandbox, f"rm left; {LEAVE_READERS}; sleep 600", seconds=1, leave_running=True)
    expect(done.killed == "time-out", f"leave_running: found {done}, expected it killed for time-out")
    await expect_none_left(sandbox, "its time-out, with `leave_running`")
    await run_shell(sandbox, f"rm asked answered; {_SERVE}", leave_running=True)
    await sandbox.stop()
    other = await start_again(sandbox.workspace)
    done = await run_shell(other, "[ -p asked ] && echo anybody > asked", seconds=1)
    expect(done.exit_code != 0, "stop: a process that a command had left with `leave_running` was running after it")
    await other.stop()
