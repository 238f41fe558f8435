"""Runs a program without access to foreign abstract unix sockets. A script that uses the standard library only.

    python -I -S landlock.py PROGRAM ARGUMENTS...

Abstract sockets have no file that a mount namespace could hide. They belong to a network namespace. In a sandbox with
this machine's network, the sockets of D-Bus, the X server or ssh agents would be reachable. Landlock restricts the
program and its descendants to their own abstract sockets (Linux 6.12, "landlock: Scoped indicators").
"""

from __future__ import annotations

import os
import sys

_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # the same on every architecture
_VERSION, _FIRST_VERSION = 1, 6
_ABSTRACT_UNIX_SOCKET = 1
_PR_SET_NO_NEW_PRIVS = 38


def has_scopes() -> bool:
    """Return whether this machine's kernel supports Landlock's scopes."""
    if sys.platform != "linux":
        return False
    import ctypes  # takes 2 ms, and most sessions have no such sandbox

    call = ctypes.CDLL(None).syscall
    return int(call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))) >= _FIRST_VERSION


def restrict() -> None:
    """Restrict this process to its own abstract sockets from now on. Raises OSError."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    ruleset = (ctypes.c_uint64 * 3)(0, 0, _ABSTRACT_UNIX_SOCKET)  # no restriction of files and ports
    descriptor = libc.syscall(_CREATE_RULESET, ruleset, ctypes.c_size_t(ctypes.sizeof(ruleset)), ctypes.c_uint(0))
    if os.geteuid() != 0:
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if descriptor < 0 or libc.syscall(_RESTRICT_SELF, ctypes.c_int(descriptor), ctypes.c_uint(0)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    os.close(descriptor)


if __name__ == "__main__":
    restrict()
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - an exec is the purpose
