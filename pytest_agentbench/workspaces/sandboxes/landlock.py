"""Runs a program that reaches no abstract unix socket of others. A program of its own: standard library only.

    python -I -S landlock.py PROGRAM ARGUMENTS...

They have no file that a mount namespace could hide, but belong to a network namespace: where a sandbox has this
machine's, the sockets of its D-Bus, X server or agents would be in reach. Landlock keeps the program, and all that it
starts, to those that they made themselves (Linux 6.12, "landlock: Scoped indicators").
"""

from __future__ import annotations

import os
import sys

_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # the same on every architecture
_VERSION, _FIRST_VERSION = 1, 6
_ABSTRACT_UNIX_SOCKET = 1
_PR_SET_NO_NEW_PRIVS = 38


def has_scopes() -> bool:
    """Return whether this machine's kernel has Landlock's scopes."""
    if sys.platform != "linux":
        return False
    import ctypes  # 2 ms that a session without such a sandbox does not pay

    call = ctypes.CDLL(None).syscall
    return int(call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))) >= _FIRST_VERSION


def restrict() -> None:
    """Keep this process to abstract sockets of its own, from now on. Raises OSError."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    ruleset = (ctypes.c_uint64 * 3)(0, 0, _ABSTRACT_UNIX_SOCKET)  # access to files and to ports is as it was
    made = libc.syscall(_CREATE_RULESET, ruleset, ctypes.c_size_t(ctypes.sizeof(ruleset)), ctypes.c_uint(0))
    if os.geteuid() != 0:
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if made < 0 or libc.syscall(_RESTRICT_SELF, ctypes.c_int(made), ctypes.c_uint(0)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    os.close(made)


if __name__ == "__main__":
    restrict()
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - an exec is the purpose
