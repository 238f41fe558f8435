"""Find and call the daemon of containers, off the event loop."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache, cached_property, partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.workspaces.containers.engines import Service, find_engine, start_service

if TYPE_CHECKING:
    from http.client import HTTPResponse

    from docker import DockerClient

T = TypeVar("T")

_SOCKET = "unix:///var/run/docker.sock"
_ASK_SECONDS = 5
_CALL_SECONDS = 60
_CONNECTIONS = 64
_PODMAN_HEADER = "Libpod-Api-Version"


def docker_problem() -> str | None:
    """Return why no daemon answers and the remedy, or None. Checked once an address."""
    return _problem(_docker_address())


class Daemon:
    """Access to one daemon: threads that call it through the docker SDK, started as needed.

    The first call imports the SDK and connects. With `program` the daemon is that of podman or docker, found by
    `engines`. Safe in any thread. The threads are daemons, so the process does not wait for them at its end.

    `_connecting` guards the connection and the service, `_threads_changing` the numbers of threads and calls. Work goes
    through the queue `_calls`.
    """

    def __init__(self, program: str | None = None) -> None:
        self.program = program or "docker"
        self._is_stock = program is None
        self._connecting = threading.Lock()
        self._connection: tuple[DockerClient, bool] | None = None
        self._service: Service | None = None
        self._address = ""
        self._threads_changing = threading.Lock()
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = self._busy = 0

    @property
    def client(self) -> DockerClient:
        """Return the SDK's client. Raises SandboxError if no daemon answers, UnavailableError without a program."""
        return self._connect()[0]

    @property
    def is_podman(self) -> bool:
        """Return whether podman's service answers, under any name of program or socket. Raises as `client`."""
        return self._connect()[1]

    @property
    def socket_path(self) -> str:
        """Return the path of the daemon's socket. Only valid after `client`."""
        return self._address.removeprefix("unix://")

    @property
    def api_version(self) -> str:
        """Return the version of the HTTP interface that both sides speak."""
        return self.client.api.api_version

    @cached_property
    def info(self) -> Mapping[str, Any]:
        """Return the daemon's description of itself: `NCPU`, the processors for containers, and more."""
        found: Mapping[str, Any] = self.client.info()
        return found

    @property
    def is_used(self) -> bool:
        """Return whether anything was called yet."""
        return self._threads > 0

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Call a blocking function in one of the threads. Exceptions of the SDK become SandboxError."""
        future: Future[T] = Future()
        self._calls.put(partial(self._work, future, function, args))
        # As many threads as running calls: in a pool of fixed size a command would wait for the images of others
        with self._threads_changing:
            self._busy += 1
            if self._busy <= self._threads:
                return future
            self._threads += 1
        threading.Thread(target=self._serve, name="agentbench-docker", daemon=True).start()
        return future

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Submit a function and await it. It runs to its end even if the caller is cancelled."""
        return await asyncio.wrap_future(self.submit(function, *args))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Convert exceptions of the SDK in the block to SandboxError, for callers in their own threads."""
        try:
            yield
        except Exception as error:
            if (failure := self._as_failure(error)) is error:
                raise
            raise failure from error

    def close(self) -> None:
        """End connections, idle threads, and a service that was started here. A later call reconnects."""
        with self._threads_changing:
            threads, self._threads = self._threads, 0
        for _ in range(threads):
            self._calls.put(None)
        with self._connecting:
            connection, self._connection = self._connection, None
            service, self._service = self._service, None
        if connection is not None:
            connection[0].close()
        if service is not None:
            service.end()

    def _connect(self) -> tuple[DockerClient, bool]:
        with self._connecting:
            if self._connection is None:
                self._address = self._find_address()
                self._connection = _connect(self.socket_path)
            return self._connection

    def _find_address(self) -> str:
        if self._is_stock:
            return _docker_address()
        engine = find_engine(self.program)
        address = engine.find_address()
        if address is None:
            self._service = self._service or start_service(engine)
            return self._service.address
        if (problem := _problem(address)) is not None:
            raise UnavailableError(problem)
        return address

    def _serve(self) -> None:
        for work in iter(self._calls.get, None):
            work()
            with self._threads_changing:
                self._busy -= 1

    def _work(self, future: Future[T], function: Callable[..., T], args: tuple[Any, ...]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(function(*args))
        except BaseException as error:  # noqa: BLE001 - the future passes it on
            future.set_exception(self._as_failure(error))

    def _as_failure(self, error: BaseException) -> BaseException:
        """Return SandboxError for an exception of the SDK, and any other exception unchanged."""
        from docker.errors import APIError, DockerException

        if isinstance(error, APIError):
            return SandboxError(f"{self.program}: {error.explanation or error}")
        if isinstance(error, (DockerException, OSError)):  # the HTTP client's errors are OSErrors too
            return SandboxError(f"{self.program}: {error}")
        return error


def _docker_address() -> str:
    return os.environ.get("DOCKER_HOST") or _SOCKET


def _connect(path: str) -> tuple[DockerClient, bool]:
    """Return a client, and whether podman's service answers it. Raises SandboxError."""
    from http.client import HTTPException

    from docker import DockerClient
    from docker.constants import DEFAULT_DOCKER_API_VERSION
    from docker.utils import version_lt

    try:
        head = _ping(path)
    except (OSError, HTTPException) as error:
        raise SandboxError(f"the docker daemon at {path} does not answer: {error}") from error
    offered = head.getheader("Api-Version") or DEFAULT_DOCKER_API_VERSION
    # Never newer than the SDK's own version: its calls would lack fields that the newer interface requires
    version = offered if version_lt(offered, DEFAULT_DOCKER_API_VERSION) else DEFAULT_DOCKER_API_VERSION
    client = DockerClient(f"unix://{path}", version=version, timeout=_CALL_SECONDS, max_pool_size=_CONNECTIONS)
    client.api.trust_env = False  # iterating over the environment fails if another thread changes it
    return client, head.getheader(_PODMAN_HEADER) is not None


def _ping(path: str) -> HTTPResponse:
    """Return the head of the daemon's answer. Raises OSError, http.client.HTTPException."""
    from http.client import HTTPResponse  # takes 10 ms, and most sessions have no containers

    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ASK_SECONDS)
        connection.connect(path)
        # HTTP 1.0, so that the daemon closes the connection and sends no chunks
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
    if status == 200:
        return None
    return f"the docker daemon at {path} answers with HTTP status {status}"
