"""Archives of workspaces beside their runs. A name says what its file holds, so a damaged one shows."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from pytest_agentbench.store.files import make_folder, open_to_read, temporary_file
from pytest_agentbench.store.layout import RUNS

_DIGITS = 16
_PATH = re.compile(rf"{RUNS}/(?:[a-z0-9][a-z0-9._-]*/)+run_\d+\.artifacts/workspace\.\w+\.([0-9a-f]{{{_DIGITS}}})\.tar")


def write_archive(output: str, run: str, run_id: str, pack: Callable[[BinaryIO], None]) -> str:
    """Stores what `pack` writes beside the run to be written at `run` (a path without `.json`); where it lies.

    Paths are relative to the output folder. Raises OSError, and what `pack` raises.
    """
    folder = f"{run}.artifacts"
    make_folder(f"{output}/{folder}")
    with temporary_file(f"{output}/{folder}") as file:
        pack(file)
        file.seek(0)
        path = f"{folder}/workspace.{run_id[:8]}.{hashlib.file_digest(file, 'sha256').hexdigest()[:_DIGITS]}.tar"
        os.replace(file.name, f"{output}/{path}")
    return path


def whole_archive(output: Path, path: str) -> Path | None:
    """The archive that a run names by its `workspace`; None where it is missing, damaged, or no archive's path."""
    named = _PATH.fullmatch(path)
    if named is None:
        return None
    try:
        with os.fdopen(open_to_read(output / path)[0], "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
    return output / path if digest.startswith(named[1]) else None


def remove_archive(output: str, run: str, path: str) -> None:
    """Removes the archive of a run that is no more, where it lies beside it: a run may name that of another."""
    if os.path.dirname(path) == f"{run}.artifacts" and _PATH.fullmatch(path):
        with contextlib.suppress(OSError):
            os.unlink(f"{output}/{path}")
