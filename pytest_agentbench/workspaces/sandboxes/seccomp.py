"""The allowed system calls of commands in a sandbox: one list for bubblewrap's filter and docker's profile.

Namespaces isolate files, processes and network. The filter refuses interfaces that they do not cover or count: socket
families without a network namespace (AF_VSOCK reaches the hypervisor), nested namespaces (a command could mount there,
and fill memory that nobody counts), the kernel's keyrings, io_uring, files by handle, and interfaces that were used to
break kernels. `system_calls.txt` lists the allowed calls, and `_CONDITIONS` restricts the arguments of some.
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
_UNIX, _INET, _INET6, _NETLINK, _NETLINK_ROUTE = 1, 2, 10, 16, 0  # Linux's numbers, on every machine
_INT = 0xFFFFFFFF  # the kernel ignores the upper half of these arguments
_NEW_NAMESPACES = 0x7E020000
_ADDR_COMPAT, _UNAME26, _ASK = 0x0008, 0x20000, 0xFFFFFFFF

Condition = tuple[tuple[int, int, int], ...]
"""Conditions that must all hold: the index of an argument, a mask, and the expected value after masking."""

_CONDITIONS: dict[str, tuple[Condition, ...]] = {
    "socket": (
        *(((0, _INT, family),) for family in (_UNIX, _INET, _INET6)),
        ((0, _INT, _NETLINK), (2, _INT, _NETLINK_ROUTE)),  # programs list their addresses with it
    ),
    "socketpair": (((0, _INT, _UNIX),),),
    "clone": (((0, _NEW_NAMESPACES, 0),),),
    "personality": tuple(
        ((0, _INT, persona),) for persona in (0, _ADDR_COMPAT, _UNAME26, _UNAME26 | _ADDR_COMPAT, _ASK)
    ),
}
_UNCOUNTED = ("shmget",)
"""Calls for memory that outlives its process. Docker counts it, bubblewrap's watchdog cannot, so bubblewrap refuses."""


@functools.cache
def seccomp_filter() -> bytes | None:
    """Return the filter of this machine for `bwrap --seccomp`, or None for an architecture without one."""
    machine = platform.machine()
    if machine not in _AUDIT:
        return None
    return b"".join(_program(machine))


@functools.cache
def seccomp_profile() -> str | None:
    """Return the filter as a JSON document for docker and compatible engines, or None for an architecture without one.

    It names no architecture. So 32-bit and x32 programs, whose calls have other numbers, are killed.
    """
    if platform.machine() not in _AUDIT:
        return None
    rules = [_rule(name, condition) for name, conditions in _CONDITIONS.items() for condition in conditions]
    rules.append({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS})
    plain = [name for name in _read_call_numbers() if name not in _CONDITIONS]
    rules.append({"names": plain, "action": "SCMP_ACT_ALLOW"})
    return json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules})


def write_seccomp_profile(folder: Path) -> Path | None:
    """Write the profile into a folder, for programs that need a path. Return the file, or None if there is no
    profile.
    """
    profile, file = seccomp_profile(), folder / ".seccomp.json"
    if profile is not None and not file.exists():
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as written:
            written.write(profile)
        os.replace(written.name, file)  # atomic: another reader never sees half a file
    if profile is None:
        return None
    return file


@functools.cache
def _read_call_numbers() -> dict[str, dict[str, int]]:
    """Return the numbers of each allowed system call, by machine."""
    text = Path(__file__).with_name("system_calls.txt").read_text(encoding="ascii")
    entries = " ".join(line for line in text.splitlines() if not line.startswith("#")).split()
    calls = {}
    for name, *numbers in (entry.split(":") for entry in entries):
        calls[name] = {machine: int(number) for machine, number in zip(_AUDIT, numbers, strict=True) if number != "-"}
    return calls


def _rule(name: str, condition: Condition) -> dict[str, Any]:
    args = [
        {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
        for index, mask, value in condition
    ]
    return {"names": [name], "action": "SCMP_ACT_ALLOW", "args": args}


def _program(machine: str) -> Iterator[bytes]:
    numbers = {name: by[machine] for name, by in _read_call_numbers().items() if machine in by}
    newest = max(numbers.values())
    yield _instruction(_LOAD, _ARCHITECTURE)
    yield _instruction(_EQUAL, _AUDIT[machine], yes=1)
    yield _refuse(errno.ENOSYS)  # a 32-bit program's call has other numbers
    yield _instruction(_LOAD, _NUMBER)
    yield _instruction(_ABOVE, newest, no=1)  # x32 calls too: libraries have fallbacks for ENOSYS
    yield _refuse(errno.ENOSYS)
    # clone3 has its flags in memory, which a filter cannot read. Libraries fall back to clone.
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
    """Return instructions that allow the call if the condition holds, and otherwise continue after themselves."""
    remaining = 3 * len(condition)
    for index, mask, value in condition:
        remaining -= 3
        yield _instruction(_LOAD, _ARGUMENTS + 8 * index)
        yield _instruction(_AND, mask)
        yield _instruction(_EQUAL, value, no=remaining + 1)
    yield _instruction(_RETURN, _ALLOW)


def _number_ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each sequence of consecutive numbers."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if not ranges or number != ranges[-1][1] + 1:
            ranges.append([number, number])
        ranges[-1][1] = number
    yield from ((first, last) for first, last in ranges)


def _instruction(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Return one instruction. `yes` and `no` are the instructions to skip after its comparison."""
    return struct.pack("<HBBI", code, yes, no, value)


def _refuse(number: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | number)
