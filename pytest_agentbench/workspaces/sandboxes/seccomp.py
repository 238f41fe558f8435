"""The system calls that commands in bubblewrap are denied, as the filter that `bwrap --seccomp` reads.

Bubblewrap's namespaces hide files, processes and network; what they do not hide or count is denied here: user
namespaces of a command's own (in which it could mount and fill memory that nobody counts), the kernel's keyrings,
System V shared memory, files by handle, and interfaces that have opened kernels before. Docker denies much the same.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets into struct seccomp_data, little-endian
_CLONE_NEWUSER = 0x10000000
_X32 = 0x40000000


@dataclass(frozen=True, slots=True)
class _Machine:
    """Numbers of one architecture: its audit name, `clone`, `unshare`, and what is denied whatever its arguments."""

    audit: int
    clone: int
    unshare: int
    denied: tuple[int, ...]


_CLONE3 = 435
_IO_URING = (425, 426, 427)
_MACHINES = {
    # setns, add_key, request_key, keyctl, shmget, open_by_handle_at, bpf, perf_event_open, userfaultfd
    "x86_64": _Machine(0xC000003E, 56, 272, (308, 248, 249, 250, 29, 304, 321, 298, 323)),
    "aarch64": _Machine(0xC00000B7, 220, 97, (268, 217, 218, 219, 194, 265, 280, 241, 282)),
}


def seccomp_filter() -> bytes | None:
    """The filter for this machine; None where it is of an architecture that none was written for."""
    machine = _MACHINES.get(platform.machine())
    return None if machine is None else b"".join(_program(machine))


def _program(machine: _Machine) -> Iterator[bytes]:
    yield _step(_LOAD, _ARCHITECTURE)
    yield _step(_EQUAL, machine.audit, yes=1)
    yield _refuse(errno.ENOSYS)  # a 32-bit program's call has other numbers
    yield _step(_LOAD, _NUMBER)
    yield _step(_AT_LEAST, _X32, no=1)
    yield _refuse(errno.ENOSYS)
    yield _step(_EQUAL, _CLONE3, no=1)  # its flags lie in memory, where no filter looks; libraries fall back to clone
    yield _refuse(errno.ENOSYS)
    for number in (*machine.denied, *_IO_URING):
        yield _step(_EQUAL, number, no=1)
        yield _refuse(errno.EPERM)
    yield _step(_EQUAL, machine.clone, yes=1)
    yield _step(_EQUAL, machine.unshare, no=3)
    yield _step(_LOAD, _FIRST_ARGUMENT)
    yield _step(_ANY_BIT, _CLONE_NEWUSER, no=1)
    yield _refuse(errno.EPERM)
    yield _step(_RETURN, _ALLOW)


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction; `yes` and `no` are how many to skip where its comparison holds or not."""
    return struct.pack("<HBBI", code, yes, no, value)


def _refuse(number: int) -> bytes:
    return _step(_RETURN, _ERRNO | number)
