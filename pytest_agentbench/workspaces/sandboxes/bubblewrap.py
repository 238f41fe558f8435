"""Commands in bubblewrap: the system's folders read-only, the workspace, programs shown on request, nothing else."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pytest_agentbench.bounded.files import open_file
from pytest_agentbench.errors import SandboxError
from pytest_agentbench.records.base import SandboxKind
from pytest_agentbench.workspaces.sandboxes.base import Mount, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.bwrap import (
    SYSTEM_FOLDERS,
    SYSTEM_PATH,
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
from pytest_agentbench.workspaces.sandboxes.watchdog import Watchdog
from pytest_agentbench.workspaces.sessions import Owners
from pytest_agentbench.workspaces.workspace import PRIVATE_TMP, WORKSPACE, Workspace

_TRIAL_SECONDS = 20.0
_TMP = "/tmp"  # noqa: S108 - a path inside the sandbox
_TMP_BYTES = 64 * 2**20
"""Maximum bytes of files in the `/tmp` of a command that sees a program below `/tmp`."""
WRITABLE = (f"{_TMP}/", f"{WORKSPACE}/")
"""Folders that belong to the sandbox. They hide this machine's folders of the same names."""

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


_MAX_FILES = 40
_FIRST_LINE_BYTES = 512
_OF_PREFIX = ("bin", "include", "lib", "lib64", "libexec", "pyvenv.cfg")
"""Parts of an installation's prefix (of Node, a virtual environment, ...). The prefix itself may be somebody's home."""


@dataclass(frozen=True, slots=True)
class ShownProgram:
    """A program's name in bubblewrap, the mounts it needs, and further folders for its PATH."""

    program: str
    mounts: tuple[Mount, ...] = ()
    path: tuple[str, ...] = ()


def show_program(command: str, path: str | None, folder: str | None = None) -> ShownProgram:
    """Return how bubblewrap runs a command: found in its own PATH, else in `path` of this machine, or given as a file.

    The mounts show the program and the interpreter of a script with their installations, those below `/tmp` too. Files
    in `folder` need no mount. Raises LookupError if the program is not installed, or is below the workspace's path.
    """
    own = (*python_path(*WRITABLE), *SYSTEM_PATH)
    if os.sep not in command and shutil.which(command, path=os.pathsep.join(own)) is not None:
        return ShownProgram(command)
    hidden = f"{WORKSPACE}/"
    places = [place for place in (path or "").split(os.pathsep) if not f"{place}/".startswith(hidden)]
    program = shutil.which(command, path=os.pathsep.join(places))
    if program is None:
        raise LookupError(explain_missing(command, os.pathsep.join(places)))
    anyway = SYSTEM_FOLDERS if folder is None else (*SYSTEM_FOLDERS, os.path.join(os.path.abspath(folder), ""))
    files = [file for file in _program_files(program, os.pathsep.join((*own, *places))) if not file.startswith(anyway)]
    if refused := [file for file in files if file.startswith(hidden)]:
        raise LookupError(f"the program {refused[0]} is below {WORKSPACE}, which is the run's workspace in the sandbox")
    parts = dict.fromkeys(part for file in files for part in _installed_folder(file))
    folders = dict.fromkeys(os.path.dirname(file) for file in files)
    return ShownProgram(program, tuple(Mount(Path(part), part) for part in parts), (*own, *folders))


def explain_missing(command: str, path: str | None) -> str:
    """Return why a command cannot be found in `path`, or is no program."""
    if os.sep not in command:
        places = [os.path.join(folder, command) for folder in (path or "").split(os.pathsep) if folder]
    else:
        places = [command]
    file = next((place for place in places if os.path.isfile(place)), None)
    if file is not None:
        return f"the program {file} is not executable (chmod +x {file})"
    if os.sep in command:
        return f"there is no program {command}"
    return f"the program {command} is not installed in a folder that sandboxes see"


def _program_files(program: str, path: str) -> list[str]:
    """Return the program, the targets of its links, and the interpreters of scripts, each by all its names."""
    # All names, because a virtual environment is found by the name it was called by, its Python by the link's target
    files: dict[str, None] = {}
    waiting = [os.path.abspath(program)]
    while waiting and len(files) < _MAX_FILES:
        file = waiting.pop()
        if file in files:
            continue
        files[file] = None
        if os.path.islink(file):
            waiting.append(os.path.normpath(os.path.join(os.path.dirname(file), os.readlink(file))))
        waiting.append(os.path.realpath(file))
        waiting += _read_interpreter(file, path)
    return list(files)


def _read_interpreter(file: str, path: str) -> Iterator[str]:
    """Yield the interpreter of a script by its first line, if it has one."""
    with open_file(file, limit=None) as script:
        first = script.read(_FIRST_LINE_BYTES).partition(b"\n")[0]
    words = os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        words = [shutil.which(words[0], path=path) or ""] if words else []
    if words and os.path.exists(words[0]):
        yield words[0]


def _installed_folder(file: str) -> list[str]:
    """Return the file together with the rest of its installation."""
    before, packages, _ = file.partition("/node_modules/")
    if packages:
        return [before + packages.rstrip("/")]
    prefix = os.path.dirname(os.path.dirname(file))
    if os.path.basename(os.path.dirname(file)) != "bin":
        return [file]
    return [part for name in _OF_PREFIX if os.path.exists(part := os.path.join(prefix, name))]
