"""The system calls that commands in a sandbox may make: one list, as bubblewrap's filter and as docker's profile.

Namespaces hide files, processes and network; what they do not hide or count is refused here: sockets of families that
no network namespace holds (AF_VSOCK leads to the hypervisor), namespaces of a command's own (in which it could mount,
and fill memory that nobody counts), the kernel's keyrings, io_uring, files by handle, and interfaces that have opened
kernels before. `system_calls.txt` is what is left, and `_CONDITIONS` what is asked of the arguments of some.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import platform
import struct
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _AND, _EQUAL, _ABOVE, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets into struct seccomp_data, little-endian
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE3 = 435
_UNIX, _INET, _INET6, _NETLINK, _NETLINK_ROUTE = 1, 2, 10, 16, 0  # of Linux, whatever this machine is
_INT = 0xFFFFFFFF  # the kernel takes no more of these arguments, whatever stands above
_NEW_NAMESPACES = 0x7E020000
_ADDR_COMPAT, _UNAME26, _ASK = 0x0008, 0x20000, 0xFFFFFFFF

Condition = tuple[tuple[int, int, int], ...]
"""What has to hold together: each is the index of an argument, a mask, and the value that is then left."""

_CONDITIONS: dict[str, tuple[Condition, ...]] = {
    "socket": (
        *(((0, _INT, family),) for family in (_UNIX, _INET, _INET6)),
        ((0, _INT, _NETLINK), (2, _INT, _NETLINK_ROUTE)),  # by which programs list their addresses
    ),
    "socketpair": (((0, _INT, _UNIX),),),
    "clone": (((0, _NEW_NAMESPACES, 0),),),
    "personality": tuple(((0, _INT, each),) for each in (0, _ADDR_COMPAT, _UNAME26, _UNAME26 | _ADDR_COMPAT, _ASK)),
}
_UNCOUNTED = ("shmget",)
"""Memory that stays when its process has ended: docker counts it, bubblewrap's watchdog would not."""


@functools.cache
def seccomp_filter() -> bytes | None:
    """Return the filter for this machine that `bwrap --seccomp` reads; None for an architecture without one.

    None where it is of an architecture without one.
    """
    machine = platform.machine()
    return None if machine not in _AUDIT else b"".join(_program(machine))


@functools.cache
def seccomp_profile() -> str | None:
    """Return the filter as the JSON document that docker and its kind take; None for an architecture without one.

    It names no architecture, so those of 32-bit and x32 programs, whose calls have other numbers, are killed.
    """
    if platform.machine() not in _AUDIT:
        return None
    rules = [_rule(name, condition) for name, conditions in _CONDITIONS.items() for condition in conditions]
    rules.append({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS})
    plain = [name for name in _read_call_numbers() if name not in _CONDITIONS]
    rules.append({"names": plain, "action": "SCMP_ACT_ALLOW"})
    return json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules})


def write_seccomp_profile(folder: Path) -> Path | None:
    """Write the profile as a file into a folder, for programs that are told its path.

    Return it; None where there is none.
    """
    profile, file = seccomp_profile(), folder / ".seccomp.json"
    if profile is not None and not file.exists():
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as written:
            written.write(profile)
        os.replace(written.name, file)  # whole for whoever reads it meanwhile
    return None if profile is None else file


@functools.cache
def _read_call_numbers() -> dict[str, dict[str, int]]:
    """Return the numbers of each system call that is allowed, by machine."""
    text = Path(__file__).with_name("system_calls.txt").read_text(encoding="ascii")
    entries = " ".join(line for line in text.splitlines() if not line.startswith("#")).split()
    found = {}
    for name, *numbers in (entry.split(":") for entry in entries):
        found[name] = {machine: int(number) for machine, number in zip(_AUDIT, numbers, strict=True) if number != "-"}
    return found


def _rule(name: str, condition: Condition) -> dict[str, Any]:
    args = [
        {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
        for index, mask, value in condition
    ]
    return {"names": [name], "action": "SCMP_ACT_ALLOW", "args": args}


def _program(machine: str) -> Iterator[bytes]:
    numbers = {name: found[machine] for name, found in _read_call_numbers().items() if machine in found}
    newest = max(numbers.values())
    yield _instruction(_LOAD, _ARCHITECTURE)
    yield _instruction(_EQUAL, _AUDIT[machine], yes=1)
    yield _refuse(errno.ENOSYS)  # a 32-bit program's call has other numbers
    yield _instruction(_LOAD, _NUMBER)
    yield _instruction(_ABOVE, newest, no=1)  # those of x32 too: libraries do without what a kernel does not have
    yield _refuse(errno.ENOSYS)
    # clone3's flags lie in memory, where no filter looks; libraries fall back to clone.
    yield _instruction(_EQUAL, _CLONE3, no=1)
    yield _refuse(errno.ENOSYS)
    for name, conditions in _CONDITIONS.items():
        block = [*(step for condition in conditions for step in _alternative(condition)), _refuse(errno.EPERM)]
        yield _instruction(_EQUAL, numbers.pop(name), no=len(block))
        yield from block
    for first, last in _number_ranges(number for name, number in numbers.items() if name not in _UNCOUNTED):
        yield _instruction(_AT_LEAST, first, no=2)
        yield _instruction(_ABOVE, last, yes=1)
        yield _instruction(_RETURN, _ALLOW)
    yield _refuse(errno.EPERM)


def _alternative(condition: Condition) -> Iterator[bytes]:
    """Return instructions that allow where all of it holds, and go on after themselves where not."""
    left = 3 * len(condition)
    for index, mask, value in condition:
        left -= 3
        yield _instruction(_LOAD, _ARGUMENTS + 8 * index)
        yield _instruction(_AND, mask)
        yield _instruction(_EQUAL, value, no=left + 1)
    yield _instruction(_RETURN, _ALLOW)


def _number_ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each run of numbers that follow each other."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if not found or number != found[-1][1] + 1:
            found.append([number, number])
        found[-1][1] = number
    yield from ((first, last) for first, last in found)


def _instruction(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Return one instruction; `yes` and `no` are how many to skip where its comparison holds or not."""
    return struct.pack("<HBBI", code, yes, no, value)


def _refuse(number: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | number)
