"""Marks for tests of real sandboxes: a machine without the sandbox skips them with the reason.

The checks differ from the package's own, so that a wrong check of the package cannot skip the tests that would find it.
"""

from __future__ import annotations

import functools
import http.client
import os
import socket
import subprocess

import pytest

IMAGE = "agentbench-test:1"
"""Debian with dash, python3 and pytest, made by tests/support/make_image."""

_SECONDS = 5


def docker_lacks(image: str = IMAGE, maker: str = "tests/support/make_image") -> str | None:
    """Return the reason why no container of the image can run, or None. `maker` makes it. Ask the daemon once."""
    return _docker_lacks(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"), image, maker)


@functools.cache
def bubblewrap_lacks() -> str | None:
    """Return the reason why bubblewrap does not work on this machine, or None. Try it once."""
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        return "bubblewrap (bwrap) is not installed"
    except subprocess.TimeoutExpired:
        return "bubblewrap does not answer"
    return f"bubblewrap does not work here: {done.stderr.strip()}" if done.returncode else None


@functools.cache
def _docker_lacks(address: str, image: str, maker: str) -> str | None:
    scheme, _, path = address.partition("://")
    if scheme != "unix":
        return f"no docker daemon on this machine (DOCKER_HOST={address})"
    try:
        status = _status(path, f"/images/{image}/json")
    except OSError as error:
        return f"no docker daemon at {address}: {error.strerror or error}"
    return None if status == 200 else f"the docker daemon has no image {image}: make it with {maker}"


def _status(socket_path: str, path: str) -> int:
    """Return the status of a GET over a unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_SECONDS)
        connection.connect(socket_path)
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: docker\r\n\r\n".encode())
        with http.client.HTTPResponse(connection) as response:
            response.begin()
            return response.status


needs_docker = pytest.mark.skipif(docker_lacks() is not None, reason=docker_lacks() or "")
needs_bubblewrap = pytest.mark.skipif(bubblewrap_lacks() is not None, reason=bubblewrap_lacks() or "")
