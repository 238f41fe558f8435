"""The second bound holds by itself: what the attacks rely on."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.outer_bound import MEMORY_BYTES, PROCESSES, Breached, bounded

pytestmark = pytest.mark.slow


def test_hands_on_what_a_function_gives() -> None:
    assert bounded(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        bounded(divmod, 7, 0)


def test_stops_a_fork_bomb_and_leaves_nothing_of_it() -> None:
    with pytest.raises(Breached, match=f"{PROCESSES} processes"):
        bounded(_forks)
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "sleep 7331" not in listed


def test_stops_a_memory_hog() -> None:
    with pytest.raises(Breached, match=f"{MEMORY_BYTES >> 20} MB"):
        bounded(_grows)


def _forks() -> None:
    # Of small processes: as many of Python's would come to the bound of memory first, where the machine is busy.
    process = subprocess.Popen(["sh", "-c", "while :; do sleep 7331 & done"], stderr=subprocess.PIPE)
    assert process.stderr is not None
    process.stderr.readline()  # of the first that could not fork


def _grows() -> None:
    hog = f"b = bytearray({2 * MEMORY_BYTES})\nfor at in range(0, len(b), 4096): b[at] = 1"
    subprocess.run([sys.executable, "-c", hog], check=False)
