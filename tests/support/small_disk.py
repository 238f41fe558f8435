"""Mount a small file system if this user may."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.outer_bound import BOUNDED


@contextlib.contextmanager
def small_disk(folder: Path, size: str = "1m") -> Iterator[Callable[[str], None]]:
    """Mount a tmpfs at a new folder. Yield a function that mounts it again with other options (`ro`, `size=20m`)."""
    folder.mkdir()
    if os.environ.get(BOUNDED):  # all of the session is on one
        yield lambda options: None
        return

    def mount(*options: str) -> None:
        subprocess.run(["mount", *options, str(folder)], check=True, capture_output=True)

    try:
        if os.name != "posix" or os.geteuid():
            raise PermissionError
        mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount a small file system")
    try:
        yield lambda options: mount("-o", f"remount,{options}")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
