"""Interrupt a running program by Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path


def interrupted(command: Sequence[str], folder: Path) -> tuple[int, str, str]:
    """Run a program, and send it SIGINT when it has printed the line `begun`. Return exit status, output and errors."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    return process.returncode, out, err
