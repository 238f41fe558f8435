"""Container engines that a run profile names by their program, such as podman: check them, and start their services."""

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
"""Seconds that podman's service gets to end by itself. An idle service was measured to take up to 2 s."""

_LOOK_SECONDS = 0.01
_SHOWN_CHARACTERS = 2_000
_SHOWN_NAME = 200
_LONGEST_SOCKET = 107
"""Maximum bytes of the path of a unix socket (sockaddr_un)."""

_SERVE = '{ "$@"; kill 0; } & read -r _; rm -rf "$0"; kill 0'
"""Script that runs a service until this process closes its stdin, or dies, even by `kill -9`.

`$0` is the service's folder. `kill 0` reaches the script's own process group. The service's pid would not do, because
another process may have got it. If the service ends by itself, the script ends.
"""


@dataclass(frozen=True, slots=True)
class Engine:
    """A working program of an engine. Its methods block, so call them in threads."""

    program: str
    is_podman: bool

    def find_address(self) -> str | None:
        """Return the address of its daemon, or None for a podman whose service has to be started first.

        Raises SandboxError if docker's program does not return an address.
        """
        if self.is_podman:
            return os.environ.get("CONTAINER_HOST") or None
        done = _run(self.program, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
        if done.returncode:
            raise SandboxError(f"{self.program} context inspect: {_last_words(done)}")
        return done.stdout.strip()


def find_engine(program: str) -> Engine:
    """Return the engine of a program. It is tried once. Raises UnavailableError with the remedy if it is unsuitable."""
    result = _try(program)
    if isinstance(result, str):
        raise UnavailableError(result)
    return result


def engine_problem(program: str) -> str | None:
    """Return why a program is unsuitable and the remedy, or None. It is tried once."""
    result = _try(program)
    if isinstance(result, str):
        return result
    return None


def missing_engine(program: str) -> str | None:
    """Return that a program is missing and the remedy, or None if it exists. It is not started."""
    if shutil.which(program) is not None:
        return None
    return (
        f"there is no program {program!r} on this machine: install it, or name another (podman or docker) as "
        "docker_cli in the run profile"
    )


class Service:
    """Podman's service on a socket in a private folder of this user. It ends with this process."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._program, self._folder = engine.program, folder
        self._socket, self._log = folder / "sock", folder / "log"
        # podman would check the health of containers by systemd timers, which outlive this session
        environment = engine_environment() | {"DISABLE_HC_SYSTEMD": "true"}
        served = [engine.program, "system", "service", "--time=0", self.address]
        with self._log.open("wb") as log:
            self._keeper = subprocess.Popen(
                ["/bin/sh", "-c", _SERVE, str(folder), *served],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=folder,  # conmon writes a file `oom` there for each command that ran out of memory
                start_new_session=True,  # so that Ctrl-C reaches this process only, which then cleans up
            )

    @property
    def address(self) -> str:
        """Return its address."""
        return f"unix://{self._socket}"

    def wait(self) -> None:
        """Wait until it listens. Raises SandboxError with the end of its log if it does not."""
        deadline = time.monotonic() + _START_SECONDS
        while not self._listens():
            has_ended = self._keeper.poll() is not None
            if not has_ended and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
                continue
            why = "it ended" if has_ended else f"no program listens after {_START_SECONDS:g} s"
            raise SandboxError(f"{self._program} system service: {self._read_end_of_log() or why}")

    def end(self) -> None:
        """Stop it, also during a call. Never raises. Its containers are not its children and continue."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        deadline = time.monotonic() + _END_SECONDS
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(_END_SECONDS)
        with suppress(ProcessLookupError, PermissionError):  # the group is empty, or belongs to another user
            while time.monotonic() < deadline:
                os.killpg(self._keeper.pid, 0)  # raises once the group is empty
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
    """Start podman's service, and return it when it listens. Raises SandboxError if it does not."""
    service = Service(engine, _make_folder())
    try:
        service.wait()
    except BaseException:
        service.end()
        raise
    return service


def _make_folder() -> Path:
    """Create a folder of mode 0700 whose path leaves room for a socket's name."""
    folder = tempfile.mkdtemp(prefix="agentbench-podman-")
    if len(os.fsencode(folder)) + len("/sock") <= _LONGEST_SOCKET:
        return Path(folder)
    os.rmdir(folder)
    return Path(tempfile.mkdtemp(prefix="agentbench-podman-", dir="/tmp"))


@cache
def _try(program: str) -> Engine | str:
    if (missing := missing_engine(program)) is not None:
        return missing
    try:
        done = _run(program, "version")
        if done.returncode:
            output = _last_words(done)
            return f"the container engine {program!r} does not work here: `{program} version` printed: {output}"
        # `--version` shows the name. The output of `version` may contain no name, or that of docker's daemon
        name = _run(program, "--version").stdout.strip()
    except SandboxError as error:
        return f"the container engine {program!r} does not work here: {error}"
    if name.lower().startswith(("podman", "docker")):
        return Engine(program, name.lower().startswith("podman"))
    return (
        f"the container engine {program!r} is not supported: `{program} --version`: found {name[:_SHOWN_NAME]!r}, "
        "expected podman or docker; for another engine with docker's API, set DOCKER_HOST to its socket"
    )


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Return the end of a failed call's output."""
    return (done.stderr.strip() or done.stdout.strip())[-_SHOWN_CHARACTERS:] or f"exit code {done.returncode}"


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call a program. Raises SandboxError if it cannot be called, or does not end."""
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
