"""The filter of system calls, run step by step for machines that are not at hand; the kernel's own run is an attack."""

from __future__ import annotations

import errno
import functools
import json
import platform
import re
import struct
from pathlib import Path

import pytest

from pytest_agentbench.workspaces.sandboxes.seccomp import seccomp_filter, seccomp_profile

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS = {  # of x86-64 and aarch64
    "socket": (41, 198),
    "socketpair": (53, 199),
    "clone": (56, 220),
    "unshare": (272, 97),
    "keyctl": (250, 219),
    "openat": (257, 56),
    "execve": (59, 221),
    "shmget": (29, 194),
}
HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")


def decided(machine: str, number: int, *args: int, audit: int | None = None) -> int:
    """The error number that a call gets; 0 where it is allowed."""
    program = program_of(machine)
    given = [*args, *[0] * (6 - len(args))]
    data = struct.pack("<iIQ6Q", number, AUDIT[machine] if audit is None else audit, 0, *given)
    held = at = 0
    while True:
        code, yes, no, value = program[at]
        at += 1
        if code == 0x06:
            return 0 if value == 0x7FFF0000 else value & 0xFFFF
        if code == 0x20:
            held = struct.unpack_from("<I", data, value)[0]
        elif code == 0x54:
            held &= value
        else:
            at += yes if {0x15: held == value, 0x25: held > value, 0x35: held >= value}[code] else no


@functools.cache
def program_of(machine: str) -> list[tuple[int, int, int, int]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(platform, "machine", lambda: machine)
        return list(struct.iter_unpack("<HBBI", seccomp_filter.__wrapped__() or b""))


@pytest.mark.parametrize("machine", AUDIT)
def test_the_filter_refuses_forbidden_calls_and_allows_others(machine: str) -> None:
    number = {name: numbers[[*AUDIT].index(machine)] for name, numbers in NUMBERS.items()}
    sockets = {family: decided(machine, number["socket"], family, 1) for family in range(64)}
    assert [family for family, refused in sockets.items() if not refused] == [1, 2, 10, 16]
    assert {*sockets.values()} == {0, errno.EPERM}
    assert decided(machine, number["socket"], 40 | 1 << 32, 1) == errno.EPERM  # the kernel drops the upper half
    assert decided(machine, number["socket"], 16, 3, 12) == errno.EPERM
    assert [decided(machine, number["socketpair"], family, 1) for family in (1, 2, 30)] == [0, errno.EPERM, errno.EPERM]
    assert decided(machine, number["clone"], 0x01200011) == 0
    assert decided(machine, number["clone"], 0x10000011) == errno.EPERM
    assert [decided(machine, number[name]) for name in ("openat", "execve")] == [0, 0]
    assert [decided(machine, number[name]) for name in ("unshare", "keyctl", "shmget")] == [errno.EPERM] * 3
    assert [decided(machine, each) for each in (425, 427)] == [errno.EPERM] * 2  # io_uring
    assert [decided(machine, each) for each in (435, 600, 0x40000029)] == [errno.ENOSYS] * 3
    assert decided(machine, number["openat"], audit=0x40000003) == errno.ENOSYS  # a 32-bit program's


def test_the_profile_has_the_same_rules_as_the_filter() -> None:
    rules = json.loads(seccomp_profile() or "{}")["syscalls"]
    allowed = {name for rule in rules if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
    assert {"socket", "clone", "openat", "shmget"} <= allowed
    assert not {"clone3", "unshare", "keyctl", "io_uring_setup", "mount", "bpf"} & allowed
    families = [rule["args"][0]["valueTwo"] for rule in rules if rule["names"] == ["socket"]]
    assert families == [1, 2, 10, 16]


@pytest.mark.skipif(not HEADER.exists(), reason="no headers of the kernel for x86-64 here")
def test_the_numbers_are_the_kernels() -> None:
    kernel = dict(re.findall(r"#define __NR_(\w+) (\d+)", HEADER.read_text(encoding="ascii")))
    table = Path(seccomp_filter.__wrapped__.__code__.co_filename).with_name("system_calls.txt").read_text("ascii")
    listed = dict(re.findall(r"\b(\w+):(\d+):", table))
    assert len(listed) > 250
    assert {name: number for name, number in listed.items() if kernel.get(name, number) != number} == {}
