"""Find processes of this machine."""

from __future__ import annotations

import os
from pathlib import Path


def running(mark: str) -> bool:
    """Return whether a process of this machine, also of a container, has the text in its command line."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "):
                return True
        except OSError:  # it ended meanwhile
            continue
    return False
