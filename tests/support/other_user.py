"""Act as another user than root, for a while or in a program, if this process is root, who may open every file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")


@contextmanager
def as_nobody() -> Iterator[None]:
    """Run the block as a user who may open no file of root."""
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def command_as(user: int, argv: Iterable[str], readable: Iterable[Path], stage: Path) -> list[str]:
    """Return the command that runs `argv` as that user, without any right of root.

    It can read the folders `readable` by their own names. If others may not enter a home around one, the command gets a
    home with nothing else. `stage` is an empty folder for that.
    """
    hidden = {path: home for path in readable if (home := _closed(path)) is not None}
    script = ["set -e"]
    for number, path in enumerate(hidden):
        script += [f"mkdir {stage}/{number}", f"mount --rbind {shlex.quote(str(path))} {stage}/{number}"]
    script += [f"mount -t tmpfs -o mode=755 none {shlex.quote(str(home))}" for home in {*hidden.values()}]
    for number, path in enumerate(hidden):
        script += [f"mkdir -p {shlex.quote(str(path))}", f"mount --rbind {stage}/{number} {shlex.quote(str(path))}"]
    script.append(f'exec setpriv --reuid {user} --regid {user} --clear-groups --inh-caps=-all -- "$@"')
    return ["unshare", "--mount", "sh", "-c", "\n".join(script), "sh", *argv]


def _closed(path: Path) -> Path | None:
    """Return the outermost folder above the path that others may not enter."""
    return next((each for each in [*reversed(path.parents), path] if not each.stat().st_mode & 0o001), None)
