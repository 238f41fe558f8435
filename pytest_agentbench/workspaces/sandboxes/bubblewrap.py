"""Commands in bubblewrap: the system's folders read-only, the workspace, programs shown on request, nothing else."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.records.base import SandboxKind
from pytest_agentbench.workspaces.sandboxes.base import Mount, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.bwrap import (
    Inputs,
    SandboxView,
    bwrap_command,
    python_mounts,
    python_path,
    read_only_arguments,
    require_seccomp_filter,
    sandbox_environment,
    user_files,
)
from pytest_agentbench.workspaces.sandboxes.host import Command, HostSandbox
from pytest_agentbench.workspaces.sandboxes.namespaces import BubblewrapProgram
from pytest_agentbench.workspaces.sandboxes.programs import Program, start_with_own_output
from pytest_agentbench.workspaces.sandboxes.shown import WRITABLE
from pytest_agentbench.workspaces.sandboxes.watchdog import Watchdog
from pytest_agentbench.workspaces.sessions import Owners
from pytest_agentbench.workspaces.workspace import PRIVATE_TMP, WORKSPACE, Workspace

_TRIAL_SECONDS = 20.0
_TMP = "/tmp"  # noqa: S108 - a path inside the sandbox
_TMP_BYTES = 64 * 2**20
"""Maximum bytes of files in the `/tmp` of a command that sees a program below `/tmp`."""
_ADVICE = (
    "an ordinary user needs user namespaces (sysctl user.max_user_namespaces above 0, on Ubuntu "
    "kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor profile for bwrap), and in a container the right to "
    "make namespaces and mounts (`docker run --privileged`); or use docker"
)


def is_below_tmp(mount: Mount) -> bool:
    """Return whether a mount replaces the private `/tmp` by memory that is new for each command."""
    return mount.target.startswith(f"{_TMP}/")


class BubblewrapSandbox(HostSandbox):
    """Runs each command in new namespaces, which end with the command. A service's network is that of later commands.

    Commands see the workspace at /workspace, its private temporary folder at /tmp, and the system's programs,
    read-only. With a mount below /tmp, /tmp is instead memory that is new for each command.

    The walls, each for the gaps of the others: mount namespaces hide the user's files; a process namespace
    makes one kill reach all descendants; a network namespace closes ports, and Landlock closes abstract sockets if the
    network is shared; another user (if this process is root) closes /proc and files of others; seccomp closes kernel
    interfaces that no namespace covers; rlimits and the watchdog bound memory, processes and disk.
    """

    kind: SandboxKind = "bubblewrap"

    def __init__(self, workspace: Workspace, spec: SandboxSpec, watchdog: Watchdog) -> None:
        super().__init__(workspace, spec.limits, watchdog)
        self._spec = spec

    @property
    def folder(self) -> str:
        """Return the workspace's path."""
        return WORKSPACE

    def _start(self, command: Command, stdin: int, stderr: int) -> Program:
        return start_in_bubblewrap(
            self._view(),
            command.argv,
            stdin=stdin,
            environment=command.environment,
            stderr=stderr,
            leave_running=command.leave_running,
        )

    def _view(self) -> SandboxView:
        # The private folder is also bound inside the workspace, so that no program can put a link in its place
        private = str(self.workspace.private_tmp())
        outside: list[str] = []
        below_tmp: list[str] = []
        for mount in reversed(self._spec.mounts):
            place = below_tmp if is_below_tmp(mount) else outside
            place += read_only_arguments(str(mount.source), mount.target)
        own = ["--bind", str(self.workspace.path), WORKSPACE, "--bind", private, f"{WORKSPACE}/{PRIVATE_TMP}"]
        if below_tmp:
            # Mount points are made by root. In the private folder a program could put a link in their place, so `/tmp`
            # is memory here, which is new for each command
            own += ["--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs", _TMP, *below_tmp]
        else:
            own += ["--bind", private, _TMP]
        return SandboxView(
            (*outside, *python_mounts(*WRITABLE), *own),
            WORKSPACE,
            self.workspace.owner,
            path=python_path(*WRITABLE),
            network=self._spec.network,
            limits=self._spec.limits,
            joins={} if self._spec.network else dict(self._spec.joins) or self._find_network(),
        )

    def _find_network(self) -> Mapping[str, str]:
        """Return the namespaces of a service, so that the next program reaches its ports, or {} without a service."""
        for service in self._services:
            assert isinstance(service.program, BubblewrapProgram)
            if paths := service.program.open_network():
                return paths
        return {}


def start_in_bubblewrap(
    view: SandboxView,
    argv: Sequence[str],
    *,
    stdin: int,
    environment: Mapping[str, str],
    stderr: int = subprocess.STDOUT,
    keep: Sequence[int] = (),
    leave_running: bool = False,
) -> BubblewrapProgram:
    """Run `argv` with the files of `view`, with the descriptors `keep` inherited. Raises SandboxError.

    `leave_running`: the program reports the end of `argv` on stderr, and continues.
    """
    status, reports = os.pipe()
    try:
        process = _start_bwrap(view, argv, stdin, environment, stderr, reports, keep, leave_running=leave_running)
    except (OSError, LookupError) as error:
        os.close(status)
        raise SandboxError(f"bubblewrap could not start a command: {error}") from error
    finally:
        os.close(reports)
    return BubblewrapProgram(process, status)


def _start_bwrap(
    view: SandboxView,
    argv: Sequence[str],
    stdin: int,
    environment: Mapping[str, str],
    stderr: int,
    reports: int,
    keep: Sequence[int],
    *,
    leave_running: bool = False,
) -> subprocess.Popen[bytes]:
    with ExitStack() as opened:
        seccomp, passwd, group = (
            _fill_pipe(content, opened) for content in (require_seccomp_filter(), *user_files(view))
        )
        return start_with_own_output(
            bwrap_command(view, argv, Inputs(seccomp, passwd, group, reports), leave_running=leave_running),
            owner=view.user,
            env=sandbox_environment(view, environment),
            stdin=stdin,
            stderr=stderr,
            pass_fds=(seccomp, passwd, group, reports, *keep),
        )


def _fill_pipe(content: bytes, opened: ExitStack) -> int:
    """Return the reading end of a pipe with the content, which fits into a pipe's buffer. `opened` closes it."""
    reads, writes = os.pipe()
    opened.callback(os.close, reads)
    try:
        os.write(writes, content)
    finally:
        os.close(writes)
    return reads


@functools.cache
def bubblewrap_problem() -> str | None:
    """Return why bubblewrap does not work here and the remedy, or None. It is tried once."""
    if sys.platform != "linux":
        return f"bubblewrap needs Linux, this is {sys.platform}: use docker"
    try:
        output, code = _try_bubblewrap()
    except LookupError as error:
        return f"{error}: install the packages bubblewrap and util-linux"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap cannot be run: {error}"
    if code == 0:
        return None
    lines = output.decode("utf-8", "replace").strip().splitlines() or ["no output"]
    return f"bwrap does not work here (exit code {code}: {lines[-1][:200]}): {_ADVICE}"


def _try_bubblewrap() -> tuple[bytes, int]:
    """Run `true` in bubblewrap. Return its output and exit code."""
    view = SandboxView(("--dir", WORKSPACE, "--dir", "/tmp"), WORKSPACE, Owners().of(0))  # noqa: S108 - the sandbox's own
    status, reports = os.pipe()
    try:
        with open(os.devnull, "rb") as nothing:
            process = _start_bwrap(view, ["true"], nothing.fileno(), {}, subprocess.STDOUT, reports, ())
        with process:
            try:
                output, _ = process.communicate(timeout=_TRIAL_SECONDS)
            finally:
                process.kill()
    finally:
        os.close(status)
        os.close(reports)
    return output, process.returncode
