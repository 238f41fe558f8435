"""The docker daemon of this machine: whether there is one, and calls to it off the event loop."""

from __future__ import annotations

import os
import socket
import threading
from functools import cache, cached_property
from typing import TYPE_CHECKING

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.containers.calls import Calls

if TYPE_CHECKING:
    from http.client import HTTPResponse

    from docker import DockerClient

_SOCKET = "unix:///var/run/docker.sock"
_ASK_SECONDS = 5
_CALL_SECONDS = 60
_CONNECTIONS = 64


def docker_problem() -> str | None:
    """Why no containers are to be had here, with what to do; None where a daemon answers. Asked once an address."""
    return _problem(_address())


class Daemon(Calls):
    """The way to the daemon. The SDK is imported, and the daemon asked, at the first call. Safe in any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._client: DockerClient | None = None
        self._connecting = threading.Lock()

    @property
    def client(self) -> DockerClient:
        """The SDK's client. Raises SandboxError where no daemon answers."""
        with self._connecting:
            if self._client is None:
                self._client = _connected(self.socket_path)
            return self._client

    @property
    def socket_path(self) -> str:
        """Where the daemon listens."""
        return _address().removeprefix("unix://")

    @property
    def api_version(self) -> str:
        """Of the HTTP interface, as both sides speak it."""
        return self.client.api.api_version

    @cached_property
    def cpus(self) -> int:
        """How many processors containers can have."""
        return int(self.client.info()["NCPU"])

    def failure(self, error: BaseException) -> BaseException:
        """SandboxError for what the SDK raises."""
        from docker.errors import APIError, DockerException

        if isinstance(error, APIError):
            return SandboxError(f"docker: {error.explanation or error}")
        if isinstance(error, (DockerException, OSError)):  # the HTTP client's errors are OSErrors too
            return SandboxError(f"docker: {error}")
        return error

    def close(self) -> None:
        """Ends connections, and threads that are idle. A later call has a thread of its own."""
        super().close()
        if self._client is not None:
            self._client.close()


def _address() -> str:
    return os.environ.get("DOCKER_HOST") or _SOCKET


def _connected(path: str) -> DockerClient:
    """A client that does not look at the environment: to iterate over it fails where another thread changes it.

    Raises SandboxError.
    """
    from http.client import HTTPException

    from docker import DockerClient
    from docker.constants import DEFAULT_DOCKER_API_VERSION
    from docker.utils import version_lt

    try:
        spoken = _ping(path).getheader("Api-Version") or DEFAULT_DOCKER_API_VERSION
    except (OSError, HTTPException) as error:
        raise SandboxError(f"the docker daemon at {path} does not answer: {error}") from error
    version = spoken if version_lt(spoken, DEFAULT_DOCKER_API_VERSION) else DEFAULT_DOCKER_API_VERSION
    client = DockerClient(f"unix://{path}", version=version, timeout=_CALL_SECONDS, max_pool_size=_CONNECTIONS)
    client.api.trust_env = False
    return client


def _ping(path: str) -> HTTPResponse:
    """The head of the daemon's answer. Raises OSError, http.client.HTTPException."""
    from http.client import HTTPResponse  # 10 ms that a session without containers does not pay

    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ASK_SECONDS)
        connection.connect(path)
        connection.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
        with HTTPResponse(connection) as response:
            response.begin()
            return response


@cache
def _problem(address: str) -> str | None:
    from http.client import HTTPException

    scheme, _, path = address.partition("://")
    if scheme != "unix":
        return (
            f"the docker daemon at {address} may be another machine's, and containers share the workspace's folder "
            "with this one: set DOCKER_HOST to a daemon of this machine, as unix:///path/to/docker.sock"
        )
    try:
        status = _ping(path).status
    except PermissionError:
        return f"no permission to use the docker daemon at {path}: add this user to the socket's group"
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return f"no docker daemon answers at {path} ({reason}): start docker, or set DOCKER_HOST"
    return None if status == 200 else f"the docker daemon at {path} answers with HTTP status {status}"
