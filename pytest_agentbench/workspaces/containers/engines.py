"""Container engines that a run profile names by their program, such as podman: tried, and brought to a socket."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pytest_agentbench.config.keys import engine_environment
from pytest_agentbench.errors import SandboxError, UnavailableError

_ANSWER_SECONDS = 20
_START_SECONDS = 30.0
_END_SECONDS = 0.5
"""How long podman's service may take to end by itself, as it may with nothing left to do; 2 s have been measured."""

_LOOK_SECONDS = 0.01
_SHOWN_CHARACTERS = 2_000
_SHOWN_NAME = 200
_LONGEST_SOCKET = 107
"""Bytes that the path of a unix socket may have (sockaddr_un)."""

_SERVE = '{ "$@"; kill 0; } & read -r _; rm -rf "$0"; kill 0'
"""Keeps a service for as long as this process holds the other end of stdin, `kill -9` of it included.

`$0` is the service's folder. `kill 0` reaches the whole process group, which is theirs alone: unlike the service's pid,
its number cannot have gone to somebody else meanwhile. A service that ends by itself ends its keeper.
"""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine's program that answers. Its calls are for threads."""

    program: str
    is_podman: bool

    def find_address(self) -> str | None:
        """Return where its daemon listens; None for a podman without one, whose service is still to be started.

        Raises SandboxError where docker's program does not say.
        """
        if self.is_podman:
            return os.environ.get("CONTAINER_HOST") or None
        asked = ("context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
        done = _run(self.program, *asked)
        if done.returncode:
            raise SandboxError(f"{self.program} context inspect: {_last_words(done)}")
        return done.stdout.strip()


def find_engine(program: str) -> Engine:
    """Return the engine of a program, which is tried once. Raises UnavailableError, with what to do, for no use."""
    found = _try(program)
    if isinstance(found, str):
        raise UnavailableError(found)
    return found


def engine_problem(program: str) -> str | None:
    """Return why a program gives no containers, with what to do; None where it answers. Asked once a program."""
    found = _try(program)
    return found if isinstance(found, str) else None


def missing_engine(program: str) -> str | None:
    """Return why there is no such program, with what to do; None where there is one. It is not started."""
    if shutil.which(program) is not None:
        return None
    return (
        f"there is no program {program!r} on this machine: install it, or name another (podman or docker) as "
        "docker_cli in the run profile"
    )


class Service:
    """Podman's service on a socket of its own, in a folder that is this user's alone. It ends with this process."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._program, self._folder = engine.program, folder
        self._socket, self._log = folder / "sock", folder / "log"
        # podman would have systemd look after the health of containers, by timers that outlive this session
        environment = engine_environment() | {"DISABLE_HC_SYSTEMD": "true"}
        served = [engine.program, "system", "service", "--time=0", self.address]
        with self._log.open("wb") as log:
            self._keeper = subprocess.Popen(
                ["/bin/sh", "-c", _SERVE, str(folder), *served],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=folder,  # where conmon leaves a file `oom` for each command that ran out of memory
                start_new_session=True,  # Ctrl-C is this process's: what is under way is removed by it
            )

    @property
    def address(self) -> str:
        """Return where it listens."""
        return f"unix://{self._socket}"

    def wait(self) -> None:
        """Wait until it listens. Raises SandboxError, with its last words, where it does not."""
        deadline = time.monotonic() + _START_SECONDS
        while not self._listens():
            has_ended = self._keeper.poll() is not None
            if not has_ended and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
                continue
            why = "it ended" if has_ended else f"nothing listens after {_START_SECONDS:g} s"
            raise SandboxError(f"{self._program} system service: {self._read_end_of_log() or why}")

    def end(self) -> None:
        """End it, with what it is about. Never raises. Its containers are no children of its and stay."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        deadline = time.monotonic() + _END_SECONDS
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(_END_SECONDS)
        with suppress(ProcessLookupError, PermissionError):  # the group is empty, or what is left of it is not ours
            while time.monotonic() < deadline:
                os.killpg(self._keeper.pid, 0)  # raises once nobody of the group lives
                time.sleep(_LOOK_SECONDS)
            os.killpg(self._keeper.pid, signal.SIGKILL)
        self._keeper.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read_end_of_log(self) -> str:
        with self._log.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _SHOWN_CHARACTERS))
            return log.read(_SHOWN_CHARACTERS).decode("utf-8", "replace").strip()

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
            connection.connect(str(self._socket))
            return True
        return False


def start_service(engine: Engine) -> Service:
    """Start podman's service, and return it when it listens. Raises SandboxError where it does not."""
    service = Service(engine, _make_folder())
    try:
        service.wait()
    except BaseException:
        service.end()
        raise
    return service


def _make_folder() -> Path:
    """Make a folder of mode 0700 whose sockets' paths are short enough."""
    made = tempfile.mkdtemp(prefix="agentbench-podman-")
    if len(os.fsencode(made)) + len("/sock") <= _LONGEST_SOCKET:
        return Path(made)
    os.rmdir(made)
    return Path(tempfile.mkdtemp(prefix="agentbench-podman-", dir="/tmp"))


@cache
def _try(program: str) -> Engine | str:
    if (missing := missing_engine(program)) is not None:
        return missing
    try:
        done = _run(program, "version")
        if done.returncode:
            return f"the container engine {program!r} does not work here: `{program} version` says: {_last_words(done)}"
        # known by `--version`: in what `version` says there may be no name, or that of docker's daemon
        named = _run(program, "--version").stdout.strip()
    except SandboxError as error:
        return f"the container engine {program!r} does not work here: {error}"
    if named.lower().startswith(("podman", "docker")):
        return Engine(program, named.lower().startswith("podman"))
    return (
        f"the container engine {program!r} has no use here: `{program} --version`: found {named[:_SHOWN_NAME]!r}, "
        "expected podman or docker; another engine that serves docker's API is used by its socket, as DOCKER_HOST"
    )


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Return why a call failed, in the program's words."""
    return (done.stderr.strip() or done.stdout.strip())[-_SHOWN_CHARACTERS:] or f"exit code {done.returncode}"


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call a program. Raises SandboxError where it cannot be called, or does not end."""
    try:
        return subprocess.run(
            [program, *arguments],
            env=engine_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_ANSWER_SECONDS,
            check=False,
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxError(f"{program} {arguments[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"{program} {arguments[0]}: no answer within {_ANSWER_SECONDS} s") from error
