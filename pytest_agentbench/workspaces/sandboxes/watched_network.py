"""A network in which each name has an address, nothing is reachable, and attempts to reach hosts are recorded.

`WatchedNetwork.start` starts this file as a program. It makes a network namespace, answers DNS there, and closes
connections to the ports 80 and 443. It prints each attempt as a line of JSON. A sandbox joins the namespace by
`SandboxSpec.joins`; its program has no rights in it. The file imports nothing of this package.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass, field

_ADDRESS = "198.18.0.1"  # of a range for benchmarks, which no host has
_PORTS = (80, 443)
_READ_SECONDS = 1.0
_START_SECONDS = 5.0
_MOST_LINES, _MOST_NAME = 1000, 253
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000


@dataclass(slots=True)
class WatchedNetwork:
    """A watched network. `joins` are its namespaces for `SandboxSpec`, `attempts` what was recorded so far.

    An attempt is `name:port`, `address:port`, or a name that was looked up.
    """

    joins: tuple[tuple[str, str], ...]
    _process: subprocess.Popen[str]
    _lines: list[str] = field(default_factory=list)
    _reader: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @classmethod
    def start(cls) -> WatchedNetwork:
        """Return a running network. Raises OSError if this machine does not allow it."""
        process = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            _, errors = process.communicate()
            reason = errors.strip().splitlines()
            raise OSError(f"no network namespace: {reason[-1] if reason else 'it ended'}")
        kinds = ("net",) if os.geteuid() == 0 else ("user", "net")
        return cls(tuple((kind, f"/proc/{process.pid}/ns/{kind}") for kind in kinds), process)

    def stop(self) -> None:
        """End it. What was recorded stays. May be called twice."""
        # It ends with its stdin, also if this process is killed
        self._process.kill()
        self._reader.join()
        self._process.communicate()

    @property
    def attempts(self) -> list[str]:
        """Return the attempts in order. A name that was connected to afterwards is left out."""
        records = [json.loads(line) for line in list(self._lines)]
        connected = {record["host"] for record in records if "port" in record}
        return [
            f"{record['host']}:{record['port']}" if "port" in record else record["host"]
            for record in records
            if "port" in record or record["host"] not in connected
        ]

    def _read(self) -> None:
        """Collect the program's lines until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if len(self._lines) < _MOST_LINES:
                self._lines.append(line)


def _main() -> None:
    _enter_namespace()
    _set_up_loopback()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as names:
        names.bind(("0.0.0.0", 53))  # noqa: S104 - in the namespace
        threads = [threading.Thread(target=_answer_names, args=(names,), daemon=True)]
        for port in _PORTS:
            listener = socket.create_server(("0.0.0.0", port))  # noqa: S104 - in the namespace
            threads.append(threading.Thread(target=_accept, args=(listener,), daemon=True))
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        sys.stdin.read()


def _enter_namespace() -> None:
    import ctypes

    user, group, is_root = os.getuid(), os.getgid(), os.geteuid() == 0
    kernel = ctypes.CDLL(None, use_errno=True)
    if kernel.unshare(_NEW_NETWORK if is_root else _NEW_NETWORK | _NEW_USER) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if not is_root:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


def _set_up_loopback() -> None:
    """Bring up the loopback device, and make all IPv4 addresses this machine's."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        fcntl.ioctl(device, 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # SIOCSIFFLAGS: up and running
    # RTM_NEWROUTE for a local route of length 0 in the table `local`, by the device `lo`
    route = struct.pack("BBBBBBBBI", socket.AF_INET, 0, 0, 0, 255, 3, 254, 2, 0)
    route += struct.pack("HHI", 8, 4, socket.if_nametoindex("lo"))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.send(struct.pack("IHHII", 16 + len(route), 24, 0x405, 1, 0) + route)
        number = struct.unpack_from("i", kernel.recv(4096), 16)[0]
    if number:
        raise OSError(-number, os.strerror(-number))


def _answer_names(names: socket.socket) -> None:
    """Answer each question for an IPv4 address, and others with nothing."""
    while True:
        query, client = names.recvfrom(4096)
        try:
            labels, at = [], 12
            while query[at]:
                labels.append(query[at + 1 : at + 1 + query[at]].decode("ascii", "replace"))
                at += 1 + query[at]
            end = at + 5
            kind = struct.unpack_from("!H", query, at + 1)[0]
        except (IndexError, struct.error):
            continue
        answers = b""
        if kind == 1:
            answers = struct.pack("!HHHIH", 0xC00C, 1, 1, 1, 4) + socket.inet_aton(_ADDRESS)
            _record(".".join(labels))
        head = query[:2] + struct.pack("!HHHHH", 0x8180, 1, int(bool(answers)), 0, 0)
        names.sendto(head + query[12:end] + answers, client)


def _accept(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_look_at, args=(connection,), daemon=True).start()


def _look_at(connection: socket.socket) -> None:
    """Record a connection by the name that its first bytes have, else by its address, and close it."""
    with connection:
        address, port = connection.getsockname()
        connection.settimeout(_READ_SECONDS)
        try:
            begin = connection.recv(4096)
        except OSError:
            begin = b""
        name = _find_tls_name(begin) if port == 443 else _find_http_host(begin)
        _record(name or address, port)


def _find_http_host(begin: bytes) -> str | None:
    for line in begin.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "host":
            return value.strip().partition(":")[0]
    return None


def _find_tls_name(hello: bytes) -> str | None:
    """Return the server name of a ClientHello, or None."""
    try:
        at = 43 + 1 + hello[43]  # behind the record, the handshake, the version, the random and the session
        at += 2 + struct.unpack_from("!H", hello, at)[0]
        at += 1 + hello[at]
        at += 2
        while at + 4 <= len(hello):
            kind, size = struct.unpack_from("!HH", hello, at)
            if kind == 0:
                length = struct.unpack_from("!H", hello, at + 7)[0]
                return hello[at + 9 : at + 9 + length].decode("ascii", "replace")
            at += 4 + size
    except (IndexError, struct.error):
        return None
    return None


_LOCK = threading.Lock()


def _record(host: str, port: int | None = None) -> None:
    with _LOCK:
        attempt: dict[str, str | int] = {"host": host[:_MOST_NAME]}
        print(json.dumps(attempt if port is None else {**attempt, "port": port}), flush=True)


if __name__ == "__main__":
    _main()
