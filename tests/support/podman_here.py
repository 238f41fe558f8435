"""Run podman for tests, with separate containers and images, on machines that can run it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.docker_here import IMAGE, docker_lacks

_SECONDS = 120
_RESTRICTED = ("--runtime runc", "--ulimit nofile=1024:1024 --ulimit nproc=1000:1000")
"""Options of podman, and of `podman run`, for machines that forbid raising limits or have cgroups of both versions."""


class PodmanLacks(Exception):
    """Podman cannot run here; the text is the reason."""


@contextmanager
def podman(owner: int | None = None, inside: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the path of a podman program that has IMAGE, loaded from docker. At the end remove all that it made.

    `owner` is its user, and `inside` the command that runs programs as that user. Raise PodmanLacks.
    """
    if shutil.which("podman") is None:
        raise PodmanLacks("podman is not installed")
    if (missing := docker_lacks()) is not None:
        raise PodmanLacks(f"{missing}; podman's image is loaded from there")
    folder = Path(tempfile.mkdtemp(prefix="ab-", dir="/tmp"))  # short: its sockets' paths are at most 107 bytes
    try:
        image = folder / "image.tar"
        subprocess.run(["docker", "save", "--output", image, IMAGE], check=True, timeout=_SECONDS)
        image.chmod(0o644)
        if owner is not None:
            os.chown(folder, owner, owner)
        program = _program(folder)
        _call(inside, program, "load", "--quiet", "--input", str(image))
        _configure(folder, inside)
        try:
            yield program
        finally:
            for ending in (("rm", "--all", "--force"), ("rmi", "--all", "--force"), ("system", "migrate")):
                _call(inside, program, *ending)  # the last one ends the process that holds the namespace
    finally:
        subprocess.run(["umount", folder / "root/overlay"], capture_output=True, check=False)
        shutil.rmtree(folder)


def _program(folder: Path, options: str = "", of_run: str = "") -> str:
    program = folder / "podman"
    own = f"--root {folder}/root --runroot {folder}/run --tmpdir {folder}/tmp"
    program.write_text(
        f"#!/bin/sh\nexport HOME={folder} XDG_RUNTIME_DIR={folder}\n"
        f'if [ "$1" = run ]; then shift; set -- run {of_run} "$@"; fi\n'
        f'exec podman {own} {options} "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


def _configure(folder: Path, inside: tuple[str, ...]) -> None:
    """Find the options with which a container runs."""
    for options, of_run in (("", ""), _RESTRICTED):
        program = _program(folder, options, of_run)
        try:
            _call(inside, program, "run", "--rm", "--network", "none", IMAGE, "true")
        except PodmanLacks as error:
            lacks = error
        else:
            return
    raise lacks


def _call(inside: tuple[str, ...], *command: str) -> None:
    done = subprocess.run([*inside, *command], capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise PodmanLacks(f"podman {command[1]}: {done.stderr.strip()[-500:]}")
