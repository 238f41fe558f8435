"""Ctrl-C for a program that has begun."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path


def interrupted(command: Sequence[str], folder: Path) -> tuple[int, str, str]:
    """Exit status, output and errors of a program that gets a SIGINT once it has printed the line `begun`."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    return process.returncode, out, err
