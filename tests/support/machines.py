"""Simulate other machines for workers: network namespaces with a socket server in each."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

PATIENCE = 60


def wait_until(condition, what: str, seconds: float = PATIENCE) -> None:
    """Wait for a condition; fail with its name."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what}: not within {seconds:g} s"
        time.sleep(0.02)


@dataclass
class Machine:
    """An execnet socket server, in a separate namespace if it has one."""

    address: str
    folder: Path
    namespace: str | None = None

    def __post_init__(self) -> None:
        self.log = self.folder / f"server-{self.address}.log"
        within = ["ip", "netns", "exec", self.namespace] if self.namespace else []
        command = [*within, sys.executable, "-u", "-m", "execnet.script.socketserver", self.address]
        with self.log.open("w") as log:
            self.server = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT)
        wait_until(lambda: "Accept loop" in self.log.read_text(), f"the server at {self.address}")

    def tx(self, project: Path) -> str:
        """Return the option that starts a worker on the machine."""
        return f"--tx=socket={self.address}//chdir={project}"

    @property
    def is_idle(self) -> bool:
        """Return whether the worker has ended, with or without the server."""
        return self.server.poll() is not None or self.log.read_text().count("Accept loop") > 1

    def kill(self) -> None:
        """Kill the server and its worker, which are one process."""
        self.server.kill()
        self.server.wait(PATIENCE)

    def unplug(self) -> None:
        """Disconnect the network without notice to either end."""
        assert self.namespace is not None
        subprocess.run(["ip", "-n", self.namespace, "link", "set", "eth0", "down"], check=True)


@contextmanager
def loopback(folder: Path, port: int) -> Iterator[Machine]:
    """Yield a server on loopback."""
    machine = Machine(f"127.0.0.1:{port}", folder)
    try:
        yield machine
    finally:
        machine.kill()


@contextmanager
def namespaces(folder: Path, count: int) -> Iterator[list[Machine]]:
    """Yield so many servers, each in a separate network namespace. Skip the test if these cannot be made."""
    if shutil.which("ip") is None:
        pytest.skip("needs iproute2")
    net = random.randrange(256)
    with ExitStack() as stack:
        yield [
            stack.enter_context(_namespace(folder, f"198.{18 + net % 2}.{net}.{4 * number}")) for number in range(count)
        ]


@contextmanager
def _namespace(folder: Path, network: str) -> Iterator[Machine]:
    *front, last = network.split(".")
    here, there = (".".join([*front, str(int(last) + host)]) for host in (1, 2))
    name, link = f"bench-{os.getpid()}-{last}", f"b{os.getpid()}-{last}"
    made = _ip("netns", "add", name)
    if made.returncode:
        pytest.skip(f"network namespaces are not permitted here: {made.stderr.strip()}")
    try:
        for command in (
            f"link add {link} type veth peer name eth0 netns {name}",
            f"addr add {here}/30 dev {link}",
            f"link set {link} up",
            f"-n {name} addr add {there}/30 dev eth0",
            f"-n {name} link set eth0 up",
            f"-n {name} link set lo up",
        ):
            done = _ip(*command.split())
            assert done.returncode == 0, f"ip {command}: {done.stderr}"
        machine = Machine(f"{there}:8888", folder, name)
        try:
            yield machine
        finally:
            machine.kill()
    finally:
        _ip("link", "del", link)
        _ip("netns", "del", name)


def _ip(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *args], capture_output=True, text=True, check=False)
