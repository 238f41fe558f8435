"""A container engine's program: whether it works here, and calls of it that are waited for."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from pytest_agentbench.config.keys import engine_environment
from pytest_agentbench.errors import SandboxError, UnavailableError

_ANSWER_SECONDS = 20
_CALL_SECONDS = 60
_SHOWN_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class Client:
    """A program that takes docker's arguments. `is_podman`: it takes podman's own, too. Its calls are for threads."""

    program: str
    is_podman: bool

    def run(self, *arguments: str, seconds: float = _CALL_SECONDS) -> subprocess.CompletedProcess[str]:
        """Call it. Raises SandboxError where it does not end."""
        return _run(self.program, arguments, seconds)

    def call(self, *arguments: str, seconds: float = _CALL_SECONDS) -> str:
        """What it says, without blanks around it. Raises SandboxError where it fails."""
        done = self.run(*arguments, seconds=seconds)
        if done.returncode:
            raise SandboxError(f"{self.program} {arguments[0]}: {last_words(done)}")
        return done.stdout.strip()


def client(program: str) -> Client:
    """The client of a program, which is tried once. Raises UnavailableError, with what to do, where it has no use."""
    found = _tried(program)
    if isinstance(found, str):
        raise UnavailableError(found)
    return found


def engine_problem(program: str) -> str | None:
    """Why no containers are to be had by a program, with what to do; None where it answers. Asked once a program."""
    found = _tried(program)
    return found if isinstance(found, str) else None


def missing_engine(program: str) -> str | None:
    """Why there is no such program, with what to do; None where there is one. It is not started."""
    if shutil.which(program) is not None:
        return None
    return (
        f"there is no program {program!r} on this machine: install it, or name another (podman, docker, or what "
        "takes their arguments) as docker_cli in the run profile"
    )


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Why a call failed, in the program's words."""
    return (done.stderr.strip() or done.stdout.strip())[-_SHOWN_CHARACTERS:] or f"exit code {done.returncode}"


@cache
def _tried(program: str) -> Client | str:
    if (missing := missing_engine(program)) is not None:
        return missing
    try:
        done = _run(program, ("version",), _ANSWER_SECONDS)
    except SandboxError as error:
        return f"the container engine {program!r} does not work here: {error}"
    if done.returncode:
        return f"the container engine {program!r} does not work here: `{program} version` says: {last_words(done)}"
    return Client(program, _is_podman(program))


def _is_podman(program: str) -> bool:
    """Whether it says so itself: in what `version` says there may be no name, or that of docker's daemon."""
    with suppress(SandboxError):
        return _run(program, ("--version",), _ANSWER_SECONDS).stdout.lower().startswith("podman")
    return False


def _run(program: str, arguments: tuple[str, ...], seconds: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [program, *arguments],
            env=engine_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=seconds,
            check=False,
            start_new_session=True,  # Ctrl-C is this process's: what is under way is removed by it
        )
    except OSError as error:
        raise SandboxError(f"{program} {arguments[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"{program} {arguments[0]}: no answer within {seconds:g} s") from error
