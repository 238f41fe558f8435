"""A program that opens sockets of every family, and its expected output in a sandbox."""

from __future__ import annotations

OPEN_FAMILIES = """
import socket
for family in range(1, 64):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        try:
            socket.socket(family, kind).close()
        except OSError:
            continue
        print("opened", family)
        break
for protocol in range(1, 32):
    try:
        socket.socket(16, socket.SOCK_RAW, protocol).close()
    except OSError:
        continue
    print("opened netlink", protocol)
for family in range(2, 64):
    try:
        socket.socketpair(family, socket.SOCK_STREAM)
    except OSError:
        continue
    print("opened pair", family)
"""

ALLOWED_FAMILIES = {f"opened {family}" for family in (1, 2, 10, 16)}
"""AF_UNIX, AF_INET, AF_INET6, and AF_NETLINK for its routes."""
