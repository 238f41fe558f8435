"""The command line of `bwrap`: visible files, rights, limits, and users."""

from __future__ import annotations

import functools
import os
import resource
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from pytest_agentbench.workspaces.sandboxes import landlock
from pytest_agentbench.workspaces.sandboxes.base import ResourceLimits
from pytest_agentbench.workspaces.sandboxes.landlock import has_scopes
from pytest_agentbench.workspaces.sandboxes.launcher import SPARE_PROCESSES
from pytest_agentbench.workspaces.sandboxes.seccomp import seccomp_filter

_FIRST_PROCESS = 'exec 9>&2 2>/dev/null; (exec "$@" 2>&9 9>&-); exit $?'
"""The namespace's first process. It waits for the command, so that all its descendants have ended when bwrap reports.

The command must not be the first process itself, because the kernel ignores most signals to it. Bwrap's own first
process would leave descendants to the machine's.
"""

_STAYING_FIRST_PROCESS = (
    'exec 9>&2 2>/dev/null; sleep=$1; shift; (exec "$@" 2>&1 9>&-); echo $? >&9; while :; do $sleep 2147483647; done'
)
"""As _FIRST_PROCESS, but it reports the command's exit code on its stderr, and continues.

It collects ended orphans while it waits for `sleep`, a program of the system: a PATH may name folders of the agent.
"""

_MAX_LINKS = 40
_MARKS = (
    "pyvenv.cfg",
    *(f"{lib}/python{sys.version_info.major}.{sys.version_info.minor}/os.py" for lib in ("lib", "lib64")),
)
"""Files that mark a folder as the prefix of a Python."""

_SHM_BYTES = 64 * 2**20
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    "alternatives",
    "crypto-policies",
    "debian_version",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "pki/ca-trust",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
_ETC_WITH_NETWORK = ("hosts", "resolv.conf")
_OF_PYTHON = ("bin", "include", "lib", "lib64", "pyvenv.cfg", "ssl")
"""Parts of the prefix of Python or a virtual environment. The prefix itself may be a project's folder or somebody's
home.
"""

SYSTEM_FOLDERS = ("//", *(f"{folder}/" for folder in _SYSTEM))
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


@dataclass(frozen=True, slots=True)
class SandboxView:
    """Files and rights of a program in addition to the system's folders.

    - `mounts`: bwrap's own arguments, in order, for the rest of the file system.
    - `user`: the user and group id of the program; None: this process's.
    - `path`: folders of programs in addition to the system's.
    - `reads_all`: if this process is root, the program may read all visible files of all users.
    - `joins`: paths of namespaces by their kinds (`net`, `user`). The program uses that network, not a new one.
    """

    mounts: tuple[str, ...]
    folder: str
    user: int | None
    path: tuple[str, ...] = ()
    reads_all: bool = False
    network: bool = False
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    joins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Descriptors for bwrap: the system call filter, the users and groups to show, and the pipe for reports."""

    seccomp: int
    passwd: int
    group: int
    status: int


def bwrap_command(view: SandboxView, argv: Sequence[str], inputs: Inputs, *, leave_running: bool = False) -> list[str]:
    """Return the arguments that run `argv` with this view. Raises LookupError if a required program is missing."""
    # Order matters: a later mount hides an earlier one. `/` is in memory, so it is made read-only once all
    # mounts exist. Otherwise a program could fill it. A new session has no terminal. In a terminal a program
    # could insert input for the user's shell (TIOCSTI).
    return [
        *(_landlock_command() if view.network else ()),
        *_join_command(view),
        *(find_program("bwrap"), "--die-with-parent", "--as-pid-1", "--new-session", "--hostname", "sandbox"),
        *("--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
        *(() if view.network or view.joins else ("--unshare-net",)),
        *_rights_command(view),
        *_system_arguments(),
        *_etc(view, inputs),
        *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"),  # root may write there without capabilities
        *("--dev", "/dev", "--perms", "1777", "--size", str(_SHM_BYTES), "--tmpfs", "/dev/shm"),  # noqa: S108
        *folder_arguments("/run", "/var"),
        *("--symlink", "../tmp", "/var/tmp"),  # noqa: S108
        *view.mounts,
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", view.folder),
        *("--seccomp", str(inputs.seccomp), "--json-status-fd", str(inputs.status), "--"),
        *_first_process(leave_running),
        *_drop_rights(view),
        *_limit_command(view),
        *argv,
    ]


def _first_process(leave_running: bool) -> tuple[str, ...]:
    if not leave_running:
        return ("/bin/sh", "-c", _FIRST_PROCESS, "sh")
    sleep = shutil.which("sleep", path=os.pathsep.join(SYSTEM_PATH))
    if sleep is None:
        raise LookupError("sleep is not installed")
    return ("/bin/sh", "-c", _STAYING_FIRST_PROCESS, "sh", sleep)


@functools.cache
def closes_abstract_sockets() -> bool:
    """Return whether sandboxes with this machine's network are kept from its abstract unix sockets.

    An unprivileged Landlock needs no_new_privs, under which a setuid `bwrap` could not become root.
    """
    program = shutil.which("bwrap")
    return has_scopes() and program is not None and not os.stat(program).st_mode & stat.S_ISUID


def _landlock_command() -> tuple[str, ...]:
    if closes_abstract_sockets():
        return (sys.executable, "-I", "-S", landlock.__file__)
    return ()


def _join_command(view: SandboxView) -> tuple[str, ...]:
    if not view.joins:
        return ()
    namespaces = (f"--{kind}={path}" for kind, path in view.joins.items())
    return (find_program("nsenter"), "--preserve-credentials", *namespaces, "--")


def user_files(view: SandboxView) -> tuple[bytes, bytes]:
    """Return the texts of /etc/passwd and /etc/group: root, the program's user, and nobody."""
    names = {os.getuid() if view.user is None else view.user: "agent", 0: "root", 65534: "nobody"}
    passwd = "".join(f"{name}:x:{uid}:{uid}::{view.folder}:/bin/sh\n" for uid, name in names.items())
    return passwd.encode(), "".join(f"{name}:x:{uid}:\n" for uid, name in names.items()).encode()


def sandbox_environment(view: SandboxView, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of the program. It contains no API keys except those in `variables`."""
    own = {"HOME": view.folder, "TMPDIR": "/tmp", "LANG": "C.UTF-8", "TERM": "dumb"}  # noqa: S108 - in the sandbox
    return {"PATH": ":".join((*view.path, *SYSTEM_PATH)), **own, **variables}


@functools.cache
def python_mounts(*hidden: str) -> tuple[str, ...]:
    """Return arguments that show the running Python, except its parts in folders of the system or in `hidden`.

    Each of `hidden` ends in a slash.
    """
    shown = [f"{prefix}/{name}" for prefix in _python_prefixes(hidden) for name in _OF_PYTHON]
    parts = chain.from_iterable(read_only_arguments(path, path) for path in shown if os.path.exists(path))
    return (*parts, *_python_links((*SYSTEM_FOLDERS, *hidden, *(f"{path}/" for path in shown))))


def python_path(*hidden: str) -> tuple[str, ...]:
    """Return the folders of Python's programs."""
    return tuple(f"{prefix}/bin" for prefix in _python_prefixes(hidden))


def _python_prefixes(hidden: tuple[str, ...]) -> list[str]:
    """Return the prefixes of Python, by all their names."""
    prefixes = [sys.prefix, sys.base_prefix]
    for link in _executables():
        prefix = os.path.dirname(os.path.dirname(link))
        if any(os.path.exists(f"{prefix}/{mark}") for mark in _MARKS):
            prefixes.append(prefix)
    # A virtual environment's links and `pyvenv.cfg` name the real Python by its real path, so both paths are shown
    prefixes += [os.path.realpath(prefix) for prefix in prefixes]
    return [prefix for prefix in dict.fromkeys(prefixes) if not f"{prefix}/".startswith((*SYSTEM_FOLDERS, *hidden))]


def _python_links(elsewhere: tuple[str, ...]) -> Iterator[str]:
    """Yield arguments for links to Python's program that are neither shown already nor in hidden folders."""
    for path in _executables():
        if os.path.islink(path) and not path.startswith(elsewhere):
            yield from (*_folders_above(path), "--symlink", os.readlink(path), path)


def _executables() -> list[str]:
    """Return the running Python's program and the targets of its links, down to the real file."""
    paths = [sys.executable]
    while os.path.islink(paths[-1]) and len(paths) < _MAX_LINKS:
        paths.append(os.path.normpath(os.path.join(os.path.dirname(paths[-1]), os.readlink(paths[-1]))))
    return paths


def find_program(name: str) -> str:
    """Return the path of a program of the system. Raises LookupError if it is missing."""
    path = shutil.which(name)
    if path is None:
        raise LookupError(f"{name} is not installed")
    return os.path.realpath(path)


def require_seccomp_filter() -> bytes:
    """Return the system call filter. Raises LookupError if this machine has no filter."""
    content = seccomp_filter()
    if content is None:
        raise LookupError(f"no filter of system calls for machines of the architecture {os.uname().machine}")
    return content


def read_only_arguments(source: str, target: str) -> tuple[str, ...]:
    """Return arguments that show a file or folder read-only at `target`, in folders that all users may list."""
    return (*_folders_above(target), "--ro-bind", source, target)


def folder_arguments(*paths: str) -> tuple[str, ...]:
    """Return arguments that create these folders for all users. Bwrap's default allows root only."""
    return tuple(argument for path in paths for argument in ("--perms", "0755", "--dir", path))


def _folders_above(target: str) -> tuple[str, ...]:
    return folder_arguments(*(str(folder) for folder in reversed(Path(target).parents) if folder != Path("/")))


@functools.cache
def _system_arguments() -> tuple[str, ...]:
    """Return arguments that show the system's folders read-only. Links among them stay links."""
    return tuple(argument for path in _SYSTEM for argument in _system_folder(Path(path)))


def _system_folder(path: Path) -> Iterator[str]:
    if path.is_symlink():
        yield from ("--symlink", os.readlink(path), str(path))
    elif path.is_dir():
        yield from ("--ro-bind", str(path), str(path))


@functools.cache
def _etc_arguments(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return arguments for the existing files of /etc. The target of a link is shown under the link's name."""
    paths = [f"/etc/{name}" for name in names if os.path.exists(f"/etc/{name}")]
    return tuple(argument for path in paths for argument in read_only_arguments(path, path))


def _etc(view: SandboxView, inputs: Inputs) -> tuple[str, ...]:
    names = (*_ETC, *_ETC_WITH_NETWORK) if view.network else _ETC
    own = ((inputs.passwd, "/etc/passwd"), (inputs.group, "/etc/group"))
    shown = (("--perms", "0644", "--ro-bind-data", str(data), path) for data, path in own)
    return (*_etc_arguments(names), *chain.from_iterable(shown))


def _rights_command(view: SandboxView) -> tuple[str, ...]:
    """Return arguments for the rights to set up the sandbox.

    Root needs no user namespace for that, and can switch to a user id that owns no other files.
    """
    if os.getuid() != 0:
        # In the user namespace of a network that it joins, this process's user is called root
        own = ("--uid", str(os.getuid()), "--gid", str(os.getgid()), "--cap-drop", "ALL") if view.joins else ()
        return ("--unshare-user", *own)
    # Without a user namespace bwrap cannot map ids. `setpriv` changes the user later, and needs these capabilities
    names = ["CAP_DAC_READ_SEARCH"]
    if view.user is not None:
        names += ["CAP_SETUID", "CAP_SETGID"]
    return ("--cap-drop", "ALL", *(argument for name in names for argument in ("--cap-add", name)))


def _drop_rights(view: SandboxView) -> tuple[str, ...]:
    if view.user is None:
        return ()
    user, capabilities = str(view.user), "-all,+dac_read_search" if view.reads_all else "-all"
    rights = ("--inh-caps", capabilities, "--ambient-caps", capabilities)
    return (find_program("setpriv"), "--reuid", user, "--regid", user, "--clear-groups", *rights, "--")


def _limit_command(view: SandboxView) -> tuple[str, ...]:
    """Return limits of each process, at most this process's limits.

    The process limit is slightly higher than allowed, so that the watchdog sees the excess and ends the command.
    """
    limits = view.limits
    values = {
        "core": (resource.RLIMIT_CORE, 0),
        "cpu": (resource.RLIMIT_CPU, limits.cpu_seconds),
        "data": (resource.RLIMIT_DATA, limits.memory_bytes),
        "fsize": (resource.RLIMIT_FSIZE, limits.file_bytes),
    }
    if view.user is not None or _counts_processes_by_namespace():
        # Without a user of its own on an old kernel, the limit would count this user's other processes
        values["nproc"] = (resource.RLIMIT_NPROC, limits.processes + SPARE_PROCESSES)
    options = []
    for name, (number, value) in values.items():
        hard = resource.getrlimit(number)[1]
        options.append(f"--{name}={value if hard == resource.RLIM_INFINITY else min(value, hard)}")
    return (find_program("prlimit"), *options, "--")


@functools.cache
def _counts_processes_by_namespace() -> bool:
    """Return whether RLIMIT_NPROC counts a user's processes per user namespace (since Linux 5.14)."""
    major, minor = os.uname().release.split(".")[:2]
    # Distributions write releases such as `5.14.0-70` and `6.1+`.
    return (int(major), int("".join(filter(str.isdigit, minor)) or 0)) >= (5, 14)
