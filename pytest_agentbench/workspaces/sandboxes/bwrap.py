"""The command line of `bwrap`: what a program in bubblewrap sees, may take, and is called by."""

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
"""The namespace's first process, which sees to it that nothing of the command is left when bwrap reports its end.

A command in its place could not be killed by its own signals, and bwrap's own first process is left to the machine's.
"""

_MAX_LINKS = 40
_MARKS = (
    "pyvenv.cfg",
    *(f"{lib}/python{sys.version_info.major}.{sys.version_info.minor}/os.py" for lib in ("lib", "lib64")),
)
"""Each shows that a folder is the prefix of a Python."""

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
"""What Python or a virtual environment made of its prefix, which may be a project's folder, or somebody's home."""

SYSTEM_FOLDERS = ("//", *(f"{folder}/" for folder in _SYSTEM))
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


@dataclass(frozen=True, slots=True)
class SandboxView:
    """Files that a program sees beside the system's folders.

    `mounts` are bwrap's own arguments, in order, for the rest of the file system. `user` is the user and group id that
    it runs as, None: this process's own. `path` are folders of programs, beside the system's. `reads_all`: where this
    process is root, the program may read everything that it sees, whoever that belongs to.
    """

    mounts: tuple[str, ...]
    folder: str
    user: int | None
    path: tuple[str, ...] = ()
    reads_all: bool = False
    network: bool = False
    limits: ResourceLimits = field(default_factory=ResourceLimits)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Descriptors that bwrap reads: its filter of system calls, the users and groups to show, and where it reports."""

    seccomp: int
    passwd: int
    group: int
    status: int


def bwrap_command(view: SandboxView, argv: Sequence[str], inputs: Inputs) -> list[str]:
    """Return the arguments that run `argv` so. Raises LookupError where one of the programs for it is missing."""
    # Order counts: what is mounted later hides what was there, and `/` is memory that could be filled before it is
    # read-only.
    # A session of its own has no terminal, into which a program could type what this user's shell then runs (TIOCSTI).
    return [
        *(_landlock_command() if view.network else ()),
        *(find_program("bwrap"), "--die-with-parent", "--as-pid-1", "--new-session", "--hostname", "sandbox"),
        *("--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
        *(() if view.network else ("--unshare-net",)),
        *_rights_command(view),
        *_system_arguments(),
        *_etc(view, inputs),
        *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"),  # root could write there without any capability
        *("--dev", "/dev", "--perms", "1777", "--size", str(_SHM_BYTES), "--tmpfs", "/dev/shm"),  # noqa: S108
        *folder_arguments("/run", "/var"),
        *("--symlink", "../tmp", "/var/tmp"),  # noqa: S108
        *view.mounts,
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", view.folder),
        *("--seccomp", str(inputs.seccomp), "--json-status-fd", str(inputs.status), "--"),
        *("/bin/sh", "-c", _FIRST_PROCESS, "sh"),
        *_drop_rights(view),
        *_limit_command(view),
        *argv,
    ]


@functools.cache
def closes_abstract_sockets() -> bool:
    """Return whether a sandbox with this machine's network is kept from its abstract unix sockets.

    A `bwrap` that becomes root by itself could not any more, were it kept from them.
    """
    found = shutil.which("bwrap")
    return has_scopes() and found is not None and not os.stat(found).st_mode & stat.S_ISUID


def _landlock_command() -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", landlock.__file__) if closes_abstract_sockets() else ()


def user_files(view: SandboxView) -> tuple[bytes, bytes]:
    """Return the texts of /etc/passwd and /etc/group: root, whom the program runs as, and nobody."""
    names = {os.getuid() if view.user is None else view.user: "agent", 0: "root", 65534: "nobody"}
    passwd = "".join(f"{name}:x:{uid}:{uid}::{view.folder}:/bin/sh\n" for uid, name in names.items())
    return passwd.encode(), "".join(f"{name}:x:{uid}:\n" for uid, name in names.items()).encode()


def sandbox_environment(view: SandboxView, given: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of the program: no key can be in it but those `given`."""
    own = {"HOME": view.folder, "TMPDIR": "/tmp", "LANG": "C.UTF-8", "TERM": "dumb"}  # noqa: S108 - its private one
    return {"PATH": ":".join((*view.path, *SYSTEM_PATH)), **own, **given}


@functools.cache
def python_mounts(*hidden: str) -> tuple[str, ...]:
    """Return arguments that show the running Python, as far as it lies in no folder of the system or of those `hidden`.

    `hidden` end in a slash.
    """
    shown = [f"{prefix}/{name}" for prefix in _python_prefixes(hidden) for name in _OF_PYTHON]
    parts = chain.from_iterable(read_only_arguments(path, path) for path in shown if os.path.exists(path))
    return (*parts, *_python_links((*SYSTEM_FOLDERS, *hidden, *(f"{path}/" for path in shown))))


def python_path(*hidden: str) -> tuple[str, ...]:
    """Return the folders of Python's programs."""
    return tuple(f"{prefix}/bin" for prefix in _python_prefixes(hidden))


def _python_prefixes(hidden: tuple[str, ...]) -> list[str]:
    """Return where Python lies, by every name it goes by."""
    found = [sys.prefix, sys.base_prefix]
    for link in _executables():
        prefix = os.path.dirname(os.path.dirname(link))
        if any(os.path.exists(f"{prefix}/{mark}") for mark in _MARKS):
            found.append(prefix)
    # A virtual environment's links and `pyvenv.cfg` name the real Python by its own path, so both are shown.
    found += [os.path.realpath(prefix) for prefix in found]
    return [prefix for prefix in dict.fromkeys(found) if not f"{prefix}/".startswith((*SYSTEM_FOLDERS, *hidden))]


def _python_links(elsewhere: tuple[str, ...]) -> Iterator[str]:
    """Yield arguments for the links that lead to it and lie neither in what is shown nor where nothing can be."""
    for path in _executables():
        if os.path.islink(path) and not path.startswith(elsewhere):
            yield from (*_folders_above(path), "--symlink", os.readlink(path), path)


def _executables() -> list[str]:
    """Return the running Python's program by all its names: an environment's leads, perhaps over others, to the real
    one.
    """
    found = [sys.executable]
    while os.path.islink(found[-1]) and len(found) < _MAX_LINKS:
        found.append(os.path.normpath(os.path.join(os.path.dirname(found[-1]), os.readlink(found[-1]))))
    return found


def find_program(name: str) -> str:
    """Return where a program of the system lies. Raises LookupError where it does not."""
    found = shutil.which(name)
    if found is None:
        raise LookupError(f"{name} is not installed")
    return os.path.realpath(found)


def require_seccomp_filter() -> bytes:
    """Return the filter of system calls. Raises LookupError where there is none for this machine."""
    found = seccomp_filter()
    if found is None:
        raise LookupError(f"no filter of system calls for machines of the architecture {os.uname().machine}")
    return found


def read_only_arguments(source: str, target: str) -> tuple[str, ...]:
    """Return arguments that show a file or folder there, in folders that everybody may look into."""
    return (*_folders_above(target), "--ro-bind", source, target)


def folder_arguments(*paths: str) -> tuple[str, ...]:
    """Return arguments that make these folders; bwrap itself would make them for root alone."""
    return tuple(argument for path in paths for argument in ("--perms", "0755", "--dir", path))


def _folders_above(target: str) -> tuple[str, ...]:
    return folder_arguments(*(str(folder) for folder in reversed(Path(target).parents) if folder != Path("/")))


@functools.cache
def _system_arguments() -> tuple[str, ...]:
    """Return the system's own folders, read-only; links among them stay links."""
    return tuple(argument for path in _SYSTEM for argument in _system_folder(Path(path)))


def _system_folder(path: Path) -> Iterator[str]:
    if path.is_symlink():
        yield from ("--symlink", os.readlink(path), str(path))
    elif path.is_dir():
        yield from ("--ro-bind", str(path), str(path))


@functools.cache
def _etc_arguments(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return arguments for those of /etc that there are. A link is followed: what it leads to is shown in its place."""
    paths = [f"/etc/{name}" for name in names if os.path.exists(f"/etc/{name}")]
    return tuple(argument for path in paths for argument in read_only_arguments(path, path))


def _etc(view: SandboxView, inputs: Inputs) -> tuple[str, ...]:
    names = (*_ETC, *_ETC_WITH_NETWORK) if view.network else _ETC
    own = ((inputs.passwd, "/etc/passwd"), (inputs.group, "/etc/group"))
    shown = (("--perms", "0644", "--ro-bind-data", str(data), path) for data, path in own)
    return (*_etc_arguments(names), *chain.from_iterable(shown))


def _rights_command(view: SandboxView) -> tuple[str, ...]:
    """Return arguments for the rights to set a sandbox up: root needs no user namespace for it, and can become a user
    that nothing else belongs to.
    """
    if os.getuid() != 0:
        return ("--unshare-user",)
    # As root bwrap has no user namespace to map ids in: `setpriv` changes the user later, for which these are kept.
    kept = ["CAP_DAC_READ_SEARCH", *(() if view.user is None else ("CAP_SETUID", "CAP_SETGID"))]
    return ("--cap-drop", "ALL", *(argument for name in kept for argument in ("--cap-add", name)))


def _drop_rights(view: SandboxView) -> tuple[str, ...]:
    if view.user is None:
        return ()
    user, kept = str(view.user), "-all,+dac_read_search" if view.reads_all else "-all"
    rights = ("--inh-caps", kept, "--ambient-caps", kept)
    return (find_program("setpriv"), "--reuid", user, "--regid", user, "--clear-groups", *rights, "--")


def _limit_command(view: SandboxView) -> tuple[str, ...]:
    """Return limits of each process, none above what this process may have itself.

    A few processes more than allowed: the watchdog ends a command that has too many, this keeps it small until then.
    """
    limits = view.limits
    wanted = {
        "core": (resource.RLIMIT_CORE, 0),
        "cpu": (resource.RLIMIT_CPU, limits.cpu_seconds),
        "data": (resource.RLIMIT_DATA, limits.memory_bytes),
        "fsize": (resource.RLIMIT_FSIZE, limits.file_bytes),
    }
    if view.user is not None or _counts_processes_by_namespace():
        wanted["nproc"] = (resource.RLIMIT_NPROC, limits.processes + SPARE_PROCESSES)
    options = []
    for name, (number, value) in wanted.items():
        hard = resource.getrlimit(number)[1]
        options.append(f"--{name}={value if hard == resource.RLIM_INFINITY else min(value, hard)}")
    return (find_program("prlimit"), *options, "--")


@functools.cache
def _counts_processes_by_namespace() -> bool:
    """Return whether RLIMIT_NPROC counts a user's processes in its user namespace only (Linux 5.14), not all over."""
    major, minor = os.uname().release.split(".")[:2]
    # Distributions write releases such as `5.14.0-70` and `6.1+`.
    return (int(major), int("".join(filter(str.isdigit, minor)) or 0)) >= (5, 14)
