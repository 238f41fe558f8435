"""The users that workspaces belong to where this process is root: each its own, and none that the machine knows."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_FIRST, _EACH = 2**30, 2**16
"""Ids no system gives to anybody, as many sessions as fit below 2^31, and as many workspaces for each."""

_SMALL_FIRST, _SMALL_END = 10_000, 60_000
"""Where ids are mapped, as in a container of a user's own, and there are no more than 2^16 of them."""


class Owners:
    """The ids of one session's workspaces. Sessions beside it have others, but for a rare chance."""

    def __init__(self) -> None:
        first, end = _range()
        self._first, self._size = first, min(_EACH, end - first)
        if end - first > _EACH:
            self._first += _EACH * secrets.randbelow((end - first) // _EACH)

    def of(self, number: int) -> int | None:
        """The user and group id for the session's workspace of that number; None: this process's own."""
        return self._first + number % self._size if self._size else None


def _range() -> tuple[int, int]:
    """The ids to take from, empty where this process cannot give files to others."""
    if os.getuid() != 0:
        return 0, 0
    for first, end in ((_FIRST, 2**31), (_SMALL_FIRST, _SMALL_END)):
        if all(_maps(name, first, end) for name in ("uid_map", "gid_map")):
            return first, end
    return 0, 0


def _maps(name: str, first: int, end: int) -> bool:
    """Whether this process's user namespace has all of these ids."""
    try:
        lines = Path(f"/proc/self/{name}").read_text(encoding="ascii").splitlines()
    except OSError:  # no Linux
        return False
    return any(int(start) <= first and end <= int(start) + int(size) for start, _, size in map(str.split, lines))
