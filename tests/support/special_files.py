"""Put special files in the place of plain ones, which no reader may wait for or read whole."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def make(kind: str, path: Path) -> None:
    """Make a special file that no reader may wait for or read whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            here = os.getcwd()
            os.chdir(path.parent)  # the path of a socket has 107 bytes at most
            try:
                with socket.socket(socket.AF_UNIX) as listener:
                    listener.bind(path.name)
            finally:
                os.chdir(here)
        case "folder":
            path.mkdir()
        case "zero" | "tty":
            path.symlink_to(f"/dev/{kind}")
        case "sparse":
            with path.open("wb") as file:
                file.truncate(2 * 2**30)
